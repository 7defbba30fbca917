"""What a conformance case is, and how it ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from acp_server.testing.conformance.harness import Harness

SPEC = "https://agentclientprotocol.com/protocol"
"""Where the pages of the specification stand that cases link to."""

Outcome: TypeAlias = Literal["passed", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class Case:
    """One case.

    Attributes:
        id: Stable name.
        title: What is asked for, one line.
        page: Page of the specification, with its anchor.
        run: Runs it; returns if the agent passes.
    """

    id: str
    title: str
    page: str
    run: Callable[[Harness], Awaitable[None]]

    @property
    def spec(self) -> str:
        """Link into the specification."""
        return f"{SPEC}/{self.page}"


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What came of a case."""

    case: Case
    outcome: Outcome
    reason: str = ""

    def to_json(self) -> Mapping[str, Any]:
        """Return the result for a report."""
        told = {
            "id": self.case.id,
            "title": self.case.title,
            "spec": self.case.spec,
            "outcome": self.outcome,
        }
        return {**told, "reason": self.reason} if self.reason else told

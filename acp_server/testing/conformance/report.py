"""Says what came of the cases: as text for a person, as JSON for a program."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from acp_server.testing.conformance.case import CaseResult

_SIGNS = {"passed": "ok  ", "failed": "FAIL", "skipped": "skip"}


def json_report(
    command: str, about: Mapping[str, Any], results: Sequence[CaseResult]
) -> dict[str, Any]:
    """Return the report as a JSON object.

    Args:
        command: The agent's command line.
        about: The result of `initialize`, {} if there was none.
        results: What came of the cases.
    """
    counts = Counter(result.outcome for result in results)
    return {
        "command": command,
        "agentInfo": about.get("agentInfo", {}),
        "protocolVersion": about.get("protocolVersion"),
        "summary": {outcome: counts[outcome] for outcome in ("passed", "failed", "skipped")},
        "cases": [result.to_json() for result in results],
    }


def text_lines(results: Sequence[CaseResult]) -> Iterator[str]:
    """Yield a line for each case and one for all of them."""
    for result in results:
        yield case_line(result)
    counts = Counter(result.outcome for result in results)
    yield f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped"


def case_line(result: CaseResult) -> str:
    """Return the line of one case."""
    reason = f"  ({result.reason.splitlines()[0]:.200})" if result.reason else ""
    return f"{_SIGNS[result.outcome]} {result.case.id}: {result.case.title}{reason}"

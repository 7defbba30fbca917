"""A prompt on its way to the end of its turn."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from acp_server.turns.turn_end import TurnOutcome


@dataclass(eq=False, slots=True)
class PendingPrompt:
    """A prompt on its way: resolves with the end of the very turn that it started.

    Attributes:
        blocks: The prompt.
        command: Run in its turn's place, for a prompt that is a command.
        answered: Set when the client has its answer, if anybody sees to that: the next turn waits
            for it, so that nothing of it comes before.
    """

    blocks: Sequence[Mapping[str, Any]]
    command: Callable[[], Awaitable[None]] | None = None
    answered: anyio.Event | None = None
    _done: anyio.Event = field(default_factory=anyio.Event)
    _outcome: TurnOutcome | None = None

    async def outcome(self) -> TurnOutcome:
        """Return how the turn ended, once it has ended and its end is durable."""
        await self._done.wait()
        assert self._outcome is not None  # noqa: S101 - set before the event, see resolve
        return self._outcome

    def resolve(self, outcome: TurnOutcome) -> None:
        """Settle the prompt; only the first call counts."""
        if self._outcome is None:
            self._outcome = outcome
            self._done.set()

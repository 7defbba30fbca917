"""A prompt that the client sent, and how its turn ended."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from acp_server.testing.checks import Transcript, fold_transcript
from acp_server.testing.client.connection import PendingRequest
from acp_server.testing.client.raw_client import DEFAULT_TIMEOUT_S, outcome

Update: TypeAlias = dict[str, Any]
"""The `update` of a `session/update`, as it came."""


@dataclass(frozen=True, slots=True)
class PromptResult:
    """The end of a turn.

    Attributes:
        stop_reason: As the agent said.
        updates: The session's updates while this prompt was the oldest one without an answer.
        meta: `_meta` of the response, or {}.
    """

    stop_reason: str
    updates: tuple[Update, ...]
    meta: Mapping[str, Any]

    @property
    def transcript(self) -> Transcript:
        """The updates, folded."""
        return fold_transcript(self.updates)

    @property
    def text(self) -> str:
        """The agent's text, joined."""
        return self.transcript.text


@dataclass(slots=True)
class PromptHandle:
    """A prompt that was sent."""

    session_id: str
    pending: PendingRequest
    updates: list[Update] = field(default_factory=list)

    @property
    def done(self) -> bool:
        """Whether it has been answered."""
        return self.pending.answered.is_set()

    async def result(self, timeout: float = DEFAULT_TIMEOUT_S) -> PromptResult:  # noqa: ASYNC109
        """Wait for the answer.

        Raises:
            AcpError: If the agent answered with an error.
            AcpTimeoutError: If it did not answer in time.
            AgentGoneError: If it went away.
        """
        answer = await outcome(self.pending, timeout)
        return PromptResult(answer["stopReason"], tuple(self.updates), answer.get("_meta") or {})

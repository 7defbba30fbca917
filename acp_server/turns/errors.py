"""Errors of turns; those of agents, models and loading are of the same base.

AgentsError
├── TurnClosedError     a handle used after its turn has ended
├── AuthRequiredError   the user must sign in first
├── PermissionDenied    the user (or the preset) refused a call
├── ToolArgumentsError  the arguments of a call are unusable
├── CheckpointError     the store could not make the log durable
└── ModelError          a model request failed
"""

from __future__ import annotations

MAX_FAILURE_CHARS = 2000
"""How much of what a provider says about a failure is kept."""


class AgentsError(Exception):
    """Base of these errors."""


class TurnClosedError(AgentsError):
    """The turn has ended; its handle reaches neither the log nor the client.

    Rule: cancel-covers-queued-prompts.
    """

    def __init__(self) -> None:
        super().__init__("this turn has ended")


class AuthRequiredError(AgentsError):
    """The user must sign in first. Raised in a turn it ends the turn and asks the client for it."""

    def __init__(self) -> None:
        super().__init__("authentication required")


class PermissionDenied(AgentsError):  # noqa: N818 - named like PermissionError, which authors know
    """A call was refused. Uncaught, it ends the turn `completed` with that call failed.

    Rule: answer-decides-the-call.

    Attributes:
        name: The tool's name.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"permission for {name!r} was not given")


class ToolArgumentsError(AgentsError, ValueError):
    """The arguments of a call are not what JSON, or the tool, takes; its text is for the model."""


class CheckpointError(AgentsError):
    """A checkpoint failed: what was appended since the last one is not durable.

    Rule: failed-checkpoint-ends-turn.

    Attributes:
        lost_session: True when this process no longer owns the log (lock lost, log changed), so
            that a retry cannot help and the session must be loaded afresh.
    """

    def __init__(self, message: str, *, lost_session: bool = False) -> None:
        self.lost_session = lost_session
        super().__init__(message)


class ModelError(AgentsError):
    """A model request failed.

    Attributes:
        failure: The structured failure that goes into the log (truncated-calls-are-dropped).
        aborted: The model says that the request was cancelled.
        retryable: Another attempt may succeed, so the model loop makes one if it may.
        retry_after_ms: How long the provider asks to wait before it.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str,
        status: int | None = None,
        aborted: bool = False,
        retryable: bool = False,
        retry_after_ms: int | None = None,
    ) -> None:
        self.aborted = aborted
        self.retryable = retryable
        self.retry_after_ms = retry_after_ms
        # Some providers answer with a whole page; the user needs a sentence.
        message = message[:MAX_FAILURE_CHARS]
        self.failure: dict[str, object] = {"message": message, "code": code}
        if status is not None:
            self.failure["status"] = status
        if retry_after_ms is not None:
            self.failure["providerRetryAfterMs"] = retry_after_ms
        super().__init__(message)

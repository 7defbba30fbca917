"""Errors of the agents' room.

AgentsError
├── AgentLoadError      a `--agent` that names nothing that can run
├── ScriptError         a script file that cannot be played
├── TurnClosedError     a handle used after its turn has ended
├── AuthRequiredError   the user must sign in first
├── RequestRefusedError a request that an agent's own handler does not accept
├── NotOfferedError     the client cannot do what the agent asks of it
├── PermissionDenied    the user (or the preset) refused a call
└── CheckpointError     the store could not make the log durable
"""

from __future__ import annotations

MAX_FAILURE_CHARS = 2000
"""How much of what a provider says about a failure is kept."""


class AgentsError(Exception):
    """Base of the errors that this room raises."""


class AgentLoadError(AgentsError):
    """A `--agent` value that names nothing that can run.

    Attributes:
        spec: The value as given.
    """

    def __init__(self, spec: str, reason: str) -> None:
        self.spec = spec
        super().__init__(f"cannot load agent {spec!r}: {reason}")


class ScriptError(AgentsError):
    """A script file that cannot be played, or that has run out of responses."""

    def __init__(self, source: str, reason: str) -> None:
        self.source = source
        super().__init__(f"script {source!r}: {reason}")


class TurnClosedError(AgentsError):
    """The turn has ended; its handle reaches neither the log nor the client (Z19)."""

    def __init__(self) -> None:
        super().__init__("this turn has ended")


class AuthRequiredError(AgentsError):
    """The user must sign in first. Raised in a turn it ends the turn and asks the client for it."""

    def __init__(self) -> None:
        super().__init__("authentication required")


class RequestRefusedError(AgentsError):
    """An agent's own handler does not accept a request.

    Attributes:
        detail: One sentence, which the client is told.
    """

    def __init__(self, detail: str) -> None:
        self.detail = detail
        super().__init__(detail)


class NotOfferedError(AgentsError):
    """The client has not offered what is asked of it; it was not called.

    Attributes:
        what: The capability that it lacks.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"the client offers no {what}")


class PermissionDenied(AgentsError):  # noqa: N818 - authors catch it as what it says, like PermissionError
    """A call was refused. Uncaught, it ends the turn `completed` with that call failed (Z3).

    Attributes:
        name: The tool's name.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"permission for {name!r} was not given")


class CheckpointError(AgentsError):
    """A checkpoint failed: what was appended since the last one is not durable (Z8).

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
        failure: The structured failure that goes into the log, contract 1.6.
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

"""Errors of the agents' room.

AgentsError
├── AgentLoadError      a `--agent` that names nothing that can run
├── ScriptError         a script file that cannot be played
├── TurnClosedError     a handle used after its turn has ended
├── PermissionDenied    the user (or the preset) refused a call
└── CheckpointError     the store could not make the log durable
"""

from __future__ import annotations


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
    """A model request failed for good.

    Attributes:
        failure: The structured failure that goes into the log, contract 1.6.
    """

    def __init__(
        self, message: str, *, code: str, status: int | None = None, aborted: bool = False
    ) -> None:
        self.aborted = aborted
        self.failure: dict[str, object] = {"message": message, "code": code}
        if status is not None:
            self.failure["status"] = status
        super().__init__(message)

"""Errors of turns; those of agents, models and loading are of the same base."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

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

    What the provider says of it is redacted here, before anything can store or show it
    (failure-text-hides-secrets).

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
        request_id: str | None = None,
        aborted: bool = False,
        retryable: bool = False,
        retry_after_ms: int | None = None,
    ) -> None:
        from acp_server.turns.redaction import redact  # noqa: PLC0415 - only failures pay

        self.aborted = aborted
        self.retryable = retryable
        self.retry_after_ms = retry_after_ms
        # Some providers answer with a whole page; the user needs a sentence.
        message = redact(message)[:MAX_FAILURE_CHARS]
        self.failure: dict[str, object] = {"message": message, "code": code}
        if status is not None:
            self.failure["status"] = status
        if request_id is not None:
            self.failure["requestId"] = request_id
        if retry_after_ms is not None:
            self.failure["providerRetryAfterMs"] = retry_after_ms
        super().__init__(message)

    @classmethod
    def of_failure(cls, failure: Mapping[str, Any], *, aborted: bool) -> Self:
        """Return the error of a failure that a stream has ended with, all its members kept.

        Args:
            failure: An `LlmFailure`, redacted (payload-types-have-fixed-shapes).
            aborted: See the class.
        """
        error = cls(
            failure["message"],
            code=failure["code"],
            aborted=aborted,
            retry_after_ms=failure.get("providerRetryAfterMs"),
        )
        error.failure = {**failure, "message": error.failure["message"]}
        return error

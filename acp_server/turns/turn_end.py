"""Why a turn ends, by precedence: what the log records and what the prompt is answered.

Rule: refusal-leaves-models-view.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from acp_server.turns.errors import AuthRequiredError, CheckpointError, ModelError, PermissionDenied
from acp_server.turns.policy import PolicyFailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from acp_server.turns.turn_log import TurnLog

_log = logging.getLogger(__name__)

StopKind = Literal["aborted", "disposed"]
"""Why an agent was asked to stop: the user cancelled, or the server ends."""

_NOT_CLEAN = ("aborted", "disposed", "error")


@dataclass(frozen=True, slots=True)
class TurnOutcome:
    """How a turn ended.

    Attributes:
        kind: The `turn/end` reason's kind.
        message: For `error`: one readable sentence without secrets.
        lost_session: The store lost the session to someone else (failed-checkpoint-ends-turn), or
            its turn could not be closed; it must be loaded afresh.
        needs_sign_in: For `error`: the user must sign in first.
        refusal: Why the turn did not even begin: nothing was appended.
    """

    kind: str
    message: str = ""
    lost_session: bool = False
    needs_sign_in: bool = False
    refusal: CheckpointError | None = None


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """The end of a turn.

    Attributes:
        reason: The `turn/end` reason.
        outcome: What the prompt is answered.
    """

    reason: Mapping[str, Any]
    outcome: TurnOutcome

    @classmethod
    def of(cls, kind: str, **more: str) -> TurnEnd:
        """Return an end that is not an error."""
        return cls({"kind": kind, **more}, TurnOutcome(kind))

    @property
    def clean(self) -> bool:
        """Whether the agent came to its own end, so that what it was saying counts."""
        return self.outcome.kind not in _NOT_CLEAN


def store_failed(error: CheckpointError) -> TurnOutcome:
    """Return the outcome of a prompt that could not be made durable."""
    return TurnOutcome("error", str(error), lost_session=error.lost_session)


def unclosable(sentence: str) -> TurnOutcome:
    """Return the outcome of a prompt whose turn the log does not let end."""
    return TurnOutcome("error", f"{sentence}; load the session again", lost_session=True)


def end_of(
    log: TurnLog,
    failure: BaseException | None,
    stop: StopKind | None,
    new_diagnostic_id: Callable[[], str],
) -> TurnEnd:
    """Return the end of a turn; what stands first goes first.

    Args:
        log: Knows the step, and what the turn has run into.
        failure: What left the agent, its policy or the store.
        stop: Why the agent was asked to stop, if it was.
        new_diagnostic_id: Names the entry of the diagnostic log about an unexpected failure.
    """
    if stop == "disposed":
        return TurnEnd.of("disposed")
    if isinstance(failure, CheckpointError):
        return _error(log, str(failure), "STORE_FAILED", lost_session=failure.lost_session)
    if stop == "aborted" or (isinstance(failure, ModelError) and failure.aborted):
        return TurnEnd.of("aborted")
    if isinstance(failure, ModelError):
        return _model_error(log, failure)
    if isinstance(failure, AuthRequiredError):
        return _error(log, str(failure), "AUTH_REQUIRED", needs_sign_in=True)
    # A refusal that the agent does not catch is how it comes to its end
    # (permission-precedes-the-call).
    if failure is not None and not isinstance(failure, PermissionDenied):
        return _unexpected(log, failure, new_diagnostic_id())
    if log.refused:
        return TurnEnd.of("refusal")
    if log.hit_request_limit:
        return TurnEnd.of("max_turn_requests")
    if log.hit_max_tokens:
        return TurnEnd.of("max-tokens")
    return TurnEnd.of("completed")


def fault_of_ours(log: TurnLog, sentence: str) -> TurnEnd:
    """Return the end of a turn that could not be run (B86)."""
    return _error(log, sentence, "TURN_FAILED")


def _error(
    log: TurnLog,
    sentence: str,
    code: str,
    *,
    lost_session: bool = False,
    needs_sign_in: bool = False,
) -> TurnEnd:
    reason = {"kind": "error", "step": log.step, "message": sentence, "code": code}
    return TurnEnd(reason, TurnOutcome("error", sentence, lost_session, needs_sign_in))


def _unexpected(log: TurnLog, failure: BaseException, diagnostic_id: str) -> TurnEnd:
    """Return the end by a failure whose text the client is not told; the diagnostic log has it."""
    entry = f"log entry {diagnostic_id}"
    if isinstance(failure, PolicyFailedError):
        _log.error("the policy failed, %s", entry, exc_info=failure)
        return _error(log, f"{failure}, {entry}", "POLICY_FAILED")
    _log.error("the agent failed, %s", entry, exc_info=failure)
    return _error(log, f"the agent failed ({type(failure).__name__}), {entry}", "AGENT_FAILED")


def _model_error(log: TurnLog, error: ModelError) -> TurnEnd:
    reason = {"kind": "error", "step": log.step, "failure": dict(error.failure)}
    return TurnEnd(reason, TurnOutcome("error", str(error)))

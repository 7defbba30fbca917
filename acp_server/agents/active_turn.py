"""One turn while it runs: the agent in its cancel scope, and how the turn ends (contract 1.9)."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio

from acp_server.agents.content import text_of
from acp_server.agents.errors import (
    AuthRequiredError,
    CheckpointError,
    ModelError,
    PermissionDenied,
)
from acp_server.agents.turn import Turn
from acp_server.agents.turn_log import TurnLog
from session_core import SurfaceIntent, last_turn_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from acp_server.agents.agent import Agent
    from acp_server.agents.runner import RunnerPorts
    from acp_server.agents.settings import LogEntry, SessionSettings
    from session_core import HeaderRecorder, Session

_log = logging.getLogger(__name__)

CANCEL_GRACE_S = 3.0
"""How long a cancelled agent may take to end: it fits into the 5 s an exit may take (Z19)."""

_TITLE_WORDS = 5
_USER = {"kind": "user"}
_APPEND = SurfaceIntent("append")


@dataclass(frozen=True, slots=True)
class TurnOutcome:
    """How a turn ended.

    Attributes:
        kind: The `turn/end` reason's kind.
        message: For `error`: one readable sentence without secrets.
        lost_session: The store lost the session to someone else (Z8); it must be loaded afresh.
        needs_sign_in: For `error`: the user must sign in first.
        refusal: Why the turn did not even begin: nothing was appended.
    """

    kind: str
    message: str = ""
    lost_session: bool = False
    needs_sign_in: bool = False
    refusal: CheckpointError | None = None


class ActiveTurn:
    """Runs one prompt as one turn."""

    def __init__(
        self,
        session: Session,
        agent: Agent,
        ports: RunnerPorts,
        blocks: Sequence[Mapping[str, Any]],
        recorder: HeaderRecorder,
        settings: SessionSettings,
        *,
        has_title: bool,
        cancel_grace_s: float,
    ) -> None:
        self._session = session
        self._agent = agent
        self._ports = ports
        self._blocks = blocks
        self._recorder = recorder
        self._settings = settings
        self._has_title = has_title
        self._cancel_grace_s = cancel_grace_s
        provenance = {"provider": "agent", "model": agent.name}
        self._log = TurnLog(session, last_turn_number(session.events) + 1, provenance)
        self._log.between_steps = self._say_what_waits
        self._unsaid: list[LogEntry] = []
        self._prompt_seq = -1
        self._scope = anyio.CancelScope()
        self._agent_done = anyio.Event()
        self._stirred = anyio.Event()
        self._cancelled = False
        self._disposed = False
        self._failure: BaseException | None = None

    def cancel(self) -> None:
        """Ask the agent to stop; the turn ends `aborted`."""
        self._cancelled = True
        self._scope.cancel()
        self._stirred.set()

    def dispose(self) -> None:
        """Ask the agent to stop since the server does; the turn ends `disposed`."""
        self._disposed = True
        self.cancel()

    @property
    def closed(self) -> bool:
        """Whether `turn/end` is in the log."""
        return self._log.closed

    def say(self, entry: LogEntry) -> None:
        """Append a message from outside; within a step it waits for the step's end.

        So it never parts a call from its result, which a provider would refuse.
        """
        self._unsaid.append(entry)
        self.settings_changed()

    def settings_changed(self) -> None:
        """Tell the model of a new preset, at the end of the step if one is open (Z15)."""
        if not self._log.step_open:
            self._say_what_waits()

    def _say_what_waits(self) -> None:
        notice = self._settings.take_notice()
        if notice is not None:
            self._log.append("context/message", notice, _APPEND)
        while self._unsaid:
            entry = self._unsaid.pop(0)
            self._log.append(entry.type, entry.data, entry.intent)

    async def run(self) -> TurnOutcome:
        """Run the turn to its durable end."""
        self._log.append(
            "turn/start", {"turn": self._log.turn, "trigger": {"kind": "message", "source": _USER}}
        )
        for entry in self._settings.take_held():
            self._log.append(entry.type, entry.data)
        try:
            reason = self._veto()
        except Exception as error:  # noqa: BLE001 - a policy that fails lets nothing through
            self._failure = error
            return await self._end(self._end_reason())
        if reason is not None:
            blocked = {"content": list(self._blocks), "source": _USER, "reason": reason}
            self._log.append("prompt/blocked", blocked)
            return await self._end({"kind": "rejected", "reason": reason})
        self._accept_prompt()
        try:
            await self._ports.durability.flush()
        except CheckpointError as error:
            self._failure = error
        else:
            await self._drive_agent()
        return await self._end(self._end_reason())

    def abandon(self, message: str) -> TurnOutcome:
        """Close a turn that could not be run to its end, so that the next one can begin."""
        if not self._log.closed:
            self._log.close(self._error(message, "TURN_FAILED"), clean=False)
        return TurnOutcome("error", message)

    # -- start ------------------------------------------------------------------------------

    def _veto(self) -> str | None:
        policy = self._agent.policy
        return None if policy is None else policy(text_of(self._blocks))

    def _accept_prompt(self) -> None:
        self._say_what_waits()
        message = self._log.append(
            "user/message", {"content": list(self._blocks), "source": _USER}, _APPEND
        )
        self._prompt_seq = message.seq
        words = text_of(self._blocks).split()
        if words and not self._has_title:
            title = " ".join(words[:_TITLE_WORDS])
            source = {"kind": "fallback"}
            data = {"title": title, "messageSeqs": [message.seq], "source": source}
            self._log.append("session/title", data)

    # -- middle -----------------------------------------------------------------------------

    async def _drive_agent(self) -> None:
        turn = Turn(
            self._log,
            blocks=self._blocks,
            client=self._ports.client,
            durability=self._ports.durability,
            pace=self._ports.pace,
            ids=self._ports.ids,
            prompt_seq=self._prompt_seq,
            recorder=self._recorder,
            settings=self._settings,
            cancel=self.cancel,
        )
        self._ports.tasks.start_soon(self._agent_task, turn, name=f"agent of {self._session.id}")
        await self._stirred.wait()
        if not self._agent_done.is_set():
            with anyio.move_on_after(self._cancel_grace_s):
                await self._agent_done.wait()
        if not self._agent_done.is_set():
            _log.warning("the agent of %s did not stop when cancelled", self._session.id)

    async def _agent_task(self, turn: Turn) -> None:
        try:
            with self._scope:
                await self._agent.drive(turn)
        except anyio.get_cancelled_exc_class() as error:
            self._failure = error
            if anyio.current_effective_deadline() == -float("inf"):
                raise  # the server itself is being torn down
        except BaseException as error:  # noqa: BLE001 - SystemExit of an agent must not end the server (B86)
            self._failure = error
        finally:
            self._agent_done.set()
            self._stirred.set()

    # -- end --------------------------------------------------------------------------------

    def _end_reason(self) -> dict[str, Any]:
        """Return the reason by precedence: disposed, aborted, error, ..., completed (Z12)."""
        if self._disposed:
            return {"kind": "disposed"}
        failure = self._failure
        if isinstance(failure, CheckpointError):
            return self._error(str(failure), "STORE_FAILED")
        if self._cancelled or (isinstance(failure, ModelError) and failure.aborted):
            return {"kind": "aborted"}
        if isinstance(failure, ModelError):
            from acp_server.agents.redaction import redact  # noqa: PLC0415 - only failures pay

            said = redact(str(failure.failure["message"]))
            told = {**failure.failure, "message": said}
            return {"kind": "error", "step": self._log.step, "failure": told}
        if isinstance(failure, AuthRequiredError):
            return self._error(str(failure), "AUTH_REQUIRED")
        if failure is not None and not isinstance(failure, PermissionDenied):
            entry = self._ports.ids.log_entry_id()
            _log.error("the agent failed, log entry %s", entry, exc_info=failure)
            name = type(failure).__name__
            return self._error(f"the agent failed ({name}), log entry {entry}", "AGENT_FAILED")
        if self._log.refused:
            return {"kind": "refusal"}
        if self._log.hit_request_limit:
            return {"kind": "max_turn_requests"}
        if self._log.hit_max_tokens:
            return {"kind": "max-tokens"}
        return {"kind": "completed"}

    def _error(self, message: str, code: str) -> dict[str, Any]:
        return {"kind": "error", "step": self._log.step, "message": message, "code": code}

    async def _end(self, reason: dict[str, Any]) -> TurnOutcome:
        clean = reason["kind"] not in ("aborted", "disposed", "error")
        self._log.close(reason, clean=clean)
        failure = self._failure
        try:
            await self._ports.durability.flush()
        except CheckpointError as error:
            return TurnOutcome("error", str(error), lost_session=error.lost_session)
        if reason["kind"] != "error":
            return TurnOutcome(reason["kind"])
        message = reason["failure"]["message"] if "failure" in reason else reason["message"]
        return TurnOutcome(
            "error",
            message,
            lost_session=isinstance(failure, CheckpointError) and failure.lost_session,
            needs_sign_in=isinstance(failure, AuthRequiredError),
        )

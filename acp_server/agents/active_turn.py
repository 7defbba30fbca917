"""One turn while it runs: the agent in its cancel scope, and how the turn ends (contract 1.9)."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio

from acp_server.agents.content import text_of
from acp_server.agents.errors import CheckpointError, ModelError, PermissionDenied
from acp_server.agents.turn import Turn
from acp_server.agents.turn_log import TurnLog
from session_core import SurfaceIntent, last_turn_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from acp_server.agents.agent import Agent
    from acp_server.agents.runner import RunnerPorts
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
    """

    kind: str
    message: str = ""
    lost_session: bool = False


class ActiveTurn:
    """Runs one prompt as one turn.

    Attributes:
        flush_owed: The end of the turn is in memory but not on disk (Z8).
    """

    def __init__(
        self,
        session: Session,
        agent: Agent,
        ports: RunnerPorts,
        blocks: Sequence[Mapping[str, Any]],
        recorder: HeaderRecorder,
        *,
        has_title: bool,
    ) -> None:
        self.flush_owed = False
        self._session = session
        self._agent = agent
        self._ports = ports
        self._blocks = blocks
        self._recorder = recorder
        self._has_title = has_title
        provenance = {"provider": "agent", "model": agent.name}
        self._log = TurnLog(session, last_turn_number(session.events) + 1, provenance)
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

    async def run(self) -> TurnOutcome:
        """Run the turn to its durable end."""
        self._log.append(
            "turn/start", {"turn": self._log.turn, "trigger": {"kind": "message", "source": _USER}}
        )
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
        self.flush_owed = True
        return TurnOutcome("error", message)

    # -- start ------------------------------------------------------------------------------

    def _veto(self) -> str | None:
        policy = self._agent.policy
        return None if policy is None else policy(text_of(self._blocks))

    def _accept_prompt(self) -> None:
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
            cancel=self.cancel,
        )
        self._ports.tasks.start_soon(self._agent_task, turn, name=f"agent of {self._session.id}")
        await self._stirred.wait()
        if not self._agent_done.is_set():
            with anyio.move_on_after(CANCEL_GRACE_S):
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
            return {"kind": "error", "step": self._log.step, "failure": failure.failure}
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
            self.flush_owed = not error.lost_session
            return TurnOutcome("error", str(error), lost_session=error.lost_session)
        if reason["kind"] != "error":
            return TurnOutcome(reason["kind"])
        message = reason["failure"]["message"] if "failure" in reason else reason["message"]
        lost = isinstance(failure, CheckpointError) and failure.lost_session
        return TurnOutcome("error", message, lost_session=lost)

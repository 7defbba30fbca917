"""One turn while it runs: its start, the agent in its cancel scope, its end.

Rule: turn-ends-name-their-reason.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from acp_server.turns.author_task import AuthorTask
from acp_server.turns.content import text_of
from acp_server.turns.errors import CheckpointError
from acp_server.turns.policy import veto_of
from acp_server.turns.run import TurnRun
from acp_server.turns.turn_end import TurnEnd, end_of, fault_of_ours, store_failed, unclosable
from acp_server.turns.turn_log import TurnLog
from session_core import APPEND

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from acp_server.turns.driver import TurnDriver
    from acp_server.turns.pending_event import PendingEvent
    from acp_server.turns.policy import PromptPolicy
    from acp_server.turns.ports import RunnerPorts
    from acp_server.turns.settings import SessionSettings
    from acp_server.turns.turn_end import StopKind, TurnOutcome
    from session_core import RequestHeaderRecorder, Session

_log = logging.getLogger(__name__)

CANCEL_GRACE_S = 3.0
"""How long a cancelled agent may take to end: it fits into the 5 s an exit may take.

Rule: cancel-is-bounded-in-time.
"""

_TITLE_WORDS = 5
_USER = {"kind": "user"}


class ActiveTurn:
    """Runs one prompt as one turn.

    Args:
        session: The live session; no turn is open in it.
        agent: Drives the turn.
        ports: The outside.
        blocks: The prompt.
        recorder: Decides about `request/header` events.
        settings: What is set in the session.
        has_title: Whether the session has a title, so that the prompt gives it none.
        cancel_grace_s: How long a cancelled agent may take to end.

    Raises:
        TurnNumberError: The log has no number for another turn.
    """

    def __init__(
        self,
        session: Session,
        agent: TurnDriver,
        ports: RunnerPorts,
        blocks: Sequence[Mapping[str, Any]],
        recorder: RequestHeaderRecorder,
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
        self._log = TurnLog(session, session.next_turn, provenance, settings)
        self._stop: StopKind | None = None
        self._task: AuthorTask | None = None

    # -- from outside ------------------------------------------------------------------------

    def cancel(self) -> None:
        """Ask the agent to stop; the turn ends `aborted`."""
        self._stop = self._stop or "aborted"
        if self._task is not None:
            self._task.cancel()

    def dispose(self) -> None:
        """Ask the agent to stop since the server does; the turn ends `disposed`."""
        self._stop = "disposed"
        self.cancel()

    @property
    def closed(self) -> bool:
        """Whether `turn/end` is in the log."""
        return self._log.closed

    def queue_message(self, event: PendingEvent) -> None:
        """Append a message from outside, see `TurnLog.queue_message`."""
        self._log.queue_message(event)

    def settings_changed(self) -> None:
        """Tell the model of a new preset, at the end of the step if one is open.

        Rule: model-hears-of-new-preset.
        """
        self._log.append_what_waits()

    # -- the turn ----------------------------------------------------------------------------

    async def run(self) -> TurnOutcome:
        """Run the turn to its durable end: the one way in which a turn ends.

        The end is decided when the agent has ended, or was asked to stop and its grace is over. The
        log is closed with it: open calls get results, the step and the turn end. Then the prompt is
        answered, once that is on disk.
        """
        self._append_start()
        end = await self._run_prompt()
        self._log.close(end.reason, clean=end.clean)
        try:
            await self._ports.durability.flush()
        except CheckpointError as error:
            return store_failed(error)
        return end.outcome

    def abandon(self, sentence: str) -> TurnOutcome:
        """Close a turn that could not be run to its end, so that the next one can begin.

        Where the log takes no end either, nobody can go on here: the next load closes the turn.
        """
        end = fault_of_ours(self._log, sentence)
        try:
            if not self._log.closed:
                self._log.close(end.reason, clean=False)
        except Exception:  # noqa: BLE001 - boundary, as the caller's
            _log.exception("the turn of %s cannot be closed", self._session.id)
            return unclosable(sentence)
        return end.outcome

    async def _run_prompt(self) -> TurnEnd:
        policy = self._agent.policy
        if policy is not None:
            veto = await self._ask_policy(policy)
            if isinstance(veto, BaseException) or self._stop is not None:
                # A policy that fails, or was not waited for, lets nothing through.
                return self._end_of(veto if isinstance(veto, BaseException) else None)
            if veto is not None:
                blocked = {"content": list(self._blocks), "source": _USER, "reason": veto}
                self._log.append("prompt/blocked", blocked)
                return TurnEnd.of("rejected", reason=veto)
        prompt_seq = self._append_prompt()
        try:
            await self._ports.durability.flush()
        except CheckpointError as error:
            return self._end_of(error)
        return self._end_of(await self._run_agent(prompt_seq))

    def _end_of(self, failure: BaseException | None) -> TurnEnd:
        return end_of(self._log, failure, self._stop, self._ports.ids.diagnostic_id)

    # -- start -------------------------------------------------------------------------------

    def _append_start(self) -> None:
        self._log.begin({"kind": "message", "source": _USER})
        self._settings.append_unstored(self._log.append_pending)

    def _append_prompt(self) -> int:
        self._log.append_what_waits()
        content = {"content": list(self._blocks), "source": _USER}
        message = self._log.append("user/message", content, APPEND)
        words = text_of(self._blocks).split()
        if words and not self._has_title:
            title = " ".join(words[:_TITLE_WORDS])
            source = {"kind": "fallback"}
            data = {"title": title, "messageSeqs": [message.seq], "source": source}
            self._log.append("session/title", data)
        return message.seq

    # -- code of the author ------------------------------------------------------------------

    async def _ask_policy(self, policy: PromptPolicy) -> str | BaseException | None:
        """Return the policy's reason to refuse the prompt, what left it, or None."""
        verdicts: list[str | None] = []

        async def ask() -> None:
            verdicts.append(await veto_of(policy, self._blocks))

        failure = await self._run_author("policy", ask)
        return failure or (verdicts[0] if verdicts else None)

    async def _run_agent(self, prompt_seq: int) -> BaseException | None:
        """Let the agent drive the turn; return what left it, once it has ended or is given up."""
        run = TurnRun(
            self._log,
            self._ports,
            self._settings,
            self._recorder,
            blocks=self._blocks,
            prompt_seq=prompt_seq,
            cancel=self.cancel,
        )
        return await self._run_author("agent", lambda: self._agent.drive_turn(run))

    async def _run_author(
        self, what: str, work: Callable[[], Awaitable[None]]
    ) -> BaseException | None:
        name = f"{what} of {self._session.id}"
        self._task = AuthorTask(self._ports.tasks, name, self._cancel_grace_s)
        if self._stop is not None:
            self._task.cancel()
        return await self._task.run(work)

"""Runs the turns of one session, one after the other: queue, cancel, ends.

Rules: cancel-covers-queued-prompts, prompts-queue-in-order.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from acp_server.turns.active_turn import CANCEL_GRACE_S, ActiveTurn
from acp_server.turns.errors import CheckpointError
from acp_server.turns.pending_event import PendingEvent
from acp_server.turns.pending_prompt import PendingPrompt
from acp_server.turns.settings import SessionSettings
from acp_server.turns.turn_end import TurnOutcome, store_failed, unclosable
from session_core import (
    APPEND,
    RequestHeaderRecorder,
    SessionCoreError,
    TurnNumberError,
    current_title,
    is_turn_open,
    own_turn,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from acp_server.turns.driver import TurnDriver
    from acp_server.turns.ports import RunnerPorts
    from session_core import Session

_log = logging.getLogger(__name__)

MAX_QUEUED = 16
"""Prompts that may wait behind a running turn; a client that sends more is out of step."""

_HISTORY_SLICE = 256
"""Messages of a long history derived between two turns of the event loop: some milliseconds."""

CANCELLED = TurnOutcome("aborted")
COMPLETED = TurnOutcome("completed")
DISPOSED = TurnOutcome("disposed")


class QueueFullError(Exception):
    """More prompts wait than the queue takes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(f"{limit} prompts are already waiting in this session")


class TurnRunner:
    """Owns the queue and the running turn of one session.

    Args:
        session: The live session.
        agent: Drives the turns.
        ports: The outside.
        cancel_grace_s: How long a cancelled agent may take to end.

    Attributes:
        settings: What is set in the session.
    """

    def __init__(
        self,
        session: Session,
        agent: TurnDriver,
        ports: RunnerPorts,
        *,
        cancel_grace_s: float = CANCEL_GRACE_S,
    ) -> None:
        self.settings = SessionSettings(session, agent)
        self._session = session
        self._agent = agent
        self._ports = ports
        self._cancel_grace_s = cancel_grace_s
        self._queue: deque[PendingPrompt] = deque()
        self._active: ActiveTurn | None = None
        self._active_prompt: PendingPrompt | None = None
        self._draining = False
        self._idle = anyio.Event()
        self._idle.set()
        self._disposed = False
        self._recorder = RequestHeaderRecorder()
        self._interruptible: anyio.CancelScope | None = None
        self._pending: list[PendingEvent] = []

    @property
    def busy(self) -> bool:
        """Whether a turn runs or waits."""
        return self._draining

    def submit(
        self,
        blocks: Sequence[Mapping[str, Any]],
        command: Callable[[], Awaitable[None]] | None = None,
    ) -> PendingPrompt:
        """Queue a prompt; nothing is logged before its turn comes.

        Args:
            blocks: The prompt.
            command: For a prompt that is a command: what to run when its turn comes, instead of a
                turn. It reports its own failures; what it raises is a fault.

        Raises:
            QueueFullError: `MAX_QUEUED` prompts wait already.
        """
        if len(self._queue) >= MAX_QUEUED:
            raise QueueFullError(MAX_QUEUED)
        prompt = PendingPrompt(blocks, command)
        if self._disposed:
            prompt.resolve(DISPOSED)
            return prompt
        self._queue.append(prompt)
        if not self._draining:
            self._draining = True
            self._idle = anyio.Event()
            self._ports.tasks.start_soon(self._drain, name=f"turns of {self._session.id}")
        return prompt

    def cancel(self) -> None:
        """Cancel what runs and every prompt received so far (cancel-covers-queued-prompts)."""
        self._drop_queue(CANCELLED)
        self._cancel_active()

    def cancel_prompt(self, prompt: PendingPrompt) -> None:
        """Cancel one prompt alone, running or waiting."""
        if prompt is self._active_prompt:
            self._cancel_active()
        elif prompt in self._queue:
            self._queue.remove(prompt)
            prompt.resolve(CANCELLED)

    # -- from outside of a turn -------------------------------------------------------------

    def change_setting(self, option_id: str, value: str | bool) -> bool:
        """Set an option or the preset, see `SessionSettings.change`; the caller flushes.

        Raises:
            SettingError: There is no such option, or it does not take this value.
        """
        changed = self.settings.change(option_id, value)
        if changed and self._active is not None and not self._active.closed:
            self._active.settings_changed()
        return changed

    def inject(self, content: Sequence[Mapping[str, Any]], source: Mapping[str, Any]) -> None:
        """Put a message before the model that the user did not write.

        Rule: injected-messages-part-no-call.

        Args:
            content: Its blocks.
            source: Who it comes from; not the user.

        Raises:
            ValueError: It comes from the user: that is what `submit` is for.
        """
        if source.get("kind") == "user":
            message = "an injected message cannot come from the user"
            raise ValueError(message)
        data = {"content": list(content), "source": source}
        self._queue_message(PendingEvent("user/message", data, APPEND))

    def add_context(
        self,
        content: Sequence[Mapping[str, Any]],
        source: Mapping[str, Any],
        envelope: str = "context",
    ) -> None:
        """Tell the model something about the world; `envelope` is `context` or `raw`.

        Rule: injected-messages-part-no-call.
        """
        data = {"content": list(content), "source": source, "envelope": envelope}
        self._queue_message(PendingEvent("context/message", data, APPEND))

    def append_between_turns(
        self, trigger: Mapping[str, Any], events: Sequence[PendingEvent]
    ) -> None:
        """Append events in a turn of their own; the caller flushes, and knows no turn is open."""
        with own_turn(self._session, trigger):
            self.settings.append_unstored(self._append)
            for event in events:
                self._append(event)

    def _append(self, event: PendingEvent) -> None:
        self._session.append(event.type, event.data, event.intent)

    def _queue_message(self, event: PendingEvent) -> None:
        if self._active is not None and not self._active.closed:
            self._active.queue_message(event)
        elif is_turn_open(self._session.events):
            # A command's, such as a compaction; nothing may get between its events.
            self._pending.append(event)
        else:
            trigger = {"kind": "injection", "source": event.data["source"]}
            self.append_between_turns(trigger, [event])
            self._ports.tasks.start_soon(self._flush_in_background)

    async def _flush_in_background(self) -> None:
        try:
            await self._ports.durability.flush()
        except CheckpointError as error:
            # Tried again before the next turn, whose prompt is told.
            _log.warning("session %s: %s", self._session.id, error)

    # -- the end ----------------------------------------------------------------------------

    async def dispose(self) -> None:
        """End for good: the running turn ends `disposed`, waiting prompts never start."""
        self._disposed = True
        self._drop_queue(DISPOSED)
        if self._active is not None:
            self._active.dispose()
        else:
            self._cancel_active()
        await self._idle.wait()

    async def settle(self) -> None:
        """Return when no turn runs or waits."""
        await self._idle.wait()

    def _drop_queue(self, outcome: TurnOutcome) -> None:
        while self._queue:
            self._queue.popleft().resolve(outcome)

    def _cancel_active(self) -> None:
        if self._active is not None:
            self._active.cancel()
        elif self._interruptible is not None:
            self._interruptible.cancel()

    async def _drain(self) -> None:
        try:
            while self._queue:
                prompt = self._queue.popleft()
                self._active_prompt = prompt
                run = self._run if prompt.command is None else self._run_command
                outcome = await run(prompt)
                if outcome.lost_session:
                    # Nobody may write here any more; the next load opens it afresh
                    # (failed-checkpoint-ends-turn).
                    self._disposed = True
                    self._drop_queue(outcome)
                prompt.resolve(outcome)
                if prompt.answered is not None:
                    await prompt.answered.wait()
        finally:
            self._active = self._active_prompt = None
            self._draining = False
            self._drop_queue(DISPOSED)
            self._idle.set()

    async def _run_command(self, prompt: PendingPrompt) -> TurnOutcome:
        assert prompt.command is not None  # noqa: S101 - see _drain
        # Of another process, that is: here no turn runs while a command does
        # (looking-takes-no-lock).
        runs_elsewhere = is_turn_open(self._session.events)
        with anyio.CancelScope() as scope:
            self._interruptible = scope
            try:
                await prompt.command()
            except Exception:  # noqa: BLE001 - a fault of ours must not end the queue (B86)
                _log.exception("a command of %s failed", self._session.id)
        self._interruptible = None
        if is_turn_open(self._session.events) and not runs_elsewhere:
            _log.error("a command of %s has left a turn open", self._session.id)
            return unclosable("the turn of the command cannot be closed")
        self._append_what_waited()
        return CANCELLED if scope.cancel_called else COMPLETED

    def _append_what_waited(self) -> None:
        waiting, self._pending = self._pending, []
        for event in waiting:
            try:
                self._queue_message(event)
            except SessionCoreError as error:
                # Who sent it has gone on long since; the queue must (B86).
                _log.warning(
                    "session %s: a message to the model was refused: %s", self._session.id, error
                )

    async def _run(self, prompt: PendingPrompt) -> TurnOutcome:
        with anyio.CancelScope() as scope:
            self._interruptible = scope
            refusal = await self._settle_log()
            while not self._session.prepare_messages(_HISTORY_SLICE):
                await anyio.lowlevel.checkpoint()
        self._interruptible = None
        if scope.cancel_called:
            return CANCELLED
        if refusal is not None:
            return refusal
        try:
            active = ActiveTurn(
                self._session,
                self._agent,
                self._ports,
                prompt.blocks,
                self._recorder,
                self.settings,
                has_title=current_title(self._session.events) is not None,
                cancel_grace_s=self._cancel_grace_s,
            )
        except TurnNumberError as error:
            return TurnOutcome("error", str(error))
        self._active = active
        try:
            outcome = await active.run()
        except Exception:  # noqa: BLE001 - boundary
            # A fault of ours, not of the agent: the prompt is answered all the same (B86).
            diagnostic_id = self._ports.ids.diagnostic_id()
            _log.exception("turn of %s failed, log entry %s", self._session.id, diagnostic_id)
            outcome = active.abandon(f"the turn could not be run, log entry {diagnostic_id}")
            if not outcome.lost_session:
                outcome = await self._settle_log() or outcome
        self._active = None
        return outcome

    async def _settle_log(self) -> TurnOutcome | None:
        """Take the log, and make durable what a failed checkpoint left, or refuse the prompt.

        Rule: failed-checkpoint-ends-turn.

        The log must not grow while the disk refuses or another process has it
        (looking-takes-no-lock). With the log held and nothing left this costs nothing.
        """
        try:
            await self._ports.durability.hold()
            await self._ports.durability.flush()
        except CheckpointError as error:
            return replace(store_failed(error), refusal=error)
        return None

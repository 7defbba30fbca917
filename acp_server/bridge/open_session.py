"""One open session: the live log with its turns, its updates and its durability."""

from __future__ import annotations

import logging
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from acp_server.agents.commands import command_line_from
from acp_server.agents.presenters import REFERENCE_PRESENTERS
from acp_server.bridge.cards import ToolCards
from acp_server.bridge.client_port import SessionClient
from acp_server.bridge.command_runner import CommandRunner
from acp_server.bridge.durability import SessionDurability
from acp_server.bridge.frames import FrameBuilder
from acp_server.bridge.messages import usage_update_from
from acp_server.bridge.projector import LiveProjector
from acp_server.bridge.replay import Replay
from acp_server.bridge.setting_views import config_options, mode_state
from acp_server.bridge.update_gate import UpdateGate
from acp_server.rpc.errors import RpcError
from acp_server.turns.content import pieces
from acp_server.turns.ports import RunnerPorts
from acp_server.turns.presets import MODE_OPTION_ID
from acp_server.turns.runner import TurnRunner
from acp_server.turns.settings import SettingError
from acp_server.wire import updates
from session_core import TurnNumberError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from anyio.abc import TaskGroup

    from acp_server.agents.agent import Agent
    from acp_server.bridge.opening_warnings import OpeningWarning
    from acp_server.rpc.peer import Peer
    from acp_server.rpc.table import RequestContext
    from acp_server.turns.ids import IdSource
    from acp_server.turns.pending_prompt import PendingPrompt
    from acp_server.wire.handshake import ClientCapabilities
    from persistence.repository import SessionRepository
    from session_core import EventView, Session, SessionStore

_log = logging.getLogger(__name__)

REPLAY_SLICE = 64
"""Frames of a replay between two looks at the event loop: other sessions answer meanwhile.

Rule: load-replays-before-response.
"""


class OpenSession:
    """Composes what one session needs while it is open, and takes it apart again.

    Attributes:
        session: The live log.
        runner: Its turns and settings.
        violations: Where its stored log was out of order when it was opened.
    """

    def __init__(
        self,
        session: Session,
        agent: Agent,
        *,
        peer: Peer,
        capabilities: ClientCapabilities,
        store: SessionStore,
        persistence: SessionRepository,
        ids: IdSource,
        tasks: TaskGroup,
        cancel_grace_s: float,
    ) -> None:
        self.session = session
        self.violations = store.violations(session)
        self._agent = agent
        self._peer = peer
        self._capabilities = capabilities
        self._persistence = persistence
        self._frames = FrameBuilder(session.id)
        self._gate = UpdateGate(peer.send)
        self._replayed = anyio.Event()
        self._replayed.set()
        self._tasks = tasks
        self._caught_up = anyio.Event()
        self._caught_up.set()
        self._behind: tuple[int, EventView] | None = None
        self._unanswered = 0
        self._all_answered = anyio.Event()
        cards = self._new_cards()
        self._durability = SessionDurability(persistence, session, self.caught_up)
        self._detach = [
            store.observe(session, LiveProjector(self._frames, cards, self._gate)),
            persistence.on_durable(session, self._gate.on_durable),
        ]
        self.runner = TurnRunner(
            session,
            agent,
            RunnerPorts(
                client=SessionClient(peer, session.id, capabilities, cards),
                durability=self._durability,
                pace=peer,
                ids=ids,
                tasks=tasks,
            ),
            cancel_grace_s=cancel_grace_s,
        )
        persistence.attend(session, is_busy=lambda: self.runner.busy, read_on=self._read_on)
        self._commands = CommandRunner(
            session,
            agent,
            runner=self.runner,
            store=store,
            persistence=persistence,
            durability=self._durability,
            show=self._show,
        )

    # -- prompts ----------------------------------------------------------------------------

    def submit(self, blocks: Sequence[Mapping[str, Any]]) -> PendingPrompt:
        """Queue a prompt, or the command that it is.

        Raises:
            QueueFullError: Too many wait already.
        """
        line = command_line_from(blocks)
        if line is None:
            return self.runner.submit(blocks)
        return self.runner.submit(blocks, partial(self._commands.run, line))

    def track_response(self, context: RequestContext, prompt: PendingPrompt) -> None:
        """Note that a prompt is to be answered before the next one runs, or the session closes."""
        self._unanswered += 1
        prompt.answered = anyio.Event()
        context.after_response(prompt.answered.set)
        context.after_response(self._answered)

    async def answered(self) -> None:
        """Return when no prompt waits for its answer."""
        while self._unanswered:
            await self._all_answered.wait()

    @property
    def is_replaying(self) -> bool:
        """Whether a load or a catching up holds this session's updates back."""
        return not self._replayed.is_set()

    async def wait_until_replayed(self) -> None:
        """Return when nothing holds this session's updates back: a response comes behind them."""
        while self.is_replaying:  # a wait on a set event would let the next turn begin
            await self._replayed.wait()

    def release_updates(self) -> None:
        """Send what waits for a flush that has failed; an error response follows.

        Rule: checkpoints-stand-before-effects.
        """
        self._gate.release()

    def _answered(self) -> None:
        self._unanswered -= 1
        if not self._unanswered:
            self._all_answered.set()
            self._all_answered = anyio.Event()

    # -- settings ---------------------------------------------------------------------------

    async def change_setting(self, option_id: str, value: str | bool, *, by_mode: bool) -> None:
        """Set an option or the preset: in the log, shown, and durable on return.

        Rule: settings-are-logged-at-once.

        Args:
            option_id: The option; `mode` for the preset.
            value: Its new value.
            by_mode: Whether the client used `session/set_mode`, which answers nothing.

        Raises:
            RpcError: The agent does not offer this.
            CheckpointError: Another process has the session, and nothing was set; or it is set and
                the store failed.
        """
        if isinstance(value, bool) and not self._capabilities.boolean_options:
            raise RpcError.invalid_params(f"option {option_id!r} does not take {value!r}")
        try:
            self.runner.settings.check(option_id, value)
        except SettingError as error:
            raise RpcError.invalid_params(str(error)) from error
        await self._durability.take()
        try:
            changed = self.runner.change_setting(option_id, value)
        except TurnNumberError as error:
            raise RpcError.internal(str(error)) from error
        await self.caught_up()
        if changed and option_id == MODE_OPTION_ID:
            self._notify(updates.current_mode_update(str(value)))
            if by_mode:
                self._notify(updates.config_option_update(self.config_options()))
        await self._durability.flush()

    def config_options(self) -> list[dict[str, Any]]:
        """Return the complete state of the config options."""
        booleans = self._capabilities.boolean_options
        return config_options(self._agent, self.runner.settings, booleans=booleans)

    def modes(self) -> dict[str, Any] | None:
        """Return the modes and which one is set, or None for an agent without."""
        return mode_state(self._agent, self.runner.settings)

    # -- opening ----------------------------------------------------------------------------

    async def replay(self) -> None:
        """Send the whole log as updates, as of now; a running turn's frames wait for `end_replay`.

        Nothing else holds the session's updates back.
        """
        self._behind = None
        await self._replay(0, self.session.events)

    def end_replay(self) -> None:
        """Let a running turn's frames go on after a replay."""
        self._gate.end_replay(self._persistence.durable_seq(self.session))
        self._replayed.set()

    async def caught_up(self) -> None:
        """Return when the client has been sent what the session read on, if it did.

        Rule: looking-takes-no-lock.
        """
        if not self._caught_up.is_set():
            await self._caught_up.wait()

    def _read_on(self, known: int) -> None:
        """Take note that the log has grown by what another process has written."""
        shown = known if self._behind is None else self._behind[0]
        self._behind = shown, self.session.events
        if self._caught_up.is_set():
            self._caught_up = anyio.Event()
            self._tasks.start_soon(self._catch_up)
        if self.runner.settings.refold():
            if self.runner.settings.mode is not None:
                self._notify(updates.current_mode_update(self.runner.settings.mode))
            self._notify(updates.config_option_update(self.config_options()))

    async def _catch_up(self) -> None:
        """Send what was read on, unless a load sends it anyway."""
        try:
            await self.wait_until_replayed()
            while self._behind is not None:
                (shown, events), self._behind = self._behind, None
                await self._replay(shown, events)
        except Exception:  # noqa: BLE001 - one session's trouble must not stop the others
            _log.exception("what others wrote in %s could not be shown", self.session.id)
        finally:
            if self.is_replaying:
                self.end_replay()
            self._caught_up.set()

    async def _replay(self, shown: int, events: EventView) -> None:
        self._gate.begin_replay()
        self._replayed = anyio.Event()
        records = chain(events.records(0, shown), events.records(shown))
        replay = Replay(self._frames, self._new_cards(), shown)
        for number, frame in enumerate(replay.frames(records), 1):
            self._peer.send(frame)
            if self._peer.congested:
                await self._peer.room()
            elif number % REPLAY_SLICE == 0:
                await anyio.lowlevel.checkpoint()

    def send_initial_state(self, warnings: Sequence[OpeningWarning] = ()) -> None:
        """Send what follows the response that has opened the session.

        Rules: load-replays-before-response, warnings-stand-in-meta.
        """
        commands = [
            updates.available_command(command.name, command.description, command.hint)
            for command in self._commands.commands
        ]
        self._notify(updates.available_commands_update(commands))
        self.show_usage()
        if self._capabilities.notices:
            for warning in warnings:
                self._notify(updates.notice("warning", warning.message))

    def show_usage(self) -> None:
        """Send the state of the model's context window, if it is known."""
        usage = usage_update_from(self.session.events, self._agent.context_size)
        if usage is not None:
            self._gate.emit(self._frames.update(usage))

    # -- the end ----------------------------------------------------------------------------

    async def dispose(self) -> None:
        """End the running turn `disposed`; waiting prompts never start."""
        await self.runner.dispose()

    def detach(self) -> None:
        """Stop observing the session."""
        for detach in self._detach:
            detach()

    # -- inside -----------------------------------------------------------------------------

    def _show(self, text: str) -> None:
        """Show the output of a command, as the agent's; it is no message of the log."""
        for piece in pieces(text):
            block = {"type": "text", "text": piece}
            self._gate.emit(self._frames.update(updates.agent_message_chunk(block)))

    def _notify(self, update: Mapping[str, Any]) -> None:
        """Send what is no part of a turn: it does not wait for a load or a flush."""
        self._peer.send(self._frames.update(update))

    def _new_cards(self) -> ToolCards:
        terminal_cards = self._capabilities.terminal_output_meta
        return ToolCards(
            self.session.header.cwd,
            terminal_cards=terminal_cards,
            presenters=self._agent.presenters or REFERENCE_PRESENTERS,
        )

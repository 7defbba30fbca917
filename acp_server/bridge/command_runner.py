"""Runs the slash commands of one session: no model, no turn, output never logged.

Rule: commands-leave-no-log.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread

from acp_server.agents.builtin_commands import commands_of
from acp_server.agents.commands import CommandCall, CommandError
from acp_server.turns.content import clean_text
from acp_server.turns.errors import CheckpointError
from acp_server.turns.pending_event import PendingEvent
from persistence.errors import PersistenceError
from session_core import TurnNumberError, compact_range, last_event_of, state_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from acp_server.agents.agent import Agent
    from acp_server.agents.commands import CommandLine
    from acp_server.turns.ports import DurabilityPort
    from acp_server.turns.runner import TurnRunner
    from acp_server.turns.settings import SessionSettings
    from persistence.repository import SessionRepository
    from session_core import Session, SessionStore

_log = logging.getLogger(__name__)

_TITLE_TRIGGER: Final = {"kind": "session-title"}
_MIN_COMPACTED: Final = 2
"""One message alone is no shorter as a summary."""


class CommandRunner:
    """The commands of one session, and what they may do to it; see `CommandSession`.

    Args:
        session: The live session; while a command runs no turn does.
        agent: Declares commands.
        runner: Of the session.
        store: Where forks are made.
        persistence: Where they are kept.
        durability: Of the session.
        show: Shows text to the user, as the agent's.
    """

    def __init__(
        self,
        session: Session,
        agent: Agent,
        *,
        runner: TurnRunner,
        store: SessionStore,
        persistence: SessionRepository,
        durability: DurabilityPort,
        show: Callable[[str], None],
    ) -> None:
        self.id = session.id
        self.cwd = session.header.cwd
        self.commands = commands_of(agent)
        self._session = session
        self._agent = agent
        self._runner = runner
        self._store = store
        self._persistence = persistence
        self._durability = durability
        self._show = show
        self._refusal: CheckpointError | None = None

    @property
    def settings(self) -> SessionSettings:
        """What is set in the session."""
        return self._runner.settings

    async def run(self, line: CommandLine) -> None:
        """Run a command and show its text; a failure is text too."""
        command = next((known for known in self.commands if known.name == line.name), None)
        if command is None:
            self._show(f"Error: unknown command: {line.text}")
            return
        # For what a command appends at once; one that only reads needs no lock
        # (looking-takes-no-lock).
        self._refusal = None
        try:
            await self._durability.hold(wait=False)
        except CheckpointError as error:
            self._refusal = error
        try:
            text = await command.run(CommandCall(line.argument, self))
        except (CommandError, TurnNumberError) as error:
            text = f"Error: {error}"
        except Exception:  # noqa: BLE001 - boundary: a command is the agent's code
            _log.exception("command %r failed", command.name)
            text = "Error: command failed"
        if text:
            self._show(clean_text(text))

    # -- what a command may do --------------------------------------------------------------

    async def set_title(self, title: str) -> None:
        """Name the session; durable on return.

        Raises:
            CommandError: The store failed, or another process has the session.
        """
        await self._hold()
        data = {"title": clean_text(title), "messageSeqs": [], "source": {"kind": "user"}}
        self._runner.append_between_turns(_TITLE_TRIGGER, [PendingEvent("session/title", data)])
        await self._flush()

    async def fork(self) -> str:
        """Make a session with the same history and return its id; it is stored and not open.

        Raises:
            CommandError: There is no history yet, or the store failed.
        """
        end = last_event_of(self._session.events, ("turn/end",))
        if end is None:
            message = "there is nothing to fork yet"
            raise CommandError(message)
        inherited = self._session.events.prefix(end.seq + 1)
        inherited.state = await anyio.to_thread.run_sync(state_of, inherited)
        child = self._store.fork(self._session, end.seq, inherited=inherited)
        try:
            await self._persistence.flush(child)
            with anyio.CancelScope(shield=True):
                await self._persistence.release(child)
        except PersistenceError as error:
            raise CommandError(str(error)) from error
        finally:
            self._store.detach(child)
        return child.id

    async def compact(self) -> int:
        """Put a summary in the place of the model's history; return how many messages it replaces.

        Raises:
            CommandError: There is nothing to compact, the store failed, or another process has the
                session.
        """
        await self._hold()
        nodes = list(self._session.surface.nodes)
        if self._agent.summarize is None or len(nodes) < _MIN_COMPACTED:
            message = "there is nothing to compact"
            raise CommandError(message)
        try:
            await compact_range(self._session, nodes[0], nodes[-1], self._agent.summarize)
        finally:
            await self._flush()
        return len(nodes)

    def add_context(
        self, content: str, source: Mapping[str, Any] | None = None, envelope: str = "context"
    ) -> None:
        """Tell the model something that the user did not say (injected-messages-part-no-call).

        Raises:
            CommandError: Another process has the session.
        """
        if self._refusal is not None:
            raise CommandError(str(self._refusal))
        block = {"type": "text", "text": clean_text(content)}
        said_by = source or {"kind": "plugin", "plugin": self._agent.name}
        self._runner.add_context([block], said_by, envelope)

    async def _hold(self) -> None:
        try:
            await self._durability.hold()
        except CheckpointError as error:
            raise CommandError(str(error)) from error
        self._refusal = None

    async def _flush(self) -> None:
        try:
            await self._durability.flush()
        except CheckpointError as error:
            raise CommandError(str(error)) from error

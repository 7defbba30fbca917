"""One open session: the live log with its turns, its updates and its durability."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import anyio.lowlevel

from acp_server.agents.errors import CheckpointError
from acp_server.agents.runner import RunnerPorts, TurnRunner
from acp_server.bridge.cards import ToolCards
from acp_server.bridge.client_port import SessionClient
from acp_server.bridge.frames import FrameBuilder
from acp_server.bridge.outlet import SessionOutlet
from acp_server.bridge.projector import LiveProjector
from acp_server.bridge.replay import Replay
from persistence.errors import (
    PersistenceError,
    SessionChangedError,
    SessionCollisionError,
    SessionLockedError,
)

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from acp_server.agents.agent import Agent
    from acp_server.agents.ids import IdSource
    from acp_server.rpc.peer import Peer
    from acp_server.wire.handshake import ClientCapabilities
    from persistence.coordinator import SessionPersistence
    from session_core import Session, SessionStore

_log = logging.getLogger(__name__)

REPLAY_SLICE = 64
"""Frames of a replay between two looks at the event loop: other sessions answer meanwhile (Z20)."""


class SessionDurability:
    """The checkpoint of one session, in the words of the agents' room."""

    def __init__(self, persistence: SessionPersistence, session: Session) -> None:
        self._persistence = persistence
        self._session = session

    async def flush(self) -> None:
        """Return when all that was appended is durable.

        Raises:
            CheckpointError: It is not.
        """
        try:
            await self._persistence.flush(self._session)
        except PersistenceError as error:
            lost = isinstance(
                error, SessionChangedError | SessionLockedError | SessionCollisionError
            )
            raise CheckpointError(str(error), lost_session=lost) from error
        except Exception as error:
            # A third party's backend may raise anything; the turn must end in order (B86).
            _log.exception("the store of %s failed", self._session.id)
            sentence = "the store failed unexpectedly"
            raise CheckpointError(sentence) from error


class OpenSession:
    """Composes what one session needs while it is open, and takes it apart again.

    Attributes:
        session: The live log.
        runner: Its turns.
    """

    def __init__(
        self,
        session: Session,
        agent: Agent,
        *,
        peer: Peer,
        capabilities: ClientCapabilities,
        store: SessionStore,
        persistence: SessionPersistence,
        ids: IdSource,
        tasks: TaskGroup,
    ) -> None:
        self.session = session
        self._peer = peer
        self._persistence = persistence
        self._terminal_cards = capabilities.terminal_output_meta
        self._frames = FrameBuilder(session.id)
        self._outlet = SessionOutlet(peer.send)
        cards = self._new_cards()
        self._durability = SessionDurability(persistence, session)
        self._detach = [
            store.observe(session, LiveProjector(self._frames, cards, self._outlet)),
            persistence.on_durable(session, self._outlet.on_durable),
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
        )

    def release_updates(self) -> None:
        """Send what waits for a flush that has failed; an error response follows (Z7)."""
        self._outlet.release()

    async def replay(self) -> None:
        """Send the whole log as updates, as of now; a running turn's frames wait for `resume`."""
        self._outlet.begin_replay()
        records = self.session.events.records()
        for number, frame in enumerate(Replay(self._frames, self._new_cards()).frames(records), 1):
            self._peer.send(frame)
            if self._peer.congested:
                await self._peer.room()
            elif number % REPLAY_SLICE == 0:
                await anyio.lowlevel.checkpoint()

    def resume(self) -> None:
        """Let a running turn's frames go on after a replay."""
        self._outlet.end_replay(self._persistence.durable_seq(self.session))

    async def dispose(self) -> None:
        """End the running turn `disposed`; waiting prompts never start."""
        await self.runner.dispose()

    def detach(self) -> None:
        """Stop observing the session."""
        for detach in self._detach:
            detach()

    def _new_cards(self) -> ToolCards:
        return ToolCards(self.session.header.cwd, terminal_cards=self._terminal_cards)

"""The live sessions: which events are pending, and when they reach the disk.

Rule: failed-flush-keeps-events.

Follows a `SessionStore`. A pending event is not copied: events are immutable and stay in the
session, so that what is pending is what lies behind the slot's cursor.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

import anyio

from persistence.errors import (
    PersistenceError,
    SessionChangedError,
    SessionCollisionError,
    SessionLiveError,
    SessionLockedError,
    SessionNotFoundError,
)
from persistence.ownership import acquire_if_resumed, become_owner
from persistence.slots import LiveSession
from persistence.storing import store_batch
from persistence.write_behind import WriteBehind, starts_write_behind
from session_core import SessionExistsError, StoreListener

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from persistence.holding import WriteHolding
    from persistence.opened import LoadedSession
    from persistence.slots import SessionSlot, SessionSlots
    from persistence.storage import StorageBackend
    from session_core import Event, Session, SessionStore

_logger = logging.getLogger(__name__)


class LiveSessions(StoreListener):
    """Keeps every live session of a store durable."""

    def __init__(
        self,
        backend: StorageBackend,
        store: SessionStore,
        slots: SessionSlots,
        tasks: TaskGroup,
        window_s: float,
        holding: WriteHolding,
    ) -> None:
        self._backend = backend
        self._store = store
        self._slots = slots
        self._tasks = tasks
        self._holding = holding
        self._write_behind = WriteBehind(tasks, window_s, self._drain)
        self._live: dict[str, LiveSession] = {}
        self._retiring: set[LiveSession] = set()

    def require(self, session: Session) -> LiveSession:
        """Return what is known of a live session.

        Raises:
            SessionNotFoundError: It is not live in the store that is followed.
        """
        live = self._live.get(session.id)
        if live is None or live.session is not session:
            raise SessionNotFoundError(session.id)
        return live

    async def flush(self, session: Session) -> None:
        """See `SessionRepository.flush`."""
        live = self.require(session)
        if live.lost is not None:
            raise live.lost
        target = session.seq
        if live.durable < target:
            await self._drain(live, target)

    async def hold(self, session: Session, *, wait: bool = True) -> None:
        """See `SessionRepository.hold`."""
        live = self.require(session)
        if live.is_released:
            async with live.slot.queue:
                await self._take_queued(live, wait=wait)
        if live.lost is not None:
            raise live.lost
        self._holding.use(live)

    def go_live(self, slot: SessionSlot, loaded: LoadedSession) -> Session:
        """Make a stored session live: it owns its id from the start; the slot's queue is held.

        Raises:
            SessionLiveError: The id is live already.
            Exception: What a listener of the store vetoed it with.
        """
        session = self._store.prepare(slot.session_id, header=loaded.header, seed=loaded.log)
        try:
            self._store.enter(session)
        except SessionExistsError as error:
            raise SessionLiveError(session.id, "be opened again") from error
        live = self._add(session)
        slot.stands_at(loaded)
        slot.owner, slot.loaded = live, None
        try:
            self._store.announce(session)
        except BaseException:
            live.closed = True
            if self._live.pop(session.id, None) is not None:
                self._forget(live)
            raise
        self._holding.use(live)
        return session

    async def settled_owner(self, slot: SessionSlot) -> LiveSession | None:
        """Return who owns a slot, once a session that is on its way out is out; its queue is held.

        Raises:
            PersistenceError: What is left of that session could not be stored.
        """
        if slot.owner in self._retiring:
            await self._retire_queued(slot.owner)
        return slot.owner

    async def drain_queued(self, live: LiveSession) -> None:
        """Store everything that is pending; the slot's queue is held.

        Raises:
            PersistenceError: See `flush`.
        """
        slot, session = live.slot, live.session
        if not live.pending:
            return
        # Not cancelled half-way: what the disk has and what we believe it has must agree.
        with anyio.CancelScope(shield=True):
            try:
                if slot.owner is not live:
                    await become_owner(self._backend, live)
                elif live.is_released:
                    await self._take_queued(live)
                # Taken here, on the loop: the log may grow while a thread encodes this.
                if live.pending:
                    records = list(session.events.records(slot.cursor))
                    await store_batch(self._backend, slot, records)
            except (SessionChangedError, SessionLockedError, SessionCollisionError) as error:
                # Who has it only for a while leaves what is pending here where it is.
                if slot.owner is not live or not isinstance(error, SessionLockedError):
                    await self._lose(live, error)
                raise
        live.failure_logged = False
        self._holding.use(live)
        _tell_durable(live)

    def is_lost(self, session: Session) -> bool:
        """See `SessionRepository.is_lost`."""
        live = self._live.get(session.id)
        return live is not None and live.session is session and live.lost is not None

    def flush_soon(self, session: Session) -> None:
        """See `SessionRepository.flush_soon`."""
        live = self.require(session)
        if live.pending:
            self._write_behind.flush_soon(live)

    async def release(self, session: Session, *, discard: bool = False) -> None:
        """See `SessionRepository.release`."""
        live = self._live.get(session.id)
        if live is None or live.session is not session:
            return
        await self._retire(live, discard=discard)
        # Events that came meanwhile belong to nobody; a session of the same id may have come too.
        if self._live.get(session.id) is live:
            del self._live[session.id]
        self._forget(live)

    async def retire_all(self) -> list[Exception]:
        """Store the rest of every session and let it go; return what failed."""
        errors: list[Exception] = []
        for live in [*self._retiring, *self._live.values()]:
            try:
                await self._retire(live)
            except PersistenceError as error:
                if live.lost is None:
                    errors.append(error)
            finally:
                live.unobserve()
        self._retiring.clear()
        self._live.clear()
        return errors

    # The store's listener.

    def on_created(self, session: Session) -> None:
        """Follow a session that goes live; veto one whose id is just being loaded."""
        live = self._live.get(session.id)
        if live is None or live.session is not session:
            if self._slots.get(session.id).loading:
                raise SessionCollisionError(session.id, "it is being loaded")
            live = self._add(session)
            acquire_if_resumed(live)
        # An observer of this session alone spares every streamed token a look-up by id.
        live.unobserve = self._store.observe(session, partial(self._follow, live))
        if live.pending:
            self._write_behind.schedule_flush(live)

    async def on_write(self, session: Session) -> None:
        """Take the right to write."""
        await self.hold(session)

    async def on_flush(self, session: Session) -> None:
        """Make a checkpoint."""
        await self.flush(session)

    def on_disposed(self, session: Session) -> None:
        """Store the rest of a session in the background, then let it go."""
        live = self._live.get(session.id)
        if live is None or live.session is not session:
            return
        del self._live[session.id]
        self._retiring.add(live)
        self._tasks.start_soon(self._retire_later, live)

    def _add(self, session: Session) -> LiveSession:
        slot = self._slots.get(session.id)
        slot.users += 1
        live = self._live[session.id] = LiveSession(session, slot)
        return live

    async def _take_queued(self, live: LiveSession, *, wait: bool = True) -> None:
        """Take the right to write again, unless somebody did meanwhile; the queue is held."""
        if live.lost is not None or not live.is_released:
            return
        try:
            known = await self._holding.take(live, wait=wait)
        except SessionChangedError as error:
            await self._lose(live, error)
            raise
        _tell_durable(live)
        if known is not None:
            live.read_on(known)

    def _follow(self, live: LiveSession, event: Event) -> None:
        """Remember that something is pending; this runs for every streamed token."""
        if live.timer is not None and event.type == "assistant/chunk":
            return
        if starts_write_behind(event.type):
            self._write_behind.flush_soon(live)
        else:
            self._write_behind.schedule_flush(live)

    async def _drain(self, live: LiveSession, target: int | None = None) -> None:
        """Store everything that is pending; with a target, unless a former write got that far."""
        async with live.slot.queue:
            if live.lost is not None:
                raise live.lost
            if not live.closed and live.durable < (live.session.seq if target is None else target):
                await self.drain_queued(live)

    async def _lose(self, live: LiveSession, error: PersistenceError) -> None:
        """Give up a session that somebody else's writes have overtaken (lost-session-is-closed)."""
        if live.lost is not None:
            return
        _logger.warning("%s; %d events are dropped", error, live.pending)
        live.lost = error
        if live.slot.owner is live:
            await live.slot.release()

    async def _retire(self, live: LiveSession, *, discard: bool = False) -> None:
        """Store the rest of a session and give everything of it back."""
        async with live.slot.queue:
            await self._retire_queued(live, discard=discard)

    async def _retire_queued(self, live: LiveSession, *, discard: bool = False) -> None:
        if not discard:
            await self.drain_queued(live)
        live.closed = True
        live.unobserve()
        if live.slot.owner is live:
            await live.slot.release()

    async def _retire_later(self, live: LiveSession) -> None:
        try:
            await self._retire(live)
        except PersistenceError as error:
            if live.lost is None:
                _logger.warning("%s; it is tried again at the end", error)
                return
        except Exception:
            # A failure in the background must not end the task group, and all sessions with it.
            _logger.exception("session %r could not be let go", live.session.id)
            return
        self._retiring.discard(live)
        self._forget(live)

    def _forget(self, live: LiveSession) -> None:
        live.slot.users -= 1
        self._slots.drop_if_idle(live.slot)


def _tell_durable(live: LiveSession) -> None:
    durable = live.durable
    for listener in live.listeners:
        try:
            listener(durable)
        except Exception:
            _logger.exception("a listener to session %r failed", live.session.id)

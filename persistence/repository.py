"""The session store as the server uses it, over whatever backend.

Rules: operations-queue-per-session, failed-flush-keeps-events.

Owns the ten methods and the order of operations: those on one session id run one after the other,
as they came; different ids never wait for each other. Live sessions are kept by `LiveSessions`;
what touches a backend is in `storing` and `ownership`. Not thread-safe: one event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import anyio

from persistence.errors import (
    PersistenceError,
    SequenceError,
    SessionCollisionError,
    SessionLiveError,
    SessionNotFoundError,
    StoreShutdownError,
)
from persistence.holding import WriteHolding
from persistence.live import LiveSessions
from persistence.opened import LoadedSession, OpenedSession
from persistence.slots import SessionSlots
from persistence.storing import is_stored, load_and_repair, read_stored, repair, store_batch
from session_core import (
    CORE_VOCABULARY,
    Event,
    compute_closers,
    event_from_json,
    refuse_stored_legacy,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from anyio.abc import TaskGroup

    from persistence.slots import LiveSession, SessionSlot
    from persistence.storage import EntryPage, Location, StorageBackend
    from session_core import Session, SessionHeader, SessionStore

PAGE_SIZE = 50
# what a SIGKILL may take of a text that is still streaming (important-events-start-flush)
WINDOW_MS = 200

# Clients kill an agent 5 s after they closed its input; what is not stored by then is lost anyway.
_TEARDOWN_S = 4.0


class SessionRepository:
    """Keeps the live sessions of a `SessionStore` in a backend, and reads stored ones.

    An async context manager: while it is open it follows the store; leaving it stores what is
    pending, releases every lock and closes the backend. Leaving raises `StoreShutdownError` if
    anything could not be stored.

    Args:
        backend: Where sessions are kept.
        store: Whose live sessions are kept.
        window_ms: How long an event may wait that no checkpoint asks for.
        sleep_until: Waits until a time of the event loop; the lock of a session that was not used
            until then is given back.
    """

    def __init__(
        self,
        backend: StorageBackend,
        store: SessionStore,
        *,
        window_ms: int = WINDOW_MS,
        sleep_until: Callable[[float], Awaitable[object]] = anyio.sleep_until,
    ) -> None:
        self._backend = backend
        self._sleep_until = sleep_until
        self._store = store
        self._window_s = window_ms / 1000
        self._slots = SessionSlots()
        self._tasks: TaskGroup | None = None
        self._opened: LiveSessions | None = None
        self._unsubscribe: Callable[[], None] | None = None

    async def __aenter__(self) -> Self:
        self._tasks = await anyio.create_task_group().__aenter__()
        self._holding = WriteHolding(self._backend, self._tasks, self._sleep_until)
        self._opened = LiveSessions(
            self._backend, self._store, self._slots, self._tasks, self._window_s, self._holding
        )
        self._unsubscribe = self._store.subscribe(self._opened)
        return self

    async def __aexit__(self, *_exc: object) -> None:
        if self._unsubscribe is not None:
            self._unsubscribe()
        errors = await self._shut_down()
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()
            await self._tasks.__aexit__(None, None, None)
        if errors:
            raise StoreShutdownError(errors)

    # Stored sessions.

    def locate(self, header: SessionHeader) -> Location | None:
        """Return where the session of this header is or would be stored, without any I/O."""
        return self._backend.locate(header)

    async def create(self, header: SessionHeader) -> None:
        """Register a session that `append` will fill; nothing is stored before that.

        Raises:
            SessionCollisionError: The id is open here or stored already.
        """
        async with self._slots.queued(header.id) as slot:
            if slot.header is not None or slot.owner is not None:
                raise SessionCollisionError(header.id, "it is open already")
            if await is_stored(self._backend, header.id):
                raise SessionCollisionError(header.id, "it is stored already; load it instead")
            slot.header = header

    def append(
        self, session_id: str, events: Iterable[Event | Mapping[str, Any]]
    ) -> Awaitable[None]:
        """Store events of a session that is not live; the batch is taken at the call.

        Raises:
            SessionCoreError: An event has no legal form.
            SequenceError: The events do not continue what is stored; nothing was written.
            SessionNotFoundError: The id was neither created nor stored.
            SessionLiveError: A live session writes under this id.
        """
        return self._append(session_id, [_checked_event(event) for event in events])

    async def load(
        self,
        session_id: str,
        *,
        check_header: Callable[[SessionHeader], None] | None = None,
    ) -> LoadedSession:
        """Take the session's lock, repair its log if a crash left it open, and return it.

        The lock is kept: for the live session that is made from what this returns, or until
        `release`. `check_header` is called before anything is changed; what it raises ends the
        load.

        Raises:
            SessionNotFoundError: It is not stored.
            SessionLockedError: Another process has it open.
            CorruptLogError: Committed bytes are damaged; nothing was changed.
            UnsupportedVersionError: It is of another format version; nothing was changed.
            SessionLiveError: It is live here with an open turn.
        """
        async with self._slots.queued(session_id) as slot:
            owner = await self._sessions.settled_owner(slot)
            if owner is not None:
                return await self._load_live(slot, owner)
            slot.loading = True
            try:
                return await load_and_repair(self._backend, slot, check_header)
            finally:
                slot.loading = False

    async def open(
        self,
        session_id: str,
        *,
        check_header: Callable[[SessionHeader], None] | None = None,
    ) -> OpenedSession:
        """Make a stored session live, or return the one that is.

        It can be looked at while another process writes it: then it stands as it is stored, an open
        turn included. Else what a crash has left is put right first. `check_header` is as in
        `load`.

        Raises:
            SessionNotFoundError: It is not stored.
            CorruptLogError: Committed bytes are damaged, or it breaks a rule of the surface;
                nothing was changed.
            UnsupportedVersionError: It is of another format version; nothing was changed.
            SessionLiveError: A session that is not stored is live under this id.
        """
        async with self._slots.queued(session_id) as slot:
            owner = await self._sessions.settled_owner(slot)
            if owner is not None:
                if check_header is not None:
                    check_header(owner.session.header)
                return OpenedSession(owner.session)
            slot.loading = True
            try:
                return await self._open_cold(slot, check_header)
            finally:
                slot.loading = False

    async def settled(self, session_id: str) -> None:
        """Return when nothing that was asked of a session before is under way."""
        async with self._slots.queued(session_id):
            pass

    async def inspect(self, session_id: str) -> LoadedSession:
        """Return a stored session as it is, without a lock, a repair or closers.

        Raises:
            SessionNotFoundError: It is not stored.
            CorruptLogError: Committed bytes are damaged.
            UnsupportedVersionError: It is of another format version.
        """
        stored = await read_stored(self._backend, session_id)
        return LoadedSession(stored.header, stored.log)

    async def list(
        self, cwd: str | None = None, cursor: str | None = None, limit: int = PAGE_SIZE
    ) -> EntryPage:
        """Return a page of stored sessions, the latest first (list-rows-fold-the-log).

        Raises:
            InvalidCursorError: No page gave this cursor.
        """
        return await self._backend.list_page(cwd, cursor, limit)

    async def has(self, session_id: str) -> bool:
        """Tell whether a session is stored, in whatever state."""
        return await is_stored(self._backend, session_id)

    async def delete(self, session_id: str) -> None:
        """Remove everything of a session that is not live here.

        Raises:
            SessionNotFoundError: It is not stored.
            SessionLiveError: It is live here.
            SessionLockedError: Another process has it open; nothing was deleted.
            StoreWriteError: Something was left behind.
        """
        async with self._slots.queued(session_id) as slot:
            if await self._sessions.settled_owner(slot) is not None:
                raise SessionLiveError(session_id, "be deleted")
            if slot.header is not None and slot.writer is None:
                # Created, and never given an event.
                await slot.release()
                return
            if slot.writer is None:
                slot.writer = await self._backend.acquire_writer(session_id)
            try:
                with anyio.CancelScope(shield=True):
                    await slot.writer.delete()
            finally:
                await slot.release()

    # Live sessions.

    async def flush(self, session: Session) -> None:
        """Return once every event appended before the call is durable; at no cost if all are.

        Raises:
            PersistenceError: They are not. They stay pending, unless it is a
                `SessionChangedError` or `SessionCollisionError`: then the session cannot be stored
                any more, and its pending events are dropped.
        """
        await self._sessions.flush(session)

    async def hold(self, session: Session, *, wait: bool = True) -> None:
        """Take the right to write a session, and keep it until the session is idle.

        Rule: looking-takes-no-lock.

        At no cost if it is held, or if nothing of the session is stored yet. If another process
        went on with the session, this one reads on in place: the object stays.

        Args:
            session: A live session.
            wait: Whether to wait up to 2 s for another process.

        Raises:
            SessionLockedError: Another process has it; nothing has changed.
            SessionOvertakenError: Another process went on, and something here is not stored: the
                session cannot be stored any more.
            SessionChangedError: What is stored is not what was read: as above.
            PersistenceError: The store could not be read or written; nothing has changed.
        """
        await self._sessions.hold(session, wait=wait)

    def attend(
        self, session: Session, *, is_busy: Callable[[], bool], read_on: Callable[[int], None]
    ) -> None:
        """Say who works with a session.

        Args:
            session: A live session.
            is_busy: While it says so, the right to write is kept, once it is held.
            read_on: Called at once when the session has read on what another process wrote, with
                how many events it had before.
        """
        live = self._sessions.require(session)
        live.is_busy, live.read_on = is_busy, read_on

    def is_lost(self, session: Session) -> bool:
        """Tell whether a session cannot be stored any more: its log is somebody else's.

        Rule: failed-checkpoint-ends-turn.
        """
        return self._sessions.is_lost(session)

    def durable_seq(self, session: Session) -> int:
        """Return the seq below which every event is durable."""
        return self._sessions.require(session).durable

    def on_durable(self, session: Session, fn: Callable[[int], None]) -> Callable[[], None]:
        """Call `fn` with the durable seq after each successful write; return how to stop it."""
        live = self._sessions.require(session)
        # Bound anew, so that the same function added twice is removed one at a time.
        entry: Callable[[int], None] = lambda seq: fn(seq)  # noqa: E731, PLW0108
        live.listeners = (*live.listeners, entry)

        def stop() -> None:
            live.listeners = tuple(other for other in live.listeners if other is not entry)

        return stop

    def flush_soon(self, session: Session) -> None:
        """Start writing what is pending, without waiting for it."""
        self._sessions.flush_soon(session)

    async def release(self, session: Session | str, *, discard: bool = False) -> None:
        """Store what is pending and give the session's lock back.

        Args:
            session: A live session, or the id of a loaded one. What a live one appends afterwards
                is not stored.
            discard: Store nothing more: the session is about to be deleted, and a full disk must
                not stand in the way of that.

        Raises:
            PersistenceError: What is pending could not be stored; nothing was released.
        """
        if not isinstance(session, str):
            await self._sessions.release(session, discard=discard)
            return
        async with self._slots.queued(session) as slot:
            if slot.owner is not None:
                raise SessionLiveError(session, "be released by its id")
            await slot.release()

    @property
    def _sessions(self) -> LiveSessions:
        if self._opened is None:
            raise RuntimeError("the session store is not open")
        return self._opened

    async def _open_cold(
        self, slot: SessionSlot, check_header: Callable[[SessionHeader], None] | None
    ) -> OpenedSession:
        locked = await self._holding.take_if_free(slot)
        try:
            stored = await self._holding.read(slot, check_header)
            loaded = await repair(slot.writer, stored)
            session = self._sessions.go_live(slot, loaded)
        except BaseException:
            await slot.release()
            raise
        return OpenedSession(session, loaded.repaired, locked)

    async def _append(self, session_id: str, batch: Sequence[Event]) -> None:
        if not batch:
            return
        async with self._slots.queued(session_id) as slot:
            if await self._sessions.settled_owner(slot) is not None:
                raise SessionLiveError(session_id, "be appended to from elsewhere")
            if slot.header is None:
                await load_and_repair(self._backend, slot)
            for expected, event in enumerate(batch, slot.cursor):
                if event.seq != expected:
                    raise SequenceError(session_id, expected, event.seq)
            with anyio.CancelScope(shield=True):
                await store_batch(self._backend, slot, batch)
            slot.loaded = None

    async def _load_live(self, slot: SessionSlot, live: LiveSession) -> LoadedSession:
        await self._sessions.drain_queued(live)
        if slot.header is None or not slot.cursor:
            raise SessionNotFoundError(slot.session_id)
        log = live.session.events.prefix()
        if compute_closers(log):
            raise SessionLiveError(slot.session_id, "be loaded while a turn is open")
        return LoadedSession(slot.header, log)

    async def _shut_down(self) -> Sequence[Exception]:
        """Store everything, release every lock, close the backend; return what failed."""
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + _TEARDOWN_S) as scope:
            errors = await self._sessions.retire_all()
            try:
                await self._backend.close()
            except PersistenceError as error:
                # Secondary to what was lost, if anything was.
                errors = errors or [error]
        if scope.cancelled_caught:
            errors = [TimeoutError(f"the store did not close within {_TEARDOWN_S:g} s")]
        return errors


def _checked_event(event: Event | Mapping[str, Any]) -> Event:
    checked = event_from_json(event.to_json() if isinstance(event, Event) else event)
    refuse_stored_legacy(checked.type, checked.data)
    CORE_VOCABULARY.check_loaded(checked)
    return checked

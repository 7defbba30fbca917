"""What the repository remembers: a slot for each session id, and the live session in it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import anyio

from persistence.summary import SummaryFold

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from persistence.errors import PersistenceError
    from persistence.opened import LoadedSession
    from persistence.storage import Writer
    from session_core import EventLog, Record, Session, SessionHeader


@dataclass(eq=False, slots=True)
class SessionSlot:
    """One session id in this process.

    Attributes:
        queue: Operations on the id pass through it one by one, in the order they came.
        users: How many operations and live sessions refer to the slot.
        header: Set while the id is tracked: from `create`, `load` or a live session's first flush.
        cursor: Events that are stored durably.
        writer: The right to write; taken to open a session if it is free, to load one, and with
            each batch; given back when the session has been idle for a while.
        position: Where the log was left when the right was last given back; None if it must be
            read before it is written.
        loaded: The log that `load` returned, until a live session acquires it or it grows.
        owner: The live session that writes here, once it has proven that it may.
        loading: A cold load is under way; nobody may go live with this id.
        fold: The summary of what is stored, once somebody has asked for it.
    """

    session_id: str
    # No checkpoint on a free lock: it would cost every flush a turn of the event loop.
    queue: anyio.Lock = field(default_factory=partial(anyio.Lock, fast_acquire=True))
    users: int = 0
    header: SessionHeader | None = None
    cursor: int = 0
    writer: Writer | None = None
    position: object | None = None
    loaded: EventLog | None = None
    owner: LiveSession | None = None
    loading: bool = False
    fold: SummaryFold | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing would be lost by dropping the slot."""
        return self.users == 0 and self.header is None and self.owner is None

    async def release(self) -> None:
        """Know nothing of the id any more, and give the right to write back."""
        writer = self.writer
        self.header = None
        self.cursor = 0
        self.writer = None
        self.position = None
        self.loaded = None
        self.owner = None
        self.fold = None
        if writer is not None:
            with anyio.CancelScope(shield=True):
                await writer.release()

    def stands_at(self, loaded: LoadedSession) -> None:
        """Know what is stored under the id."""
        self.header, self.cursor = loaded.header, len(loaded.log)
        self.position = self.fold = None

    async def give_back(self) -> None:
        """Give the right to write back, and remember where the log was left."""
        writer, self.writer = self.writer, None
        if writer is not None:
            self.position = writer.position
            with anyio.CancelScope(shield=True):
                await writer.release()

    def advanced_fold(self, header: SessionHeader, records: Sequence[Record]) -> SummaryFold:
        """Return the summary of what is stored plus `records`, leaving the stored one as it is."""
        if self.fold is None:
            self.fold = SummaryFold(header)
            if self.owner is not None:
                self.fold.advance(self.owner.session.events.records(0, self.cursor))
            elif self.loaded is not None:
                self.fold.advance(self.loaded.records())
        fold = self.fold.copy()
        fold.advance(records)
        return fold


@dataclass(eq=False, slots=True)
class LiveSession:
    """One live session of the core's store.

    Attributes:
        timer: Set to end the wait of the write-behind that is under way; None when none is.
        lost: Why the session can never be flushed again; its later events are dropped.
        closed: Everything of it was stored and given back; later events are nobody's.
        failure_logged: A background write failed, and no write has succeeded since.
        listeners: Told the durable seq after each flush.
        used_at: When the right to write was last asked for or used, in the event loop's time.
        watched: Somebody waits for the session to become idle.
        is_busy: Whether somebody outside still needs the right to write.
        read_on: Told how many events there were before the session read on others' events.
        unobserve: Stops following the session's events.
    """

    session: Session
    slot: SessionSlot
    unobserve: Callable[[], None] = field(default=lambda: None)
    timer: anyio.Event | None = None
    lost: PersistenceError | None = None
    closed: bool = False
    failure_logged: bool = False
    listeners: tuple[Callable[[int], None], ...] = ()
    used_at: float = 0.0
    watched: bool = False
    is_busy: Callable[[], bool] = field(default=lambda: False)
    read_on: Callable[[int], None] = field(default=lambda _known: None)

    @property
    def durable(self) -> int:
        """Number of events that are known to be durable."""
        return self.slot.cursor if self.slot.owner is self else 0

    @property
    def is_released(self) -> bool:
        """Whether it is stored, and the right to write it was given back or never taken."""
        return self.slot.owner is self and self.slot.writer is None

    @property
    def pending(self) -> int:
        """Number of events that are still to be made durable."""
        if self.closed or self.lost is not None:
            return 0
        return self.session.seq - self.durable


class SessionSlots:
    """The slots of a process; one exists only while somebody has a use for it."""

    def __init__(self) -> None:
        self._slots: dict[str, SessionSlot] = {}

    def get(self, session_id: str) -> SessionSlot:
        """Return the slot of an id."""
        slot = self._slots.get(session_id)
        if slot is None:
            slot = self._slots[session_id] = SessionSlot(session_id)
        return slot

    def drop_if_idle(self, slot: SessionSlot) -> None:
        """Drop a slot that nobody uses."""
        if slot.is_idle and self._slots.get(slot.session_id) is slot:
            del self._slots[slot.session_id]

    @asynccontextmanager
    async def queued(self, session_id: str) -> AsyncIterator[SessionSlot]:
        """Hold the slot of an id, after everybody who asked before."""
        slot = self.get(session_id)
        slot.users += 1
        try:
            async with slot.queue:
                yield slot
        finally:
            slot.users -= 1
            self.drop_if_idle(slot)

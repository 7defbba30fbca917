"""May a session that somebody made of a seed write under its id? The cases.

Rule: seed-must-reproduce-stored-log.

A stored session that is opened owns its id from the start and never comes here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from persistence.errors import SessionCollisionError
from persistence.records import encode_records
from persistence.storing import read_stored

if TYPE_CHECKING:
    from persistence.slots import LiveSession, SessionSlot
    from persistence.storage import StorageBackend
    from session_core import EventLog, EventView, Session, SessionHeader


def acquire_if_resumed(live: LiveSession) -> None:
    """Let a session acquire at once what it was plainly resumed from.

    Everything less plain waits for its first flush, which may read the store and may refuse.
    """
    slot, session = live.slot, live.session
    if slot.owner is not None or slot.header is None or slot.loaded is None:
        return
    if session.header.cwd == slot.header.cwd and is_prefix(slot.loaded, session.events):
        _acquire(live)


async def become_owner(backend: StorageBackend, live: LiveSession) -> None:
    """Make a live session the one that writes under its id; the slot's queue is held.

    Raises:
        SessionCollisionError: The id is another session's.
        SessionLockedError: Another process has it open.
        PersistenceError: What is stored could not be read.
    """
    slot, session = live.slot, live.session
    other = slot.owner
    if other is not None and (slot.cursor or other.session.seq):
        raise SessionCollisionError(session.id, "another live session owns it")
    if slot.header is None:
        await _continue_stored(backend, slot, session)
    elif slot.cursor:
        stored = slot.loaded or (await read_stored(backend, session.id)).log
        _check_claim(session, slot.header, stored)
    elif session.header.cwd != slot.header.cwd:
        raise SessionCollisionError(session.id, f"it was created for {slot.header.cwd!r}")
    _acquire(live)


def _acquire(live: LiveSession) -> None:
    live.slot.owner = live
    live.slot.loaded = None


async def _continue_stored(backend: StorageBackend, slot: SessionSlot, session: Session) -> None:
    """Take over what is stored under an id that this process did not know, or start anew."""
    slot.writer = await backend.acquire_writer(session.id, session.header)
    try:
        header, cursor = session.header, 0
        if slot.writer.materialized:
            stored = await read_stored(backend, session.id)
            _check_claim(session, stored.header, stored.log)
            # No closers: the live session knows best whether its turn is open.
            await slot.writer.commit_repair(stored, ())
            header, cursor = stored.header, len(stored.log)
    except BaseException:
        await slot.release()
        raise
    slot.header, slot.cursor = header, cursor


def _check_claim(session: Session, header: SessionHeader, stored: EventLog) -> None:
    if session.header.cwd != header.cwd:
        raise SessionCollisionError(session.id, f"it is stored for directory {header.cwd!r}")
    if not is_prefix(stored, session.events):
        raise SessionCollisionError(session.id, "another history is stored under it")


def is_prefix(stored: EventLog | EventView, events: EventLog | EventView) -> bool:
    """Tell whether `events` starts with the stored ones, by deep value.

    A session that was seeded with the very log shares its records, which is seen at a glance; only
    otherwise are values compared, as the bytes they are stored as, so that 1, 1.0 and True differ.
    """
    if len(events) < len(stored):
        return False
    mine = list(events.records(0, len(stored)))
    theirs = list(stored.records())
    if len(mine) == len(theirs) and all(a is b for a, b in zip(mine, theirs, strict=True)):
        return True
    return encode_records(mine, pack=False) == encode_records(theirs, pack=False)

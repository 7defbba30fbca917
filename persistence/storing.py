"""Reading and writing one slot through the primitives of a backend; its queue is held."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from persistence.errors import (
    CorruptLogError,
    SessionCollisionError,
    SessionNotFoundError,
    UnsupportedVersionError,
)
from persistence.opened import LoadedSession, RepairReport
from session_core import Event, EventLogBuilder, compute_closers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from persistence.slots import SessionSlot
    from persistence.storage import StorageBackend, StoredLog, Writer
    from persistence.summary import SummaryFold
    from session_core import Record, SessionHeader

_FEW: Final = 5000
"""Events or records that are folded on the event loop: some milliseconds."""

_logger = logging.getLogger(__name__)


async def is_stored(backend: StorageBackend, session_id: str) -> bool:
    """Tell whether a session is stored, in whatever state."""
    try:
        return await backend.load_stored(session_id) is not None
    except (CorruptLogError, UnsupportedVersionError):
        return True


async def read_stored(
    backend: StorageBackend,
    session_id: str,
    check_header: Callable[[SessionHeader], None] | None = None,
) -> StoredLog:
    """Read a log, having seen that it is the right one; what `check_header` raises ends it.

    Raises:
        SessionNotFoundError: It is not stored.
        CorruptLogError: Committed bytes are damaged, or it is another session's.
        UnsupportedVersionError: It is of another format version.
    """
    stored = await backend.load_stored(session_id)
    if stored is None:
        raise SessionNotFoundError(session_id)
    if stored.header.id != session_id:
        raise CorruptLogError(session_id, f"its header names session {stored.header.id!r}")
    for problem in stored.problems:
        _logger.warning("session %r: %s", session_id, problem)
    if check_header is not None:
        check_header(stored.header)
    return stored


async def load_and_repair(
    backend: StorageBackend,
    slot: SessionSlot,
    check_header: Callable[[SessionHeader], None] | None = None,
) -> LoadedSession:
    """Load a session cold: lock, read, repair durably, only then publish.

    Rule: repair-is-durable-before-use.

    Whatever fails leaves the slot knowing nothing of the session, and the lock free.
    """
    if slot.writer is None:
        slot.writer = await backend.acquire_writer(slot.session_id)
    try:
        stored = await read_stored(backend, slot.session_id, check_header)
        loaded = await repair(slot.writer, stored)
    except BaseException:
        await slot.release()
        raise
    slot.loaded = loaded.log
    slot.stands_at(loaded)
    return loaded


async def repair(writer: Writer | None, stored: StoredLog) -> LoadedSession:
    """Put right what a crash has left of a log; without a writer it is returned as it stands.

    Raises:
        SessionChangedError: The log is no longer the one that was read.
        StoreWriteError: The repair is not complete; a later one repeats it.
    """
    log = stored.log
    if writer is None:
        return LoadedSession(stored.header, log)
    closers = compute_closers(log)
    with anyio.CancelScope(shield=True):
        await writer.commit_repair(stored, closers)
    if closers:
        builder = EventLogBuilder(start=log)
        builder.extend(closers)
        log = builder.build()
    return LoadedSession(stored.header, log, _report(stored, len(closers)))


async def store_batch(
    backend: StorageBackend, slot: SessionSlot, records: Sequence[Record]
) -> None:
    """Store records behind what is stored, durably; run it shielded from cancellation.

    Raises:
        PersistenceError: Nothing was stored, and the slot is as it was.
    """
    header = slot.header
    if header is None:
        raise SessionNotFoundError(slot.session_id)
    if slot.writer is None:
        writer = await backend.acquire_writer(slot.session_id, header)
        if writer.materialized:
            await writer.release()
            raise SessionCollisionError(slot.session_id, "it is stored already")
        slot.writer = writer
    fold = await _advanced_fold(slot, header, records)
    ends_turn = any(isinstance(record, Event) and record.type == "turn/end" for record in records)
    await slot.writer.append_batch(header, records, fold.summary() if ends_turn else None)
    slot.fold = fold
    slot.cursor += sum(1 if isinstance(record, Event) else len(record) for record in records)


async def _advanced_fold(
    slot: SessionSlot, header: SessionHeader, records: Sequence[Record]
) -> SummaryFold:
    unfolded = len(records) + (slot.cursor if slot.fold is None else 0)
    if unfolded <= _FEW:
        return slot.advanced_fold(header, records)
    return await anyio.to_thread.run_sync(slot.advanced_fold, header, records)


def _report(stored: StoredLog, closer_count: int) -> RepairReport | None:
    if stored.torn is None and not closer_count:
        return None
    torn = None if stored.torn is None else str(stored.torn)
    _logger.warning(
        "session %r was repaired: %s; %d events close its interrupted turn",
        stored.header.id,
        f"its end was put right ({torn})" if torn else "its end was whole",
        closer_count,
    )
    return RepairReport(torn, closer_count)

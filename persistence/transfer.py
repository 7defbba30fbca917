"""Moving whole sessions: from a log file into a store, from store to store; and looking them over.

Works on backends, over the storage interface alone: nobody need hold the sessions open. What is
written is read back and compared before it counts as done.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import anyio
import anyio.to_thread

from persistence.errors import (
    CorruptLogError,
    PersistenceError,
    RefusedLogError,
    SessionCollisionError,
    TransferError,
    UnsupportedVersionError,
    read_error,
)
from persistence.files import OsFiles
from persistence.header_line import decode_header, with_depth
from persistence.log_file import LogFileScan
from persistence.records import encode_records
from persistence.storing import read_stored
from persistence.summary import summarize
from session_core import compute_closers, state_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from persistence.storage import StorageBackend, StoredLog, Writer
    from session_core import EventLog, SessionHeader

# How many events are compared at a time: large logs need not be in memory twice over.
_COMPARED = 10_000

ProblemKind = Literal["damage", "refused", "order"]


@dataclass(frozen=True, slots=True)
class Transferred:
    """A session that now stands in the target.

    Attributes:
        torn: What was left out at the end of the source because it was no complete record.
        problems: Oddities of the source, what was left out of its events among them.
    """

    header: SessionHeader
    event_count: int
    torn: str | None
    problems: tuple[str, ...]


class Problem(NamedTuple):
    """Something in a stored session that should not be so.

    Attributes:
        kind: `damage` (cannot be read as it was written), `refused` (an event that no load takes),
            or `order` (an event out of its place, which a load tolerates).
        seq: Of the event, if it is about one.
    """

    kind: ProblemKind
    seq: int | None
    detail: str


@dataclass(frozen=True, slots=True)
class Verification:
    """What a look at every byte of a session found.

    Attributes:
        event_count: Complete events; 0 for a log that cannot be read.
        problems: Empty for a sound session.
        notes: What is worth knowing and no problem.
    """

    session_id: str
    event_count: int
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]


async def import_log(
    path: str | Path,
    target: StorageBackend,
    *,
    session_id: str | None = None,
    cwd: str | None = None,
) -> Transferred:
    """Store what a log file of format version 0 holds, ours or a foreign one.

    Rule: source-format-logs-load.

    Nothing is added, closers neither: the next load gives an open turn its end. A torn last record
    is left out.

    Args:
        path: The log, a header line and then one storage record a line.
        target: Where it goes.
        session_id: Stored instead of the header's id.
        cwd: Stored instead of the header's working directory.

    Raises:
        CorruptLogError: It is no such log; `session_id` of the error is the path.
        UnsupportedVersionError: It is of another format version.
        SessionCollisionError: The target has a session of this id.
        TransferError: It has no events, or what was stored is not the same.
        StoreReadError: The file cannot be read.
    """
    overrides = {"id": session_id, "cwd": cwd}
    given = {key: value for key, value in overrides.items() if value is not None}
    imported, log = await anyio.to_thread.run_sync(partial(_read_file, str(path), given))
    await _store(imported.header, log, target)
    return imported


async def copy_session(
    session_id: str, source: StorageBackend, target: StorageBackend
) -> Transferred:
    """Copy a session from one store to another, event for event.

    The source is read without a lock: what another process appends meanwhile is not copied.

    Raises:
        SessionNotFoundError: The source has no such session.
        CorruptLogError: Committed bytes of it are damaged.
        UnsupportedVersionError: It is of another format version.
        SessionCollisionError: The target has a session of this id.
        TransferError: It has no events, or what was stored is not the same.
    """
    stored = await read_stored(source, session_id)
    await _store(stored.header, stored.log, target)
    torn = None if stored.torn is None else str(stored.torn)
    return Transferred(stored.header, len(stored.log), torn, stored.problems)


async def verify(backend: StorageBackend, session_id: str) -> Verification:
    """Read a session and hold it to every rule; changes nothing and takes no lock.

    Raises:
        SessionNotFoundError: It is not stored.
        StoreReadError: The operating system refused.
    """
    try:
        stored = await read_stored(backend, session_id)
    except (CorruptLogError, UnsupportedVersionError, SessionCollisionError) as error:
        kind: ProblemKind = "refused" if isinstance(error, RefusedLogError) else "damage"
        seq = error.seq if isinstance(error, CorruptLogError) else None
        return Verification(session_id, 0, (Problem(kind, seq, str(error)),), ())
    problems, notes = await anyio.to_thread.run_sync(partial(_examine, stored))
    return Verification(session_id, len(stored.log), problems, notes)


async def _store(header: SessionHeader, log: EventLog, target: StorageBackend) -> None:
    """Store a whole log in one batch, and see that it came to be there."""
    if not len(log):
        raise TransferError(header.id, "it has no events")
    writer = await target.acquire_writer(header.id, header)
    try:
        if writer.materialized:
            raise SessionCollisionError(header.id, "it is stored already")
        records = list(log.records())
        with anyio.CancelScope(shield=True):
            await writer.append_batch(header, records, summarize(header, records))
            await _check_copy(header, log, target, writer)
    finally:
        with anyio.CancelScope(shield=True):
            await writer.release()


async def _check_copy(
    header: SessionHeader, log: EventLog, target: StorageBackend, writer: Writer
) -> None:
    try:
        stored = await target.load_stored(header.id)
    except PersistenceError as error:
        await writer.delete()
        raise TransferError(header.id, f"its copy cannot be read back: {error}") from error
    if stored is None or not await anyio.to_thread.run_sync(partial(_is_copy, header, log, stored)):
        await writer.delete()
        raise TransferError(header.id, "its copy differs from it")


def _is_copy(header: SessionHeader, log: EventLog, stored: StoredLog) -> bool:
    # Stores write the depth that a header without one has.
    if with_depth(stored.header) != with_depth(header) or len(stored.log) != len(log):
        return False
    return all(
        mine == theirs for mine, theirs in zip(_pieces(log), _pieces(stored.log), strict=True)
    )


def _pieces(log: EventLog) -> Iterator[bytes]:
    """Yield the log as the bytes it is stored as, so that 1, 1.0 and True differ."""
    for start in range(0, len(log), _COMPARED):
        yield encode_records(log.records(start, start + _COMPARED), pack=False)


def _examine(stored: StoredLog) -> tuple[tuple[Problem, ...], tuple[str, ...]]:
    problems = tuple(
        Problem("order", found.seq, f"{found.event_type}: {found.rule}")
        for found in state_of(stored.log).violations
    )
    notes = list(stored.problems)
    if stored.torn is not None:
        notes.append(f"its end is torn and will be put right by the next load: {stored.torn}")
    if compute_closers(stored.log):
        notes.append("its last turn is open: it is running, or will be closed by the next load")
    return problems, tuple(notes)


def _read_file(path: str, overrides: dict[str, Any]) -> tuple[Transferred, EventLog]:
    files = OsFiles()
    try:
        handle = files.open(path, "read")
        try:
            scan = LogFileScan(
                files, handle, path, partial(decode_header, path, overrides=overrides)
            )
            header = scan.run()
        finally:
            files.close(handle)
    except OSError as error:
        raise read_error(None, path, error) from error
    reader = scan.reader
    log = reader.finish()
    return Transferred(header, len(log), reader.torn, reader.problems), log

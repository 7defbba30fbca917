"""Moving whole sessions: from a log file into a store, from store to store; and looking them over.

Works on backends, over the seam alone: nobody need hold the sessions open. What is written is read
back and compared before it counts as done.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import anyio
import anyio.to_thread

from persistence.errors import (
    CorruptLogError,
    PersistenceError,
    SessionCollisionError,
    TransferError,
    UnsupportedVersionError,
    read_error,
)
from persistence.records import (
    BadRecordError,
    LogDecoder,
    encode_records,
    gc_paused,
    is_turn_end,
    parse_json,
)
from persistence.refusals import is_refusal
from persistence.storing import read_stored
from persistence.summary import summarize
from session_core import (
    SESSION_FORMAT_VERSION,
    SessionCoreError,
    SessionHeader,
    compute_closers,
    fold_surface,
    lenient_trace_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from persistence.seam import SessionBackend, StoredLog, Writer
    from session_core import EventLog

# How many events are compared at a time: large logs need not be in memory twice over.
_COMPARED = 10_000

ProblemKind = Literal["damage", "surface", "order"]


@dataclass(frozen=True, slots=True)
class Transferred:
    """A session that now stands in the target.

    Attributes:
        torn: what was left out at the end of the source because it was no complete record.
        problems: oddities of the source, what was left out of its events among them.
    """

    header: SessionHeader
    event_count: int
    torn: str | None
    problems: tuple[str, ...]


class Problem(NamedTuple):
    """Something in a stored session that should not be so.

    Attributes:
        kind: `damage` (cannot be read as it was written), `surface` (refused when loaded), or
            `order` (an event out of its place, which a load tolerates).
        seq: of the event, if it is about one.
    """

    kind: ProblemKind
    seq: int | None
    detail: str


@dataclass(frozen=True, slots=True)
class Verification:
    """What a look at every byte of a session found.

    Attributes:
        event_count: complete events; 0 for a log that cannot be read.
        problems: empty for a sound session.
        notes: what is worth knowing and no problem.
    """

    session_id: str
    event_count: int
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]


async def import_log(
    path: str | Path,
    target: SessionBackend,
    *,
    session_id: str | None = None,
    cwd: str | None = None,
) -> Transferred:
    """Store what a log file of format version 0 holds, ours or a foreign one (Z17).

    Nothing is added, closers neither: the next load gives an open turn its end. A torn last record
    is left out.

    Args:
        path: the log, a header line and then one storage record a line.
        target: where it goes.
        session_id: stored instead of the header's id.
        cwd: stored instead of the header's working directory.

    Raises:
        CorruptLogError: it is no such log; `session_id` of the error is the path.
        UnsupportedVersionError: it is of another format version.
        SessionCollisionError: the target has a session of this id.
        TransferError: it has no events, or what was stored is not the same.
        StoreReadError: the file cannot be read.
    """
    overrides = {"id": session_id, "cwd": cwd}
    given = {key: value for key, value in overrides.items() if value is not None}
    read = await anyio.to_thread.run_sync(partial(_read_file, Path(path), given))
    await _store(read.header, read.log, target)
    return Transferred(read.header, len(read.log), read.torn, read.problems)


async def copy_session(
    session_id: str, source: SessionBackend, target: SessionBackend
) -> Transferred:
    """Copy a session from one store to another, event for event.

    The source is read without a lock: what another process appends meanwhile is not copied.

    Raises:
        SessionNotFoundError: the source has no such session.
        CorruptLogError: committed bytes of it are damaged.
        UnsupportedVersionError: it is of another format version.
        SessionCollisionError: the target has a session of this id.
        TransferError: it has no events, or what was stored is not the same.
    """
    stored = await read_stored(source, session_id)
    await _store(stored.header, stored.log, target)
    torn = None if stored.torn is None else str(stored.torn)
    return Transferred(stored.header, len(stored.log), torn, stored.problems)


async def verify(backend: SessionBackend, session_id: str) -> Verification:
    """Read a session and hold it to every rule; changes nothing and takes no lock.

    Raises:
        SessionNotFoundError: it is not stored.
        StoreReadError: the operating system refused.
    """
    try:
        stored = await read_stored(backend, session_id)
    except (CorruptLogError, UnsupportedVersionError, SessionCollisionError) as error:
        seq = error.seq if isinstance(error, CorruptLogError) else None
        return Verification(session_id, 0, (Problem("damage", seq, str(error)),), ())
    problems, notes = await anyio.to_thread.run_sync(partial(_examine, stored))
    return Verification(session_id, len(stored.log), problems, notes)


async def _store(header: SessionHeader, log: EventLog, target: SessionBackend) -> None:
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
    header: SessionHeader, log: EventLog, target: SessionBackend, writer: Writer
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
    if _with_depth(stored.header) != _with_depth(header) or len(stored.log) != len(log):
        return False
    return all(
        mine == theirs for mine, theirs in zip(_pieces(log), _pieces(stored.log), strict=True)
    )


def _with_depth(header: SessionHeader) -> SessionHeader:
    # Stores write the depth that a header without one has (contract 5.8).
    return replace(header, delegation_depth=header.delegation_depth or 0)


def _pieces(log: EventLog) -> Iterator[bytes]:
    """Yield the log as the bytes it is stored as, so that 1, 1.0 and True differ."""
    for start in range(0, len(log), _COMPARED):
        yield encode_records(log.records(start, start + _COMPARED), pack=False)


def _examine(stored: StoredLog) -> tuple[tuple[Problem, ...], tuple[str, ...]]:
    problems: list[Problem] = []
    try:
        fold_surface(stored.log)
    except SessionCoreError as error:
        problems.append(Problem("surface", None, str(error)))
    _, violations = lenient_trace_of(stored.log)
    problems += [
        Problem("order", found.seq, f"{found.event_type}: {found.rule}") for found in violations
    ]
    notes = list(stored.problems)
    if stored.torn is not None:
        notes.append(f"its end is torn and will be put right by the next load: {stored.torn}")
    if compute_closers(stored.log):
        notes.append("its last turn is open: it is running, or will be closed by the next load")
    return tuple(problems), tuple(notes)


class _LogFile(NamedTuple):
    header: SessionHeader
    log: EventLog
    torn: str | None
    problems: tuple[str, ...]


def _read_file(path: Path, given: dict[str, Any]) -> _LogFile:
    label = str(path)
    decoder = LogDecoder()
    try:
        with path.open("rb") as file, gc_paused():
            header = _parse_header(label, file.readline(), given)
            torn = _read_records(label, decoder, file.tell(), file)
    except OSError as error:
        raise read_error(None, label, error) from error
    unknown = ", ".join(map(repr, sorted(decoder.unknown_keys)))
    problems = (f"events had unknown keys, which are left out: {unknown}",) if unknown else ()
    return _LogFile(header, decoder.finish(), torn, problems)


def _parse_header(label: str, line: bytes, given: dict[str, Any]) -> SessionHeader:
    try:
        value = parse_json(line)
    except BadRecordError as error:
        raise CorruptLogError(label, "the header line is not JSON", offset=0) from error
    if type(value) is not dict or value.pop("type", None) != "session":
        raise CorruptLogError(label, "the first line is no session header", offset=0)
    version = value.get("version")
    if type(version) is not int or version != SESSION_FORMAT_VERSION:
        raise UnsupportedVersionError(label, version, SESSION_FORMAT_VERSION)
    try:
        return SessionHeader.from_json({**value, **given})
    except SessionCoreError as error:
        raise CorruptLogError(label, str(error), offset=0) from error


def _read_records(
    label: str, decoder: LogDecoder, offset: int, lines: Iterator[bytes]
) -> str | None:
    """Read a log without checksums (contract 5.5, Z18); return why its end is torn, if it is."""
    for line in lines:
        try:
            decoder.feed(line.removesuffix(b"\n"))
        except BadRecordError as error:
            if is_refusal(error) or any(map(_is_closed_turn, (line, *lines))):
                raise CorruptLogError(
                    label, error.reason, seq=decoder.next_seq, offset=offset
                ) from error
            return error.reason
        offset += len(line)
    return None


def _is_closed_turn(line: bytes) -> bool:
    return line.endswith(b"\n") and is_turn_end(line)

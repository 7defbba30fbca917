"""Records to rows, and rows to the storage records that they are.

Rules: delta-runs-are-packed, database-has-fixed-shape, batches-are-checksummed.

A row is one storage record (delta-runs-are-packed) taken apart. For its checksum, and to be read,
it is put together again as the very line that the JSONL backend would hold, so that both share one
decoder.

The checksum runs over the header and all rows so far; the last row of each batch has its value.
Being cumulative, one value vouches for everything before it.
"""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from persistence.errors import CorruptLogError, SequenceError
from persistence.header_line import header_from_json, with_depth
from persistence.records import (
    BadRecordError,
    encode_record,
    expand,
    parse_json,
)
from persistence.storage import SessionSummary
from persistence.summary import list_line
from session_core import is_seq_int, pack_records

if TYPE_CHECKING:
    from collections.abc import Iterable

    from persistence.sqlite.foreign import FileIdentity
    from session_core import Record, SessionHeader

_PLAIN_NAME = re.compile(rb"[A-Za-z0-9/_.-]+")  # needs no escape in JSON
_ROW_TYPES = (b"text-chunks", b"reasoning-chunks", b"tool-call-chunks")  # (delta-runs-are-packed)


class EventRow(NamedTuple):
    """One row of `events`; texts as SQLite gives them."""

    seq: int
    last_seq: int
    type: bytes
    time: int
    data: bytes
    source_event_seqs: bytes | None
    surface_op: bytes | None
    crc: int | None


class SessionRecord(NamedTuple):
    """One row of `sessions`."""

    version: int
    id: bytes
    created_at: int
    cwd: bytes | None
    parent_session: bytes | None
    seed_length: int | None
    delegation_depth: int | None
    extra: bytes | None
    incarnation: bytes
    revision: int
    title: bytes | None
    first_prompt: bytes | None
    updated_at: int
    event_count: int
    turn_count: int


_MAYBE_TEXT: Any = bytes | None
_MAYBE_NUMBER: Any = int | None
_SESSION_TYPES: tuple[Any, ...] = (
    *(int, bytes, int),
    *(_MAYBE_TEXT, _MAYBE_TEXT, _MAYBE_NUMBER, _MAYBE_NUMBER, _MAYBE_TEXT),
    *(bytes, int),
    *(_MAYBE_TEXT, _MAYBE_TEXT, int, int, int),
)


@dataclass(frozen=True, slots=True)
class LogState:
    """One log exactly as a writer left it, or as it was read.

    Attributes:
        next_seq: The seq that follows the last kept row.
        last_seq: Of the last row there is, kept or torn; -1 when there is none.
        crc: Checksum of the header and the kept rows.
    """

    identity: FileIdentity
    incarnation: str
    revision: int
    next_seq: int
    last_seq: int
    crc: int


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """The rows of a batch, ready to be bound, and where the log stands behind them."""

    rows: list[tuple[Any, ...]]
    next_seq: int
    crc: int


def encode_batch(
    session_id: str, records: Iterable[Record], next_seq: int, crc: int, *, pack: bool
) -> EncodedBatch:
    """Return the rows of a batch that continues a log at `next_seq` with checksum `crc`.

    Raises:
        SequenceError: The records do not continue it.
        TypeError: A record cannot be encoded.
    """
    stored = pack_records(records) if pack else [event.to_json() for event in expand(records)]
    rows: list[tuple[Any, ...]] = []
    for value in stored:
        data = value["data"]
        if "seq0" in value:
            seq, time, count = value["seq0"], value["time0"], len(data["dt"]) + 1
        else:
            seq, time, count = value["seq"], value["time"], 1
        if seq != next_seq:
            raise SequenceError(session_id, next_seq, seq)
        next_seq += count
        row = EventRow(
            seq,
            next_seq - 1,
            value["type"].encode(),
            time,
            _json(data),
            _optional_json(value, "sourceEventSeqs"),
            _optional_json(value, "surfaceOp"),
            None,
        )
        crc = zlib.crc32(line_of(row), crc)
        rows.append((session_id, *_bindable(row)))
    if rows:
        rows[-1] = (*rows[-1][:-1], crc)
    return EncodedBatch(rows, next_seq, crc)


def header_values(header: SessionHeader) -> tuple[Any, ...]:
    """Return the header's columns, in the order of `SessionRecord`."""
    extra = _json(dict(header.extra)).decode() if header.extra else None
    return (
        header.version,
        header.id,
        header.created_at,
        header.cwd,
        header.parent_session,
        header.seed_length,
        header.delegation_depth or 0,
        extra,
    )


def summary_values(summary: SessionSummary) -> tuple[Any, ...]:
    """Return the summary's columns, in the order of `SessionRecord`."""
    return (
        summary.title,
        summary.first_prompt,
        summary.updated_at,
        summary.event_count,
        summary.turn_count,
    )


def header_crc(header: SessionHeader) -> int:
    """Return the checksum of a log without rows."""
    return zlib.crc32(encode_record(with_depth(header).to_json()))


def decode_header(record: SessionRecord, session_id: str | None = None) -> SessionHeader:
    """Return the header of a session's row.

    Args:
        record: The row.
        session_id: How the session is called in errors; by default as the row says.

    Raises:
        CorruptLogError: The row is no header.
        UnsupportedVersionError: It is of another format version.
    """
    label = session_id or _label(record)
    # A flipped bit may change the type of a value; STRICT is for writers only.
    if not all(map(isinstance, record, _SESSION_TYPES)):
        raise CorruptLogError(label, "its row has values of wrong types")
    try:
        stored = {
            "version": record.version,
            "id": record.id.decode(),
            "createdAt": record.created_at,
            "cwd": _text(record.cwd),
            "parentSession": _text(record.parent_session),
            "seedLength": record.seed_length,
            "delegationDepth": record.delegation_depth,
        }
        known = {key: value for key, value in stored.items() if value is not None}
        extra = {} if record.extra is None else parse_json(record.extra)
        value = {**extra, **known}
    except (UnicodeDecodeError, BadRecordError, TypeError) as error:
        raise CorruptLogError(label, f"its header is unreadable: {error}") from error
    return header_from_json(label, value)


def decode_summary(record: SessionRecord) -> SessionSummary:
    """Return the summary of a session's row; it is derived, so an unreadable text is no error.

    Raises:
        CorruptLogError: Its time or a count is none.
    """
    if not all(map(is_seq_int, (record.updated_at, record.event_count, record.turn_count))):
        raise CorruptLogError(_label(record), "its row has a time or a count that is none")
    return SessionSummary(
        _line_of_list(record.title),
        _line_of_list(record.first_prompt),
        record.updated_at,
        record.event_count,
        record.turn_count,
    )


def line_of(row: EventRow) -> bytes:
    """Return the storage record that a row was taken apart from.

    Raises:
        BadRecordError: The row's columns make none.
    """
    try:
        return _joined(row)
    except TypeError as error:
        # A flipped bit may change the type of a value; STRICT is for writers only.
        raise BadRecordError("its row has values of wrong types") from error


def _joined(row: EventRow) -> bytes:
    name = _quoted(row.type)
    if row.type in _ROW_TYPES:
        if row.source_event_seqs is not None or row.surface_op is not None:
            raise BadRecordError("a packed row has neither sources nor a surface operation")
        return b'{"type":%b,"seq0":%d,"time0":%d,"data":%b}' % (name, row.seq, row.time, row.data)
    line = b'{"type":%b,"seq":%d,"time":%d,"data":%b' % (name, row.seq, row.time, row.data)
    if row.source_event_seqs is not None:
        line += b',"sourceEventSeqs":' + row.source_event_seqs
    if row.surface_op is not None:
        line += b',"surfaceOp":' + row.surface_op
    return line + b"}"


def _quoted(name: bytes) -> bytes:
    if _PLAIN_NAME.fullmatch(name):
        return b'"%b"' % name
    try:
        return json.dumps(name.decode(), ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise BadRecordError("its type is no text") from error


def _label(record: SessionRecord) -> str:
    return str(record.id) if type(record.id) is not bytes else record.id.decode(errors="replace")


def _json(value: Any) -> bytes:
    return encode_record(value)[:-1]


def _optional_json(record: dict[str, Any], key: str) -> bytes | None:
    return _json(record[key]) if key in record else None


def _bindable(row: EventRow) -> tuple[Any, ...]:
    """Return a row's values with its texts as texts: a STRICT column takes no bytes."""
    sources, op = row.source_event_seqs, row.surface_op
    return (
        row.seq,
        row.last_seq,
        row.type.decode(),
        row.time,
        row.data.decode(),
        None if sources is None else sources.decode(),
        None if op is None else op.decode(),
        row.crc,
    )


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def _line_of_list(value: bytes | None) -> str | None:
    return None if value is None else list_line(value.decode(errors="replace"))

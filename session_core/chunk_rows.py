"""The storage codec of chunk runs: rows of stored records, and records of rows.

Rule: delta-runs-are-packed.

A row is storage vocabulary only and never enters a session. Stateless, keeps order, loses nothing:
what has not exactly the shape of a delta is stored as the event it is.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final

from session_core.chunks import (
    CHUNK_EVENT,
    ChunkRun,
    DeltaKey,
    DeltaKind,
    is_same_run,
    split_delta,
    trusted_run,
)
from session_core.errors import EnvelopeError, MalformedRowError
from session_core.events import Event, event_from_json
from session_core.json_value import is_safe_int, is_seq_int
from session_core.log import Record

MIN_ROW_MEMBERS: Final = 3
"""Shorter runs are stored as events: a row would hardly be shorter."""

_TAGS: Final[dict[DeltaKind, str]] = {
    "text-delta": "text-chunks",
    "reasoning-delta": "reasoning-chunks",
    "tool-call-delta": "tool-call-chunks",
}
_KINDS: Final[dict[str, DeltaKind]] = {tag: kind for kind, tag in _TAGS.items()}

_ROW_KEYS: Final = frozenset({"type", "seq0", "time0", "data"})
_TEXT_KEYS: Final = frozenset({"turn", "step", "index", "dt", "texts"})
_CALL_KEYS: Final = frozenset({"turn", "step", "index", "dt", "id", "args"})


def pack_records(records: Iterable[Record]) -> list[dict[str, Any]]:
    """Return what to store for `records`: a row for each run of at least three deltas."""
    stored: list[dict[str, Any]] = []
    for record in _joined(records):
        if isinstance(record, Event):
            stored.append(record.to_json())
        elif len(record) >= MIN_ROW_MEMBERS:
            stored.append(_row(record))
        else:
            stored.extend(event.to_json() for event in record)
    return stored


def _joined(records: Iterable[Record]) -> Iterator[Record]:
    """Yield `records` with every run as long as it can be."""
    pieces: list[ChunkRun] = []
    for record in records:
        run = record if isinstance(record, ChunkRun) else _run_of(record)
        if pieces and (run is None or not _follows(run, pieces[-1])):
            yield _join(pieces)
            pieces = []
        if run is not None:
            pieces.append(run)
        elif isinstance(record, Event):
            yield record
    if pieces:
        yield _join(pieces)


def _run_of(event: Event) -> ChunkRun | None:
    """Return `event` as a run of one, if it is exactly a delta."""
    if event.type != CHUNK_EVENT or not (event.source_event_seqs is event.surface_op is None):
        return None
    delta = split_delta(event.data)
    if delta is None or not is_seq_int(event.seq) or not is_safe_int(event.time):
        return None
    return trusted_run(delta[0], event.seq, event.time, (delta[1],), (0,))


def _follows(run: ChunkRun, before: ChunkRun) -> bool:
    return (
        run.seq0 == before.stop
        and is_same_run(run.key, before.key)
        and is_safe_int(run.time0 - before.last_time)
    )


def _join(pieces: list[ChunkRun]) -> ChunkRun:
    first = pieces[0]
    if len(pieces) == 1:
        return first
    gaps: list[int] = list(first.gaps)
    last_time = first.last_time
    for piece in pieces[1:]:
        gaps.append(piece.time0 - last_time)
        gaps.extend(piece.gaps[1:])
        last_time = piece.last_time
    texts = tuple(chain.from_iterable(piece.texts for piece in pieces))
    return trusted_run(first.key, first.seq0, first.time0, texts, tuple(gaps))


def _row(run: ChunkRun) -> dict[str, Any]:
    data: dict[str, Any] = {
        "turn": run.key.turn,
        "step": run.key.step,
        "index": run.index,
        "dt": list(run.gaps[1:]),
    }
    if run.kind == "tool-call-delta":
        data["id"] = run.key.call_id
        if run.key.name is not None:
            data["name"] = run.key.name
        data["args"] = list(run.texts)
    else:
        data["texts"] = list(run.texts)
    return {"type": _TAGS[run.kind], "seq0": run.seq0, "time0": run.time0, "data": data}


def decode_storage_record(value: Any) -> list[Any]:
    """Return the events that a stored record is.

    A row gives its members as `Event`s, and a stored event the `Event` it is. What is neither
    passes through as it is, for the caller to refuse.

    Raises:
        MalformedRowError: The value has the tag of a row and not its shape.
    """
    try:
        record = decode_storage_run(value)
    except EnvelopeError:
        return [value]
    return [record] if isinstance(record, Event) else list(record)


def decode_storage_run(value: Any) -> Event | ChunkRun:
    """Return the record that a stored record is, a row kept packed; each is checked once.

    Raises:
        MalformedRowError: The value has the tag of a row and not its shape.
        EnvelopeError: The value is neither a row nor an event.
    """
    tag = value.get("type") if isinstance(value, dict) else None
    if type(tag) is str and tag in _KINDS:
        return _decode_row(tag, value)
    return event_from_json(value)


def _decode_row(tag: str, row: Mapping[str, Any]) -> ChunkRun:
    kind = _KINDS[tag]
    data = row.get("data")
    if row.keys() != _ROW_KEYS or not isinstance(data, dict):
        raise MalformedRowError(tag, "its keys must be type, seq0, time0 and data")
    payload = "args" if kind == "tool-call-delta" else "texts"
    expected = _CALL_KEYS if kind == "tool-call-delta" else _TEXT_KEYS
    if data.keys() - {"name"} != expected or ("name" in data and payload == "texts"):
        raise MalformedRowError(tag, f"the keys of its data must be {sorted(expected)}")
    texts, gaps = data[payload], data["dt"]
    if not isinstance(texts, list) or not isinstance(gaps, list):
        raise MalformedRowError(tag, f"{payload} and dt must be arrays")
    if "name" in data and data["name"] is None:
        raise MalformedRowError(tag, "name must be a string")
    key = DeltaKey(
        kind, data["turn"], data["step"], data["index"], data.get("id"), data.get("name")
    )
    try:
        return ChunkRun(key, row["seq0"], row["time0"], tuple(texts), (0, *gaps))
    except ValueError as error:
        raise MalformedRowError(tag, str(error)) from error

"""Storage records to bytes and back.

One line a record, packed chunk rows for runs of deltas (delta-runs-are-packed). The only module,
beside the checksum and index files of the JSONL backend, that knows orjson.

orjson refuses what it cannot represent (lone surrogates, infinities, deep nesting) and turns
integers from 2^64 on into floats; such a line is parsed once more by the standard library
(lone-surrogates-are-replaced).
"""

from __future__ import annotations

import gc
import json
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import orjson

from session_core import (
    MAX_DATA_DEPTH,
    Event,
    EventLog,
    EventLogBuilder,
    MalformedRowError,
    SessionCoreError,
    clean_json,
    decode_storage_run,
    pack_records,
    refuse_stored_legacy,
)
from session_core.events import ENVELOPE_KEYS
from session_core.json_value import frozen_dict_of, frozen_list_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from session_core import Record

_LINE = orjson.OPT_APPEND_NEWLINE

# The only numbers a JSON text can hold that the domain of events does not: integers beyond 2^53,
# which have at least 16 digits, and -0.0. A line without either needs no look at its numbers.
_DIGITS_TO_ZERO = bytes.maketrans(b"123456789", b"0" * 9)
_LONG_NUMBER = b"0" * 16
_NEGATIVE_ZEROS = (b":-0", b",-0", b"[-0", b" -0", b"\t-0", b"\r-0")
# From 2^63 on, 19 digits, orjson may have made a float of an integer.
_MANGLED_INTEGER = re.compile(rb"[0-9]{19}")
_BOUNDARIES = frozenset({"turn/start", "turn/end"})


class BadRecordError(Exception):
    """A line is not the next record of the log. Private to readers: they say where it stands.

    Attributes:
        seq: Where in the log it would stand; None for the next place.
    """

    def __init__(self, reason: str, seq: int | None = None) -> None:
        self.reason = reason
        self.seq = seq
        super().__init__(reason)


class RefusedRecordError(BadRecordError):
    """A line is a whole record, and refused for what it says.

    A crash leaves half a record, never a whole one of the wrong kind (repair-is-durable-before-use,
    stored-payloads-are-checked-for-use).
    """


def encode_records(records: Iterable[Record], *, pack: bool = True) -> bytes:
    """Return the lines of a batch, runs of deltas as packed rows unless `pack` is off."""
    rows = pack_records(records) if pack else (event.to_json() for event in expand(records))
    return b"".join([encode_record(row) for row in rows])


def encode_record(value: dict[str, Any]) -> bytes:
    """Return one JSON object as a line."""
    return orjson.dumps(value, option=_LINE)


def parse_json(line: bytes) -> Any:
    """Return the value of one line, exactly.

    Raises:
        BadRecordError: The line is not JSON.
    """
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        return _parse_slowly(line)
    return _parse_slowly(line) if _MANGLED_INTEGER.search(line) else value


def expand(records: Iterable[Record]) -> Iterator[Event]:
    """Return the events of records one by one."""
    for record in records:
        if isinstance(record, Event):
            yield record
        else:
            yield from record


def has_plain_numbers(text: bytes) -> bool:
    """Tell whether every number in lines of JSON surely is one that an event may hold."""
    if any(zero in text for zero in _NEGATIVE_ZEROS):
        return False
    return _LONG_NUMBER not in text.translate(_DIGITS_TO_ZERO)


class LogDecoder:
    """Builds a log from its lines, in order, each record checked once, the surface rules included.

    Attributes:
        unknown_keys: Names beside those of an event's envelope. A later format may have added them;
            they stay in the file, and the log in memory goes without (B41).
    """

    def __init__(self) -> None:
        self._builder = EventLogBuilder()
        self.unknown_keys: set[str] = set()

    @property
    def next_seq(self) -> int:
        """The seq that the next record must start with."""
        return len(self._builder)

    def feed(self, line: bytes, *, is_plain: bool = False) -> None:
        """Take the next line, without its LF.

        One that cannot be read leaves the log as it was; after a refusal the decoder is used up.
        `is_plain` is what `has_plain_numbers` said of it, if somebody has asked already.

        Raises:
            RefusedRecordError: The line is a whole record, and not one that may stand here.
            BadRecordError: The line is not a record.
        """
        value, unknown = _parse_record(line, is_plain=is_plain)
        try:
            if "seq0" in value:
                self._builder.add(decode_storage_run(value))
            else:
                refuse_stored_legacy(str(value.get("type")), value.get("data"))
                self._builder.add(value)
        except SessionCoreError as error:
            if _is_whole_record(value, error):
                raise RefusedRecordError(str(error)) from error
            raise BadRecordError(str(error)) from error
        fault = self._builder.state.surface_fault
        if fault is not None:
            raise RefusedRecordError(fault.reason, fault.index) from fault
        if unknown:
            self.unknown_keys.update(unknown)

    def finish(self) -> EventLog:
        """Return the log; the decoder is used up."""
        return self._builder.build()


def turn_boundary(line: bytes) -> str | None:
    """Return the type of a line that is a valid `turn/start` or `turn/end`, of whatever seq."""
    try:
        record = decode_storage_run(_parse_record(line)[0])
    except (BadRecordError, SessionCoreError):
        return None
    if isinstance(record, Event) and record.type in _BOUNDARIES:
        return record.type
    return None


@contextmanager
def gc_paused() -> Iterator[None]:
    """Hold the cyclic collector off while a log is decoded.

    Decoding makes nothing but long-lived objects; scanning them over and over triples its cost.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _parse_record(line: bytes, *, is_plain: bool = False) -> tuple[dict[str, Any], Iterable[str]]:
    """Return the JSON object of one line, and the keys that an event's envelope does not have.

    The object is without these, and frozen where that spares the core the work.
    """
    try:
        value = orjson.loads(line)
        is_trusted = True
    except orjson.JSONDecodeError:
        value = _parse_slowly(line)
        is_trusted = False
    if not isinstance(value, dict):
        raise BadRecordError("it is no JSON object")
    # A row has exact keys and few numbers, which are checked one by one; an event may hold any.
    if "seq0" in value:
        return value, ()
    if is_trusted and not is_plain and not has_plain_numbers(line):
        value = parse_json(line)
        is_trusted = False
    unknown = value.keys() - ENVELOPE_KEYS
    for key in unknown:
        del value[key]
    return (_frozen(value, 0) if is_trusted else value), unknown


def _is_whole_record(value: dict[str, Any], error: SessionCoreError) -> bool:
    """Tell whether a JSON object is a record that was refused, rather than no record at all.

    A packed row is kept whole or dropped whole, so that a malformed one is no record
    (damage-refuses-the-load, torn-tail-is-cut).
    """
    names_its_place = "type" in value and ("seq" in value or "seq0" in value)
    return names_its_place and not isinstance(error, MalformedRowError)


def _frozen(value: Any, depth: int) -> Any:
    """Freeze a fresh container of the parser's in place of the core's check of every leaf.

    Only for a line with plain numbers: everything else that orjson parses is lossless JSON.
    """
    if depth > MAX_DATA_DEPTH:
        raise RefusedRecordError("it is nested too deeply")
    if type(value) is dict:
        for key, child in value.items():
            if type(child) is dict or type(child) is list:
                value[key] = _frozen(child, depth + 1)
        return frozen_dict_of(value)
    kinds = set(map(type, value))
    if dict in kinds or list in kinds:
        value = [
            _frozen(child, depth + 1) if type(child) is dict or type(child) is list else child
            for child in value
        ]
    return frozen_list_of(value)


def _parse_slowly(line: bytes) -> Any:
    try:
        value = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else "not JSON"
        raise BadRecordError(reason) from error
    return clean_json(value)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")

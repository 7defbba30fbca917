"""Storage records to bytes and back.

One line a record, packed chunk rows for runs of deltas (contract 5.7). The only module, beside the
checksum and index files of the JSONL backend, that knows orjson.

orjson refuses what it cannot represent (lone surrogates, infinities, deep nesting) and turns
integers from 2^64 on into floats; such a line is parsed once more by the standard library (Z35).
"""

from __future__ import annotations

import gc
import json
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import orjson

from session_core import (
    Event,
    EventLog,
    EventLogBuilder,
    SessionCoreError,
    decode_storage_run,
    pack_records,
    refuse_stored_legacy,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from session_core import Record

_LINE = orjson.OPT_APPEND_NEWLINE

# 2^63 has 19 digits: a shorter run of digits cannot be an integer that orjson makes a float.
_LONG_INTEGER = re.compile(rb"[0-9]{19}")
_SURROGATE = re.compile("[\ud800-\udfff]")


class BadRecordError(Exception):
    """A line is not the next record of the log. Private to backends: they say where it stands."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


def encode_records(records: Iterable[Record], *, pack: bool = True) -> bytes:
    """Return the lines of a batch, runs of deltas as packed rows unless `pack` is off."""
    rows = pack_records(records) if pack else (event.to_json() for event in expand(records))
    return b"".join([_encode(row) for row in rows])


def encode_record(value: dict[str, Any]) -> bytes:
    """Return one JSON object as a line."""
    return _encode(value)


def parse_json(line: bytes | memoryview) -> Any:
    """Return the value of one line.

    Raises:
        BadRecordError: the line is not JSON.
    """
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        return _parse_slowly(bytes(line))
    if _LONG_INTEGER.search(line):
        return _parse_slowly(bytes(line))
    return value


def expand(records: Iterable[Record]) -> Iterator[Event]:
    """Return the events of records one by one."""
    for record in records:
        if isinstance(record, Event):
            yield record
        else:
            yield from record


class LogDecoder:
    """Builds a log from its lines, in order, each record checked once."""

    def __init__(self) -> None:
        self._builder = EventLogBuilder()

    @property
    def next_seq(self) -> int:
        """The seq that the next record must start with."""
        return len(self._builder)

    def feed(self, line: bytes | memoryview) -> None:
        """Take the next line, without its LF; a refused one leaves the log as it was.

        Raises:
            BadRecordError: the line is not the next record.
        """
        try:
            record = decode_storage_run(parse_json(line))
            if isinstance(record, Event):
                refuse_stored_legacy(record.type, record.data)
            self._builder.add(record)
        except SessionCoreError as error:
            raise BadRecordError(str(error)) from error

    def finish(self) -> EventLog:
        """Return the log; the decoder is used up."""
        return self._builder.build()


def is_turn_end(line: bytes | memoryview) -> bool:
    """Tell whether a line is a valid `turn/end` record, of whatever seq."""
    try:
        record = decode_storage_run(parse_json(line))
    except (BadRecordError, SessionCoreError):
        return False
    return isinstance(record, Event) and record.type == "turn/end"


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


def _encode(value: dict[str, Any]) -> bytes:
    return orjson.dumps(value, option=_LINE)


def _parse_slowly(line: bytes) -> Any:
    try:
        value = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else "not JSON"
        raise BadRecordError(reason) from error
    return _replace_surrogates(value)


def _refuse_constant(name: str) -> Any:
    msg = f"{name} is not JSON"
    raise ValueError(msg)


def _replace_surrogates(value: Any) -> Any:
    """Turn lone surrogates into U+FFFD, as at every other edge where text comes in (Z35)."""
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_replace_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_replace_surrogates(key): _replace_surrogates(item) for key, item in value.items()}
    return value

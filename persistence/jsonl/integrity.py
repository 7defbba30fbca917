"""The checksums beside a log: one line a flush, `{"end", "seq", "crc"}` (Z40).

`end` is the size of the log after the flush, `seq` the seq that follows it, `crc` the CRC-32 of
all bytes of the log up to `end`. Being cumulative, one line vouches for every flush before
it. That matters because the file is not fsynced: a power cut may take any of its lines, and what is
left must still hold. It also lets the next flush cover a line that is missing.

Pure functions over bytes; reading and writing the file is the scanner's and the writer's.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import NamedTuple

import orjson

_MAX_CRC = 0xFFFFFFFF


class Checksum(NamedTuple):
    """One line: the state of the log after a flush."""

    end: int
    seq: int
    crc: int


@dataclass(frozen=True, slots=True)
class Sidecar:
    """What a checksum file says.

    Attributes:
        checksums: readable lines, by `end`.
        size: where the next line belongs: behind the last readable one.
        unreadable: number of unreadable lines before that.
    """

    checksums: tuple[Checksum, ...] = ()
    size: int = 0
    unreadable: int = 0

    @property
    def last(self) -> Checksum | None:
        """The checksum that covers most of the log."""
        return self.checksums[-1] if self.checksums else None


def encode_checksum(checksum: Checksum) -> bytes:
    """Return the line of a checksum, newline included."""
    return orjson.dumps(checksum._asdict(), option=orjson.OPT_APPEND_NEWLINE)


def decode_sidecar(data: bytes) -> Sidecar:
    """Read a checksum file; what a crash left torn at its end is dropped."""
    checksums: list[Checksum] = []
    size = unreadable = skipped = start = 0
    while (newline := data.find(b"\n", start)) >= 0:
        checksum = _decode_checksum(data[start:newline])
        start = newline + 1
        if checksum is None:
            skipped += 1
            continue
        checksums.append(checksum)
        size, unreadable = start, skipped
    return Sidecar(tuple(sorted(checksums)), size, unreadable)


def extend_crc(crc: int, data: bytes | memoryview) -> int:
    """Return the checksum of a log whose bytes so far have `crc` and that goes on with `data`."""
    return zlib.crc32(data, crc)


def _decode_checksum(line: bytes) -> Checksum | None:
    try:
        value = orjson.loads(line)
    except ValueError:
        return None
    if type(value) is not dict or value.keys() != {"end", "seq", "crc"}:
        return None
    end, seq, crc = value["end"], value["seq"], value["crc"]
    if type(end) is not int or type(seq) is not int or type(crc) is not int:
        return None
    if end < 0 or seq < 0 or not 0 <= crc <= _MAX_CRC:
        return None
    return Checksum(end, seq, crc)

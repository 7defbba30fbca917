"""The checksums beside a log: one line a flush, `{"end", "seq", "crc", "sum"}`.

Rule: batches-are-checksummed.

`end` is the size of the log after the flush, `seq` the seq that follows it, `crc` the CRC-32 of
all bytes of the log up to `end`. Being cumulative, one line vouches for every flush before it.
That matters because the file is not fsynced: a power cut may take any of its lines, and what is
left must still hold. It also lets the next flush cover a line that is missing.

`sum` is the CRC-32 of the line's own three numbers. What a power cut or a bad bit makes of a line
must not be taken for damage of the log: a line whose sum is wrong is no line.

Pure functions over bytes; reading and writing the file is the scanner's and the writer's.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import NamedTuple

import orjson


class Checksum(NamedTuple):
    """One line: the state of the log after a flush."""

    end: int
    seq: int
    crc: int


@dataclass(frozen=True, slots=True)
class Sidecar:
    """What a checksum file says.

    Attributes:
        checksums: Readable lines, by `end`.
        size: Where the next line belongs: behind the last readable one.
    """

    checksums: tuple[Checksum, ...] = ()
    size: int = 0

    @property
    def last(self) -> Checksum | None:
        """The checksum that covers most of the log."""
        return self.checksums[-1] if self.checksums else None


def encode_checksum(checksum: Checksum) -> bytes:
    """Return the line of a checksum, newline included."""
    line = {**checksum._asdict(), "sum": _own_sum(checksum)}
    return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


def decode_sidecar(data: bytes) -> Sidecar:
    """Read a checksum file; lines that a crash left torn are passed over."""
    checksums: list[Checksum] = []
    size = start = 0
    while (newline := data.find(b"\n", start)) >= 0:
        checksum = _decode_checksum(data[start:newline])
        start = newline + 1
        if checksum is not None:
            checksums.append(checksum)
            size = start
    return Sidecar(tuple(sorted(checksums)), size)


def extend_crc(crc: int, data: bytes | memoryview) -> int:
    """Return the checksum of a log whose bytes so far have `crc` and that goes on with `data`."""
    return zlib.crc32(data, crc)


def _decode_checksum(line: bytes) -> Checksum | None:
    try:
        value = orjson.loads(line)
    except ValueError:
        return None
    if type(value) is not dict or value.keys() != {"end", "seq", "crc", "sum"}:
        return None
    checksum = Checksum(value["end"], value["seq"], value["crc"])
    if any(type(number) is not int or number < 0 for number in checksum):
        return None
    return checksum if value["sum"] == _own_sum(checksum) else None


def _own_sum(checksum: Checksum) -> int:
    return zlib.crc32(b"%d %d %d" % checksum)

"""What the JSONL backend remembers of a log between reading and writing it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from persistence.files import FileStat
    from persistence.jsonl.layout import SessionPaths


class LogPosition(NamedTuple):
    """Where a writer has left a log.

    Attributes:
        end: Bytes of the log.
        seq: The seq that follows its last record.
        crc: CRC-32 of all its bytes.
        sidecar_size: Bytes of its checksum file.
    """

    device: int
    inode: int
    end: int
    seq: int
    crc: int
    sidecar_size: int


@dataclass(frozen=True, slots=True)
class ReadPosition:
    """A log exactly as it was read.

    Attributes:
        size: Bytes of the file, torn tail included.
        end: Offset behind the last kept record; less than `size` when there is a torn tail.
        seq: The seq that follows the last kept record.
        crc: CRC-32 of the bytes up to `end`.
        needs_newline: The last kept record lacks its LF (unterminated-record-is-kept).
        sidecar_size: Where the next checksum line belongs.
    """

    paths: SessionPaths
    device: int
    inode: int
    size: int
    end: int
    seq: int
    crc: int
    needs_newline: bool
    sidecar_size: int


def revision(status: FileStat) -> str:
    """Return the opaque revision of a log: another one after every change of the file."""
    return (
        f"{status.device:x}-{status.inode:x}-{status.size:x}"
        f"-{status.mtime_ns:x}-{status.ctime_ns:x}"
    )

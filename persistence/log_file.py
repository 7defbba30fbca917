"""A log as a file of lines: a header, then one storage record a line (session-is-one-folder).

What the JSONL backend keeps and what an import takes. The file is read in blocks, never whole: its
bytes and the decoded log need not be in memory at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

from persistence.errors import CorruptLogError
from persistence.log_reader import LogReader
from persistence.records import gc_paused, has_plain_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from persistence.files import Files
    from session_core import SessionHeader

# Large enough that the calls vanish beside decoding, small enough not to show in the memory.
BLOCK = 1 << 20


class LogFileScan:
    """One pass over an open log file.

    Args:
        files: The file layer.
        handle: The open file.
        label: How errors name the session.
        parse_header: Makes a header of the first line.
        covered: How many bytes checksums cover; None for a log that is not checksummed.

    Attributes:
        reader: What holds the records.
        size: Bytes of the file.
        end: Offset behind the last kept record.
        crc: CRC-32 of the bytes up to `end`.
        covered_crc: CRC-32 of the bytes that checksums cover, as they are now.
        needs_newline: Whether the last kept record lacks its LF (unterminated-record-is-kept).
    """

    def __init__(
        self,
        files: Files,
        handle: int,
        label: str,
        parse_header: Callable[[bytes], SessionHeader],
        covered: int | None = None,
    ) -> None:
        self._files = files
        self._handle = handle
        self._label = label
        self._parse_header = parse_header
        self._covered = covered or 0
        self._header: SessionHeader | None = None
        self.reader = LogReader(label, is_checksummed=covered is not None)
        self.size = 0
        self.end = 0
        self.crc = 0
        self.covered_crc = 0
        self.needs_newline = False

    def run(self) -> SessionHeader:
        """Read the file from its first byte to its last; return its header.

        Raises:
            CorruptLogError: The file is not a log, or is damaged, or a record in it is refused.
            UnsupportedVersionError: The header names another format version.
            OSError: The operating system refused.
        """
        with gc_paused():
            for block, offset in self._blocks():
                kept = self._take_block(block, offset)
                self._extend_crc(memoryview(block)[:kept], offset)
        if self._header is None:
            raise CorruptLogError(self._label, "there is no header line", offset=0)
        if self.needs_newline and self._covered == self.end + 1:
            # Only the last LF is gone, and its checksum proves the rest: repair writes it back.
            self.covered_crc = crc32(b"\n", self.crc)
        elif self._covered > self.size:
            raise CorruptLogError(
                self._label,
                f"the file ends there, but {self._covered} bytes were stored",
                seq=self.reader.next_seq,
                offset=self.size,
            )
        return self._header

    def _blocks(self) -> Iterator[tuple[bytes, int]]:
        """Yield the file as blocks of complete lines, the last one as it is."""
        carried: list[bytes] = []
        start = 0
        while piece := self._files.read(self._handle, BLOCK, self.size):
            self.size += len(piece)
            cut = piece.rfind(b"\n") + 1
            if not cut:
                carried.append(piece)
                continue
            yield b"".join((*carried, piece[:cut])), start
            carried = [piece[cut:]]
            start = self.size - len(carried[0])
        if rest := b"".join(carried):
            yield rest, start

    def _take_block(self, block: bytes, offset: int) -> int:
        """Take the lines of a block; return how many bytes of it are kept."""
        # Asked of the block, since the answer is nearly always yes.
        is_plain = has_plain_numbers(block)
        lines = block.split(b"\n")
        unfinished = lines.pop()
        kept = 0
        if self._header is None and lines:
            self._header = self._parse_header(first := lines.pop(0))
            kept = len(first) + 1
        take, covered = self.reader.take, self._covered - offset
        for line in lines:
            if take(line, offset + kept, is_covered=kept < covered, is_plain=is_plain):
                kept += len(line) + 1
        # Only the last block ends without a LF.
        if unfinished and self._header is not None:
            is_covered = kept < covered
            if take(unfinished, offset + kept, is_covered=is_covered, is_whole=False):
                self.needs_newline = True
                kept += len(unfinished)
        return kept

    def _extend_crc(self, kept: memoryview, offset: int) -> None:
        inside = self._covered - offset
        if 0 < inside <= len(kept):
            self.covered_crc = crc32(kept[:inside], self.crc)
        self.crc = crc32(kept, self.crc)
        self.end += len(kept)

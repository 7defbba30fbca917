"""Reading one log: what is kept, what is torn, what is damage (contract 5.5, Z18, Z40).

Bytes up to the last checksum or the last `turn/end`, whichever is later, are committed: there
anything unreadable is corruption and nothing is touched. Behind them a crash may have left
anything; reading stops at the first line that is not the next record.

The log is read in blocks, never whole: its bytes and the decoded log need not be in memory at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from persistence.errors import CorruptLogError, InvalidSessionIdError, UnsupportedVersionError
from persistence.files import read_all
from persistence.jsonl.integrity import Checksum, Sidecar, decode_sidecar, extend_crc
from persistence.jsonl.layout import bucket_name, encode_id
from persistence.jsonl.mark import LogMark, revision
from persistence.records import (
    BadRecordError,
    LogDecoder,
    gc_paused,
    has_plain_numbers,
    is_turn_end,
    parse_json,
)
from persistence.seam import StoredLog
from session_core import SessionCoreError, SessionHeader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from persistence.files import Files
    from persistence.jsonl.layout import SessionPaths

FORMAT_VERSION = 0

# Large enough that the calls vanish beside decoding, small enough not to show in the memory.
_BLOCK = 1 << 20
# Headers may be longer than one piece (L9).
_HEADER_PIECE = 8 << 10
# A file without any newline is no log; listing must not read gigabytes to find that out.
_MAX_HEADER = 4 << 20


@dataclass(frozen=True, slots=True)
class _Tail:
    """Where a log stops being readable.

    Attributes:
        is_gap: bytes that were never written stand there, so what follows may be of the same write.
    """

    offset: int
    reason: str
    is_gap: bool

    def __str__(self) -> str:
        return f"{self.reason} at byte {self.offset}"


def read_log(files: Files, session_id: str | None, paths: SessionPaths) -> StoredLog:
    """Read a log and everything that vouches for it.

    Args:
        files: the file layer.
        session_id: whose log it must be; None to take the header's word.
        paths: where it lies.

    Raises:
        FileNotFoundError: there is no log.
        CorruptLogError: committed bytes are damaged, or the header is none of this session.
        UnsupportedVersionError: the header names another format version.
        OSError: the operating system refused.
    """
    # Before the log: a checksum never runs ahead of the bytes that it covers.
    sidecar = read_sidecar(files, paths)
    handle = files.open(paths.log, "read")
    try:
        with gc_paused():
            return _LogScan(files, handle, session_id, paths, sidecar).run()
    finally:
        files.close(handle)


def read_sidecar(files: Files, paths: SessionPaths) -> Sidecar | None:
    """Read the checksums of a log; None for a log that is older or imported and has no file."""
    try:
        return decode_sidecar(read_all(files, paths.sidecar))
    except FileNotFoundError:
        return None


def read_header(files: Files, paths: SessionPaths, session_id: str | None = None) -> SessionHeader:
    """Read the first line only.

    Raises:
        CorruptLogError: it is not the header of a session of this place.
        UnsupportedVersionError: it names another format version.
        OSError: the operating system refused.
    """
    label = session_id or paths.key
    handle = files.open(paths.log, "read")
    try:
        line = bytearray()
        while (newline := line.find(b"\n")) < 0:
            piece = files.read(handle, _HEADER_PIECE, len(line))
            if not piece or len(line) > _MAX_HEADER:
                raise CorruptLogError(label, "there is no header line", offset=0)
            line += piece
    finally:
        files.close(handle)
    return decode_header(bytes(line[:newline]), paths, session_id)


def decode_header(line: bytes, paths: SessionPaths, session_id: str | None = None) -> SessionHeader:
    """Return the header of a log's first line, having seen that the log is where it belongs.

    Raises:
        CorruptLogError: the line is not the header of a session of this place.
        UnsupportedVersionError: it names another format version.
    """
    label = session_id or paths.key
    try:
        value = parse_json(line)
    except BadRecordError as error:
        raise CorruptLogError(label, "the header line is not JSON", offset=0) from error
    if type(value) is not dict or value.pop("type", None) != "session":
        raise CorruptLogError(label, "the first line is no session header", offset=0)
    version = value.get("version")
    if type(version) is not int or version != FORMAT_VERSION:
        raise UnsupportedVersionError(label, version, FORMAT_VERSION)
    try:
        header = SessionHeader.from_json(value)
    except SessionCoreError as error:
        raise CorruptLogError(label, str(error), offset=0) from error
    if (session_id or header.id) != header.id or not _is_named(paths, header.id):
        raise CorruptLogError(label, f"its header names session {header.id!r}", offset=0)
    if header.cwd is not None and bucket_name(header.cwd) != paths.bucket_name:
        raise CorruptLogError(label, f"its header names directory {header.cwd!r}", offset=0)
    return header


def _is_named(paths: SessionPaths, session_id: str) -> bool:
    try:
        return encode_id(session_id) == paths.directory_name
    except InvalidSessionIdError:
        return False


class _LogScan:
    """One pass over one open log."""

    def __init__(
        self,
        files: Files,
        handle: int,
        session_id: str | None,
        paths: SessionPaths,
        sidecar: Sidecar | None,
    ) -> None:
        self._files = files
        self._handle = handle
        self._session_id = session_id
        self._label = session_id or paths.key
        self._paths = paths
        self._has_sidecar = sidecar is not None
        self._sidecar = sidecar = sidecar or Sidecar()
        self._decoder = LogDecoder()
        self._header: SessionHeader | None = None
        self._size = 0
        self._end = 0
        self._crc = 0
        self._needs_newline = False
        self._tail: _Tail | None = None
        self._passed_end = False
        self._covered = sidecar.last or Checksum(0, 0, 0)
        self._crc_at_covered = 0

    def run(self) -> StoredLog:
        status = self._files.handle_stat(self._handle)
        for block, offset in self._blocks():
            self._take_block(block, offset)
        if self._header is None:
            raise CorruptLogError(self._label, "there is no header line", offset=0)
        self._check_tail()
        self._check_covered()
        torn = self._tail is not None or self._needs_newline
        return StoredLog(
            header=self._header,
            log=self._decoder.finish(),
            torn=(self._tail or "its last line lacks a newline") if torn else None,
            mark=LogMark(
                paths=self._paths,
                device=status.device,
                inode=status.inode,
                size=self._size,
                end=self._end,
                seq=self._decoder.next_seq,
                crc=self._crc,
                needs_newline=self._needs_newline,
                sidecar_size=self._sidecar.size,
            ),
            problems=self._problems(),
            revision=revision(status),
        )

    def _blocks(self) -> Iterator[tuple[bytes, int]]:
        """Yield the file as blocks of complete lines, the last one as it is."""
        carried: list[bytes] = []
        start = 0
        while piece := self._files.read(self._handle, _BLOCK, self._size):
            self._size += len(piece)
            cut = piece.rfind(b"\n") + 1
            if not cut:
                carried.append(piece)
                continue
            yield b"".join((*carried, piece[:cut])), start
            carried = [piece[cut:]]
            start = self._size - len(carried[0])
        if rest := b"".join(carried):
            yield rest, start

    def _take_block(self, block: bytes, offset: int) -> None:
        # Asked of the block, since the answer is nearly always yes.
        is_plain = has_plain_numbers(block)
        lines = block.split(b"\n")
        unfinished = lines.pop()
        kept = 0
        if self._tail is None:
            for line in lines:
                self._take_line(line, offset + kept, is_plain=is_plain)
                if self._tail is not None:
                    break
                kept += len(line) + 1
            else:
                kept += self._take_unfinished(unfinished, offset + kept)
        if self._tail is not None:
            self._look_beyond(self._tail, block[kept:])
        self._extend_crc(memoryview(block)[:kept], offset)

    def _take_line(self, line: bytes, offset: int, *, is_plain: bool) -> None:
        if self._header is None:
            self._header = decode_header(line, self._paths, self._session_id)
            return
        try:
            self._decoder.feed(line, is_plain=is_plain)
        except BadRecordError as error:
            # No line of ours holds a NUL; a medium that took the end of a write first shows them.
            is_gap = self._has_sidecar and b"\0" in line
            self._tail = _Tail(offset, error.reason, is_gap)
            self._refuse_if_covered()

    def _take_unfinished(self, line: bytes, offset: int) -> int:
        """Take what stands behind the last LF of the file; return how much of it is kept."""
        if not line or self._header is None:
            return 0
        self._take_line(line, offset, is_plain=False)
        self._needs_newline = self._tail is None
        return len(line) if self._needs_newline else 0

    def _look_beyond(self, tail: _Tail, rest: bytes) -> None:
        """Refuse the log if a `turn/end` follows the unreadable line: then that was committed.

        Behind a gap one may end the file: it then ends the write that has the gap.
        """
        *lines, half = rest.split(b"\n")
        for line in lines:
            if self._passed_end:
                self._refuse()
            if b'"turn/end"' in line and is_turn_end(line):
                if not tail.is_gap:
                    self._refuse()
                self._passed_end = True
        if half and self._passed_end:
            self._refuse()

    def _extend_crc(self, kept: memoryview, offset: int) -> None:
        inside = self._covered.end - offset
        if 0 < inside <= len(kept):
            self._crc_at_covered = extend_crc(self._crc, kept[:inside])
        self._crc = extend_crc(self._crc, kept)
        self._end += len(kept)

    def _check_tail(self) -> None:
        if self._needs_newline and self._covered.end == self._end + 1:
            # Only the last LF is gone, and its checksum proves the rest: repair writes it back.
            self._crc_at_covered = extend_crc(self._crc, b"\n")
        elif self._covered.end > self._size:
            raise CorruptLogError(
                self._label,
                f"the file ends there, but {self._covered.end} bytes were stored",
                seq=self._decoder.next_seq,
                offset=self._size,
            )

    def _check_covered(self) -> None:
        """Compare the covered bytes with their checksum; the last one vouches for all."""
        if self._crc_at_covered == self._covered.crc:
            return
        start, end = first_mismatch(self._files, self._handle, self._sidecar)
        raise CorruptLogError(
            self._label,
            f"bytes {start} to {end} do not match their checksum",
            offset=start,
        )

    def _refuse_if_covered(self) -> None:
        if self._tail is not None and self._tail.offset < self._covered.end:
            self._refuse()

    def _refuse(self) -> None:
        tail = self._tail
        if tail is not None:
            raise CorruptLogError(
                self._label, tail.reason, seq=self._decoder.next_seq, offset=tail.offset
            )

    def _problems(self) -> tuple[str, ...]:
        # Unreadable checksums are none: a power cut may leave some, and they protect nothing.
        unknown = sorted(self._decoder.unknown_keys)
        return (f"events with unknown keys {unknown}",) if unknown else ()


def first_mismatch(files: Files, handle: int, sidecar: Sidecar) -> tuple[int, int]:
    """Return the narrowest range of bytes that is known to hold the damage.

    Call it only when the last checksum does not match.
    """
    good = position = crc = 0
    for checksum in sidecar.checksums:
        while position < checksum.end:
            piece = files.read(handle, min(_BLOCK, checksum.end - position), position)
            if not piece:
                return good, checksum.end
            crc = extend_crc(crc, piece)
            position += len(piece)
        if crc != checksum.crc:
            return good, checksum.end
        good = checksum.end
    return good, position

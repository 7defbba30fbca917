"""Reading one log of the store: its file, its place, and the checksums beside it.

Rule: batches-are-checksummed.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from persistence.errors import CorruptLogError, InvalidSessionIdError
from persistence.files import read_all
from persistence.header_line import decode_header
from persistence.jsonl.integrity import Checksum, Sidecar, decode_sidecar, extend_crc
from persistence.jsonl.layout import bucket_name
from persistence.jsonl.position import ReadPosition, revision
from persistence.log_file import BLOCK, LogFileScan
from persistence.names import encode_id
from persistence.storage import StoredLog

if TYPE_CHECKING:
    from persistence.files import Files
    from persistence.jsonl.layout import SessionPaths
    from session_core import SessionHeader

# Headers may be longer than one piece (log-is-one-record-per-line).
_HEADER_PIECE = 8 << 10
# A file without any newline is not a log; listing must not read gigabytes to find that out.
_MAX_HEADER = 4 << 20


def read_log(files: Files, session_id: str | None, paths: SessionPaths) -> StoredLog:
    """Read a log and everything that vouches for it.

    Args:
        files: The file layer.
        session_id: Whose log it must be; None to take the header's word.
        paths: Where it lies.

    Raises:
        FileNotFoundError: There is no log.
        CorruptLogError: Committed bytes are damaged, an event is refused, or the header is not one
            of this session.
        UnsupportedVersionError: The header names another format version.
        OSError: The operating system refused.
    """
    # Before the log: a checksum never runs ahead of the bytes that it covers.
    sidecar = read_sidecar(files, paths)
    covered = None if sidecar is None else sidecar.last or Checksum(0, 0, 0)
    label = session_id or paths.key
    parse_header = partial(_header_of_place, paths, session_id)
    handle = files.open(paths.log, "read")
    try:
        status = files.handle_stat(handle)
        scan = LogFileScan(files, handle, label, parse_header, covered and covered.end)
        header = scan.run()
        if sidecar and covered and scan.covered_crc != covered.crc:
            start, end = first_mismatch(files, handle, sidecar)
            reason = f"bytes {start} to {end} do not match their checksum"
            raise CorruptLogError(label, reason, offset=start)
    finally:
        files.close(handle)
    reader = scan.reader
    torn = "its last line lacks a newline" if scan.needs_newline else reader.torn
    mark = ReadPosition(
        paths=paths,
        device=status.device,
        inode=status.inode,
        size=scan.size,
        end=scan.end,
        seq=reader.next_seq,
        crc=scan.crc,
        needs_newline=scan.needs_newline,
        sidecar_size=sidecar.size if sidecar else 0,
    )
    return StoredLog(header, reader.finish(), torn, mark, reader.problems, revision(status))


def read_sidecar(files: Files, paths: SessionPaths) -> Sidecar | None:
    """Read the checksums of a log; None for a log that is older or imported and has no file."""
    try:
        return decode_sidecar(read_all(files, paths.sidecar))
    except FileNotFoundError:
        return None


def read_header(files: Files, paths: SessionPaths, session_id: str | None = None) -> SessionHeader:
    """Read the first line only.

    Raises:
        CorruptLogError: It is not the header of a session of this place.
        UnsupportedVersionError: It names another format version.
        OSError: The operating system refused.
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
    return _header_of_place(paths, session_id, bytes(line[:newline]))


def first_mismatch(files: Files, handle: int, sidecar: Sidecar) -> tuple[int, int]:
    """Return the narrowest range of bytes that is known to hold the damage.

    Call it only when the last checksum does not match.
    """
    good = position = crc = 0
    for checksum in sidecar.checksums:
        while position < checksum.end:
            piece = files.read(handle, min(BLOCK, checksum.end - position), position)
            if not piece:
                return good, checksum.end
            crc = extend_crc(crc, piece)
            position += len(piece)
        if crc != checksum.crc:
            return good, checksum.end
        good = checksum.end
    return good, position


def _header_of_place(paths: SessionPaths, session_id: str | None, line: bytes) -> SessionHeader:
    """Return the header of a first line, having seen that its log is where it belongs."""
    label = session_id or paths.key
    header = decode_header(label, line)
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

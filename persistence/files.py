"""The file interface: every disk access of the JSONL backend goes through `Files`.

A narrow, synchronous set of operations, so that faults, short writes and power cuts can be put
under the backend without touching it. Errors are plain `OSError`s; paths are absolute strings.
"""

# This is the raw layer; a list stats ten thousand paths, and pathlib would triple that.
# ruff: noqa: PTH102, PTH105, PTH106, PTH108, PTH116, PTH208

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

OpenMode = Literal["read", "write", "update", "create", "append"]

if TYPE_CHECKING:
    from collections.abc import Callable

_DIR_MODE = 0o700  # conversations are private
_FILE_MODE = 0o600

# O_NOFOLLOW is left out: users may place the store behind links of their own.
_FLAGS: dict[str, int] = {
    "read": os.O_RDONLY,
    "write": os.O_WRONLY,
    "update": os.O_WRONLY | os.O_CREAT,
    "create": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
    "append": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
}


FileKind = Literal["file", "directory", "other"]


class FileStat(NamedTuple):
    """What the backend asks of a file's status."""

    kind: FileKind
    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int


class Files(Protocol):
    """Blocking file operations; a handle is the integer that `open` returned."""

    def open(self, path: str, mode: OpenMode) -> int:
        """Open a file: `read`, `write` (it must exist), `update` (it may), `create` (it must not).

        `append` (it may exist) is for a file that several processes extend, with `append` only.
        """

    def close(self, handle: int) -> None:
        """Close a handle."""

    def read(self, handle: int, size: int, offset: int) -> bytes:
        """Read up to `size` bytes from `offset`; empty at the end."""

    def write(self, handle: int, data: bytes | memoryview, offset: int) -> int:
        """Write at `offset` and return how many bytes were taken, which may be fewer."""

    def append(self, handle: int, data: bytes) -> int:
        """Write at the end in one piece and return how many bytes were taken."""

    def lock(self, handle: int) -> bool:
        """Take the file's own lock, which ends with its handle; False if another handle has it."""
        ...

    def sync(self, handle: int) -> None:
        """Return once the file's bytes and size are on the medium."""

    def truncate(self, handle: int, size: int) -> None:
        """Cut the file to `size` bytes."""

    def stat(self, path: str) -> FileStat:
        """Return the status of what a path names, links followed."""

    def handle_stat(self, handle: int) -> FileStat:
        """Return the status of an open file."""

    def link(self, source: str, target: str) -> None:
        """Give a file a second name; `FileExistsError` if that is taken."""

    def rename(self, source: str, target: str) -> None:
        """Move a file over another, atomically."""

    def unlink(self, path: str) -> None:
        """Remove a name."""

    def mkdir(self, path: str) -> None:
        """Create one directory; `FileExistsError` if it exists."""

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""

    def sync_dir(self, path: str) -> None:
        """Return once the names in a directory are on the medium."""

    def list_dir(self, path: str) -> list[str]:
        """Return the names in a directory, in no order."""


class OsFiles:
    """The real file system."""

    def open(self, path: str, mode: OpenMode) -> int:
        """See `Files.open`."""
        return os.open(path, _FLAGS[mode] | os.O_CLOEXEC, _FILE_MODE)

    def close(self, handle: int) -> None:
        """See `Files.close`."""
        os.close(handle)

    def read(self, handle: int, size: int, offset: int) -> bytes:
        """See `Files.read`."""
        return os.pread(handle, size, offset)

    def write(self, handle: int, data: bytes | memoryview, offset: int) -> int:
        """See `Files.write`."""
        return os.pwrite(handle, data, offset)

    def append(self, handle: int, data: bytes) -> int:
        """See `Files.append`."""
        return os.write(handle, data)

    def lock(self, handle: int) -> bool:
        """See `Files.lock`."""
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    if sys.platform == "darwin":

        def sync(self, handle: int) -> None:
            """See `Files.sync`."""
            # fsync on macOS stops at the drive's cache (database-is-durable-and-private).
            fcntl.fcntl(handle, fcntl.F_FULLFSYNC)

    else:

        def sync(self, handle: int) -> None:
            """See `Files.sync`."""
            # fdatasync writes the size too, and spares the timestamps.
            os.fdatasync(handle)

    def truncate(self, handle: int, size: int) -> None:
        """See `Files.truncate`."""
        os.ftruncate(handle, size)

    def stat(self, path: str) -> FileStat:
        """See `Files.stat`."""
        return _file_stat(os.stat(path))

    def handle_stat(self, handle: int) -> FileStat:
        """See `Files.handle_stat`."""
        return _file_stat(os.fstat(handle))

    def link(self, source: str, target: str) -> None:
        """See `Files.link`."""
        os.link(source, target)

    def rename(self, source: str, target: str) -> None:
        """See `Files.rename`."""
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        """See `Files.unlink`."""
        os.unlink(path)

    def mkdir(self, path: str) -> None:
        """See `Files.mkdir`."""
        os.mkdir(path, _DIR_MODE)

    def rmdir(self, path: str) -> None:
        """See `Files.rmdir`."""
        os.rmdir(path)

    def sync_dir(self, path: str) -> None:
        """See `Files.sync_dir`."""
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def list_dir(self, path: str) -> list[str]:
        """See `Files.list_dir`."""
        return os.listdir(path)


def make_dirs(files: Files, path: str) -> None:
    """Create a directory and the missing ones above it, each durable in its parent."""
    missing: list[str] = []
    while not _is_dir(files, path):
        missing.append(path)
        path = path.rpartition("/")[0] or "/"
    for made in reversed(missing):
        try:
            files.mkdir(made)
        except FileExistsError:
            if not _is_dir(files, made):
                raise
        try:
            files.sync_dir(made.rpartition("/")[0] or "/")
        except OSError:
            # The next attempt must find it missing again, or it would never be made durable.
            with contextlib.suppress(OSError):
                files.rmdir(made)
            raise


def _is_dir(files: Files, path: str) -> bool:
    try:
        status = files.stat(path)
    except FileNotFoundError:
        return False
    if status.kind != "directory":
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
    return True


def write_all(files: Files, handle: int, data: bytes, offset: int) -> None:
    """Write every byte at `offset`, however many writes that takes."""
    view = memoryview(data)
    while view:
        taken = files.write(handle, view, offset)
        if taken <= 0:
            raise OSError(errno.EIO, "the file system took no bytes")
        view = view[taken:]
        offset += taken


def read_all(files: Files, path: str) -> bytes:
    """Read a whole small file."""
    handle = files.open(path, "read")
    try:
        parts: list[bytes] = []
        offset = 0
        while part := files.read(handle, 1 << 20, offset):
            parts.append(part)
            offset += len(part)
        return b"".join(parts)
    finally:
        files.close(handle)


_FORMAT_BITS = 0o170000
_KINDS: dict[int, FileKind] = {0o100000: "file", 0o040000: "directory"}

# Half the cost of calling the class, which a list of ten thousand sessions pays for each.
_new_file_stat: Callable[[tuple[Any, ...]], FileStat] = partial(tuple.__new__, FileStat)


def _file_stat(status: os.stat_result) -> FileStat:
    return _new_file_stat(
        (
            _KINDS.get(status.st_mode & _FORMAT_BITS, "other"),
            status.st_dev,
            status.st_ino,
            status.st_size,
            status.st_mtime_ns,
            status.st_ctime_ns,
        )
    )

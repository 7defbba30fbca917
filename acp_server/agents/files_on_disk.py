"""Files of the disk as tools may touch them: regular ones, of a bounded size.

All of it blocks, so it is called in worker threads.

Rules: client-and-disk-behave-alike, reads-are-bounded, presets-end-at-the-roots.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_READ_BYTES = 100_000_000
"""The largest file that is read unless an agent says otherwise: it is held in memory whole."""

_FLAGS = os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
"""Nothing that is opened by mistake may wait for a peer, or become the server's terminal."""


def read_file(path: str, max_bytes: int) -> bytes:
    """Return what a regular file holds.

    Raises:
        OSError: It cannot be read, is no regular file, or holds more than `max_bytes`.
    """
    require_readable(path, max_bytes)
    with open(os.open(path, os.O_RDONLY | _FLAGS), "rb", buffering=0) as file:  # noqa: PTH123 - a descriptor
        # Once more: the name may mean another file by now, and a file may grow.
        _require_regular(path, os.fstat(file.fileno()))
        content = bytearray()
        while len(content) <= max_bytes:
            part = file.read(min(1 << 20, max_bytes + 1 - len(content)))
            if not part:
                return bytes(content)
            content += part
    raise _too_large(path, max_bytes)


def write_file(path: str, content: bytes) -> None:
    """Replace what a regular file holds, or create it and the folders above it.

    Raises:
        OSError: It cannot be written, or is no regular file.
    """
    prepare_writing(path)
    # Not emptied by the opening: only once it is known to be a regular file.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | _FLAGS, 0o666)
    with open(descriptor, "wb", buffering=0) as file:  # noqa: PTH123 - a descriptor
        _require_regular(path, os.fstat(descriptor))
        file.truncate()
        rest = memoryview(content)
        while rest:
            rest = rest[file.write(rest) :]


def path_outside(path: str, roots: Iterable[str]) -> str | None:
    """Return where a path leads if that is in none of the roots, else None.

    Links are resolved, in the part of the path that exists; the rest is taken as it will be made.

    Args:
        path: Absolute.
        roots: Absolute directories, which may be links themselves.
    """
    try:
        real = os.path.realpath(path)
    except ValueError:
        return None  # a NUL: it leads nowhere, and whoever opens it is told so
    for root in roots:
        folder = os.path.realpath(root)
        if real == folder or real.startswith(folder.rstrip("/") + "/"):
            return None
    return real


def require_readable(path: str, max_bytes: int) -> None:
    """Return if a path is a regular file of at most `max_bytes`.

    Raises:
        OSError: It is not, or is not there.
    """
    status = os.stat(path)  # noqa: PTH116 - paths are texts here
    _require_regular(path, status)
    if status.st_size > max_bytes:
        raise _too_large(path, max_bytes)


def prepare_writing(path: str) -> None:
    """Make the folders above a path.

    Raises:
        OSError: They cannot be made, or what is there is no regular file.
    """
    try:
        _require_regular(path, os.stat(path))  # noqa: PTH116 - as above
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120 - as above


def _require_regular(path: str, status: os.stat_result) -> None:
    """Refuse what is no regular file, for that may wait for ever, never end, or do something."""
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(status.st_mode):
        message = "not a regular file"
        raise OSError(errno.EINVAL, message, path)


def _too_large(path: str, max_bytes: int) -> OSError:
    message = f"larger than the {max_bytes} bytes that are read at most"
    return OSError(errno.EFBIG, message, path)

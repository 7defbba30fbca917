"""Read and write a pair of file descriptors without blocking the event loop.

Works for pipes, sockets, terminals, regular files and devices such as /dev/null. Knows nothing of
which descriptors these are; `stdio` does.
"""

import contextlib
import errno
import os
from collections.abc import Awaitable

import anyio
from anyio.lowlevel import checkpoint


class DescriptorStream:
    """A `ByteStream` over two descriptors, which it owns and closes.

    `O_NONBLOCK` belongs to the open file, which the parent process may share: the stream sets it
    and gives the former state back when it is closed.

    Args:
        read_fd: Descriptor to read from.
        write_fd: Descriptor to write to; a different number, though it may be the same open file.
    """

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._closed = False
        # Both states are read before either is set: the two may be one open file.
        self._was_blocking = [(fd, os.get_blocking(fd)) for fd in (read_fd, write_fd)]
        for fd in (read_fd, write_fd):
            os.set_blocking(fd, False)

    async def read(self, max_bytes: int) -> bytes:
        """Wait for bytes; return `b""` at the end. Yields to the event loop at least once."""
        await checkpoint()
        while not self._closed:
            # Trying first is what makes regular files work, which epoll refuses (EPERM): they
            # never ask us to wait.
            try:
                return os.read(self._read_fd, max_bytes)
            except BlockingIOError:
                await _unless_closed(anyio.wait_readable(self._read_fd))
        return b""

    async def write(self, data: bytes) -> None:
        """Write all of `data`. Raises `OSError` when nobody can read it any more."""
        rest = memoryview(data)
        while not self._closed:
            try:
                rest = rest[os.write(self._write_fd, rest) :]
            except BlockingIOError:
                await _unless_closed(anyio.wait_writable(self._write_fd))
            if not rest:
                return
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    def close(self) -> None:
        """Give `O_NONBLOCK` back, close both descriptors, wake who waits for them. Idempotent."""
        if self._closed:
            return
        self._closed = True
        for fd, was_blocking in self._was_blocking:
            os.set_blocking(fd, was_blocking)
        for fd in (self._read_fd, self._write_fd):
            _wake_waiters(fd)
            os.close(fd)


async def _unless_closed(ready: Awaitable[None]) -> None:
    with contextlib.suppress(anyio.ClosedResourceError):
        await ready


def _wake_waiters(fd: int) -> None:
    # Outside of an event loop nobody waits.
    with contextlib.suppress(anyio.NoEventLoopError):
        anyio.notify_closing(fd)

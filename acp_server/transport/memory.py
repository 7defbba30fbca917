"""Two transports joined in memory, for tests and for a client in the same process.

They behave as the two ends of a pair of pipes: the same framer and outbox, a bounded buffer in
each direction, an end of input when the other side closes.
"""

import errno
import os
from typing import Final

import anyio
from anyio.lowlevel import checkpoint

from acp_server.transport.framing import DEFAULT_MAX_FRAME_BYTES
from acp_server.transport.stream import StreamTransport

PIPE_BYTES: Final = 64 * 1024
"""Default buffer in each direction: what a pipe of Linux holds."""


class MemoryPipe:
    """One direction: bytes in order, bounded, closable from either end."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._buffer = bytearray()
        self._closed = False
        self._changed = anyio.Event()

    async def read(self, max_bytes: int) -> bytes:
        """Wait for bytes; return `b""` when the pipe is closed and empty."""
        while not self._buffer and not self._closed:
            await self._changed.wait()
        data = bytes(self._buffer[:max_bytes])
        del self._buffer[:max_bytes]
        self._notify()
        return data

    async def write(self, data: bytes) -> None:
        """Wait until all of `data` is in the pipe. Raises `BrokenPipeError` once it is closed."""
        rest = memoryview(data)
        while not self._closed:
            free = self._capacity - len(self._buffer)
            self._buffer += rest[:free]
            rest = rest[free:]
            self._notify()
            if not rest:
                return
            await self._changed.wait()
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    def close(self) -> None:
        """End it from either side; what is in it can still be read. Idempotent."""
        self._closed = True
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


class _MemoryStream:
    """A `ByteStream` over two memory pipes."""

    def __init__(self, source: MemoryPipe, sink: MemoryPipe) -> None:
        self._source = source
        self._sink = sink

    async def read(self, max_bytes: int) -> bytes:
        await checkpoint()
        return await self._source.read(max_bytes)

    async def write(self, data: bytes) -> None:
        await self._sink.write(data)

    def close(self) -> None:
        self._source.close()
        self._sink.close()


class MemoryTransport(StreamTransport):
    """One end of a pair, see `memory_transport_pair`."""

    def __init__(self, source: MemoryPipe, sink: MemoryPipe, *, max_frame_bytes: int) -> None:
        super().__init__(_MemoryStream(source, sink), max_frame_bytes=max_frame_bytes)
        self._source = source
        self._sink = sink

    async def send_eof(self) -> None:
        """Write what was sent, then end the other side's input; reading goes on."""
        await self.drained()
        self._sink.close()

    def stop_reading(self) -> None:
        """Break the other side's output, as a client does that closes its end of our stdout."""
        self._source.close()


def memory_transport_pair(
    *, pipe_bytes: int = PIPE_BYTES, max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES
) -> tuple[MemoryTransport, MemoryTransport]:
    """Return two joined transports; what one sends the other receives.

    Args:
        pipe_bytes: Bytes that one side may have written and the other not yet read.
        max_frame_bytes: As for any transport.
    """
    there, back = MemoryPipe(pipe_bytes), MemoryPipe(pipe_bytes)
    return (
        MemoryTransport(back, there, max_frame_bytes=max_frame_bytes),
        MemoryTransport(there, back, max_frame_bytes=max_frame_bytes),
    )

"""A transport over any two-way byte stream: the framer before it, the outbox behind it."""

from typing import Final, Protocol, Self

from acp_server.transport.framing import DEFAULT_MAX_FRAME_BYTES, Framer, OversizeFrame
from acp_server.transport.outbox import Outbox

READ_BYTES: Final = 256 * 1024
"""Asked for in one read: several pipe buffers, so that a large frame takes few loop passes."""


class ByteStream(Protocol):
    """The bytes below a transport; both directions may end on their own."""

    async def read(self, max_bytes: int) -> bytes:
        """Wait for bytes; return `b""` at the end. Yields to the event loop at least once."""
        ...

    async def write(self, data: bytes) -> None:
        """Write all of `data`. Raises `OSError` when nobody can read it any more."""
        ...

    def close(self) -> None:
        """Release both directions. Idempotent."""
        ...


class StreamTransport:
    """A `Transport` over a `ByteStream`, which it owns.

    Use it as an async context manager, or call `aclose`; `run` is started by whoever serves it.
    """

    def __init__(
        self, stream: ByteStream, *, max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES
    ) -> None:
        self._stream = stream
        self._framer = Framer(max_frame_bytes)
        self._outbox = Outbox()
        self._input_ended = False
        # The outbox's own method: one call less on the path of every token.
        self.send = self._outbox.put

    @property
    def closed(self) -> bool:
        """Whether the client can no longer be reached; what is sent then is dropped."""
        return self._outbox.closed

    @property
    def congested(self) -> bool:
        """Whether producers of updates should wait for `room`."""
        return self._outbox.congested

    @property
    def overloaded(self) -> bool:
        """Whether reading should pause until `relieved`."""
        return self._outbox.overloaded

    async def run(self) -> None:
        """Write what is sent, until cancelled or until the client is gone."""
        await self._outbox.run(self._stream.write)

    async def receive(self) -> list[bytes | OversizeFrame] | None:
        """Wait for input; return the frames it completes (perhaps none), `None` at the end.

        A connection that breaks has ended; a last line without LF is a frame.
        """
        if self._input_ended:
            return None
        try:
            data = await self._stream.read(READ_BYTES)
        except OSError:
            data = b""
        if data:
            return self._framer.feed(data)
        self._input_ended = True
        return self._framer.finish() or None

    async def room(self) -> None:
        """Return as soon as the connection is not congested, or is closed."""
        await self._outbox.room()

    async def relieved(self) -> None:
        """Return as soon as the connection is not overloaded, or is closed."""
        await self._outbox.relieved()

    async def drained(self) -> None:
        """Return when all that was sent before this call is written, or the client is gone."""
        await self._outbox.drained()

    async def aclose(self) -> None:
        """Release the connection. Idempotent; does not wait for unwritten frames."""
        self._outbox.close()
        self._stream.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

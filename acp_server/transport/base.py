"""What a transport is: frames in, frames out, and how full the way out is.

Transports carry bytes. They know nothing of JSON, of requests or of sessions.
"""

from typing import Protocol

from acp_server.transport.framing import OversizeFrame


class Transport(Protocol):
    """One connection to a client.

    All of it belongs to one event loop; no method may be called from another thread.
    """

    @property
    def closed(self) -> bool:
        """Whether the client can no longer be reached; what is sent then is dropped."""
        ...

    @property
    def congested(self) -> bool:
        """Whether producers of updates should wait for `room` (8 MiB are unread).

        Rule: producers-wait-for-readers.
        """
        ...

    @property
    def overloaded(self) -> bool:
        """Whether reading should pause, since 64 MiB are unread (producers-wait-for-readers)."""
        ...

    async def run(self) -> None:
        """Write what is sent, until cancelled or until the client is gone. Runs as one task."""
        ...

    async def receive(self) -> list[bytes | OversizeFrame] | None:
        """Wait for input; return the frames it completes (perhaps none), `None` at the end."""
        ...

    def send(self, frame: bytes) -> None:
        """Enqueue one frame, its LF included. Never blocks, never fails."""
        ...

    async def room(self) -> None:
        """Return as soon as the connection is not congested, or is closed."""
        ...

    async def relieved(self) -> None:
        """Return as soon as the connection is not overloaded, or is closed."""
        ...

    async def drained(self) -> None:
        """Return when all that was sent before this call is written, or the client is gone."""
        ...

    async def aclose(self) -> None:
        """Release the connection. Idempotent; does not wait for unwritten frames."""
        ...

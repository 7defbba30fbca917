import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import anyio
import pytest

from acp_server.rpc import Handler, MethodTable, NotificationHandler, Peer
from acp_server.transport import MemoryTransport, OversizeFrame, memory_transport_pair

Frame = dict[str, Any]


class Client:
    """The other end of a peer under test, frame by frame."""

    def __init__(self, transport: MemoryTransport, peer: Peer, served: anyio.Event) -> None:
        self.transport = transport
        self.peer = peer
        self.served = served
        self._received: list[bytes | OversizeFrame] = []

    def write(self, *messages: Frame | bytes) -> None:
        """Send messages in one packet; bytes go as they are, without an LF added."""
        self.transport.send(
            b"".join(
                message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
                for message in messages
            )
        )

    @staticmethod
    def request(id: Any, method: str, params: Any = None) -> Frame:
        """Build a request; without params when they are `None`."""
        message: Frame = {"jsonrpc": "2.0", "id": id, "method": method}
        return message if params is None else {**message, "params": params}

    @staticmethod
    def notification(method: str, params: Any = None) -> Frame:
        """Build a notification; without params when they are `None`."""
        message: Frame = {"jsonrpc": "2.0", "method": method}
        return message if params is None else {**message, "params": params}

    def call(self, id: Any, method: str, params: Any = None) -> None:
        """Send one request."""
        self.write(self.request(id, method, params))

    async def raw_frame(self) -> bytes:
        """Return the bytes of the server's next frame."""
        while not self._received:
            frames = await self.transport.receive()
            assert frames is not None, "the server closed the connection"
            self._received += frames
        raw = self._received.pop(0)
        assert isinstance(raw, bytes)
        return raw

    async def frame(self) -> Frame:
        """Return the next frame of the server, without the constant member."""
        value: Frame = json.loads(await self.raw_frame())
        assert value.pop("jsonrpc") == "2.0"
        return value

    async def frames(self, count: int) -> list[Frame]:
        """Return the next frames of the server."""
        return [await self.frame() for _ in range(count)]

    async def ask(self, id: Any, method: str, params: Any = None) -> Frame:
        """Send one request and return the next frame, which must be its answer."""
        self.call(id, method, params)
        answer = await self.frame()
        assert answer["id"] == id
        return answer

    async def lives(self) -> bool:
        """Whether the next frame of the server answers a request sent now."""
        return await self.ask("lives?", "ping") == {"id": "lives?", "result": {}}


class Serving(Protocol):
    """Serves handlers to a client, for as long as the context is open."""

    def __call__(
        self,
        requests: Mapping[str, Handler] | None = None,
        notifications: Mapping[str, NotificationHandler] | None = None,
        *,
        initialized: bool = True,
        **options: Any,
    ) -> AbstractAsyncContextManager[Client]: ...


async def ping(_context: Any, _params: Any) -> None:
    """Answer `{}`."""


def table_of(
    requests: Mapping[str, Handler] | None,
    notifications: Mapping[str, NotificationHandler] | None = None,
) -> Callable[[], MethodTable]:
    return lambda: MethodTable({"ping": ping, **(requests or {})}, notifications or {})


@asynccontextmanager
async def serving_peer(
    requests: Mapping[str, Handler] | None = None,
    notifications: Mapping[str, NotificationHandler] | None = None,
    *,
    initialized: bool = True,
    **options: Any,
) -> AsyncIterator[Client]:
    ours, theirs = memory_transport_pair(max_frame_bytes=options.pop("max_frame_bytes", 10**6))
    options = {
        "initialize": lambda _: {"protocolVersion": 1},
        "methods": table_of(requests, notifications),
        "new_diagnostic_id": lambda: "entry-1",
        **options,
    }
    peer = Peer(ours, **options)
    served = anyio.Event()

    async def serve() -> None:
        await peer.serve()
        served.set()
        await ours.aclose()

    with anyio.fail_after(5):
        async with theirs, anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            tasks.start_soon(theirs.run)
            client = Client(theirs, peer, served)
            if initialized:
                await client.ask(0, "initialize", {})
            yield client
            await theirs.send_eof()
            await served.wait()
            tasks.cancel_scope.cancel()


@pytest.fixture
def serving() -> Serving:
    """Return what serves handlers to a client in the same process."""
    return serving_peer

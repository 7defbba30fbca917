"""Bytes between the server and its client: framing, stdio, and an outbox with back-pressure."""

from acp_server.transport.base import Transport
from acp_server.transport.framing import DEFAULT_MAX_FRAME_BYTES, Framer, OversizeFrame
from acp_server.transport.memory import MemoryTransport, memory_transport_pair
from acp_server.transport.outbox import Outbox
from acp_server.transport.stdio import StdioTransport
from acp_server.transport.stream import ByteStream, StreamTransport

__all__ = [
    "DEFAULT_MAX_FRAME_BYTES",
    "ByteStream",
    "Framer",
    "MemoryTransport",
    "Outbox",
    "OversizeFrame",
    "StdioTransport",
    "StreamTransport",
    "Transport",
    "memory_transport_pair",
]

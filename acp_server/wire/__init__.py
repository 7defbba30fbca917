"""ACP v1 messages: what is read from the client, and what is sent to it.

Two halves. What we read is parsed by small pydantic models: `requests` (params of the client's
requests), `content` (content blocks) and `answers` (results of the requests we make). What we send
is built by plain functions that return dicts: `updates`, `results`, `asks` and `blocks`.

This package knows no session, no store and no connection. Importing it, `handshake` or a builder
module must not import pydantic: `initialize` is answered before the models are loaded. That is why
only the light names are exported here and the models are imported from their modules.
"""

from acp_server.wire.errors import WireError
from acp_server.wire.handshake import PROTOCOL_VERSION, ClientCapabilities, read_initialize

__all__ = [
    "PROTOCOL_VERSION",
    "ClientCapabilities",
    "WireError",
    "read_initialize",
]

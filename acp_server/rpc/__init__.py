"""The JSON-RPC connection: envelopes, dispatch, outgoing requests, cancellation.

Importing this package stays cheap: jsonrpcserver comes in with `dispatch`, which the peer imports
after `initialize` is answered.
"""

from acp_server.rpc.envelope import (
    Envelope,
    Invalid,
    Notification,
    Request,
    Response,
    error_frame,
    notification_frame,
    read_envelope,
    request_frame,
    response_frame,
)
from acp_server.rpc.errors import (
    ConnectionClosedError,
    PeerError,
    RemoteError,
    RequestTimeoutError,
    RpcError,
)
from acp_server.rpc.peer import Peer
from acp_server.rpc.table import (
    Handler,
    MethodTable,
    NotificationHandler,
    Params,
    RequestContext,
    RequestId,
)

__all__ = [
    "ConnectionClosedError",
    "Envelope",
    "Handler",
    "Invalid",
    "MethodTable",
    "Notification",
    "NotificationHandler",
    "Params",
    "Peer",
    "PeerError",
    "RemoteError",
    "Request",
    "RequestContext",
    "RequestId",
    "RequestTimeoutError",
    "Response",
    "RpcError",
    "error_frame",
    "notification_frame",
    "read_envelope",
    "request_frame",
    "response_frame",
]

"""Errors of the JSON-RPC connection, by whose fault they are.

    PeerError
        RpcError                 we refuse: becomes the error of a response
        RemoteError              they refused: the client answered our request with an error
        ConnectionClosedError    nobody is there any more
        RequestTimeoutError      nobody answered in time

The codes are those of JSON-RPC 2.0 and of ACP v1.
"""

from typing import Any, Final, Self

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
REQUEST_CANCELLED: Final = -32800
AUTH_REQUIRED: Final = -32000
RESOURCE_NOT_FOUND: Final = -32002

_MAX_ECHO_CHARS: Final = 200
"""How much of a name that the client chose is said back to it."""


class PeerError(Exception):
    """Base of this package's errors."""


class RpcError(PeerError):
    """A refusal of ours, sent as it is: its message must be fit for the client's eyes.

    Attributes:
        code: JSON-RPC or ACP error code.
        message: One readable line.
        data: JSON value for the error's `data`; `None` leaves `data` out.
    """

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    @classmethod
    def invalid_params(cls, detail: str) -> Self:
        """Params are missing, of a wrong type or refused: -32602."""
        return cls(INVALID_PARAMS, f"Invalid params: {detail}")

    @classmethod
    def method_not_found(cls, method: str) -> Self:
        """There is no such method, or it is not offered: -32601, data `{"method": str}`."""
        name = _shortened(method)
        return cls(METHOD_NOT_FOUND, f"Method not found: {name}", {"method": name})

    @classmethod
    def invalid_request(cls, detail: str) -> Self:
        """The request does not fit the protocol or its state: -32600."""
        return cls(INVALID_REQUEST, f"Invalid request: {detail}")

    @classmethod
    def internal(cls, detail: str) -> Self:
        """The request failed on our side: -32603. `detail` is one sentence without secrets."""
        return cls(INTERNAL_ERROR, f"Internal error: {detail}")

    @classmethod
    def unexpected(cls, log_entry: str) -> Self:
        """Something unknown went wrong: -32603, data `{"logEntry": str}`, and not a word more."""
        return cls(INTERNAL_ERROR, "Internal error", {"logEntry": log_entry})

    @classmethod
    def request_cancelled(cls) -> Self:
        """The client cancelled this very request: -32800."""
        return cls(REQUEST_CANCELLED, "Request cancelled")

    @classmethod
    def resource_not_found(cls, session_id: str) -> Self:
        """There is no such session: -32002, data `{"sessionId": str}`."""
        message = f"Resource not found: session {_shortened(session_id)}"
        return cls(RESOURCE_NOT_FOUND, message, {"sessionId": session_id})

    @classmethod
    def auth_required(cls) -> Self:
        """The agent wants the client to authenticate first: -32000."""
        return cls(AUTH_REQUIRED, "Authentication required")


class RemoteError(PeerError):
    """The client answered one of our requests with an error.

    Attributes:
        code: The client's error code.
        message: The client's message; text of a stranger.
        data: The client's `data`, or `None`.
    """

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(f"the client answered with error {code}: {message!r}")
        self.code = code
        self.message = message
        self.data = data


class ConnectionClosedError(PeerError):
    """The connection to the client has ended; nothing can be asked of it."""

    def __init__(self) -> None:
        super().__init__("the connection to the client is closed")


class RequestTimeoutError(PeerError):
    """The client did not answer one of our requests in time.

    Attributes:
        method: What was asked.
        timeout_s: How long it was waited for.
    """

    def __init__(self, method: str, timeout_s: float) -> None:
        super().__init__(f"the client did not answer {method!r} within {timeout_s} s")
        self.method = method
        self.timeout_s = timeout_s


def _shortened(name: str) -> str:
    return name if len(name) <= _MAX_ECHO_CHARS else name[:_MAX_ECHO_CHARS] + "…"

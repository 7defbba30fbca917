"""Domain errors to wire errors, in one place: the code says what the client can do about it."""

from __future__ import annotations

from acp_server.rpc.errors import RpcError
from persistence.errors import (
    InvalidCursorError,
    InvalidSessionIdError,
    PersistenceError,
    SessionChangedError,
    SessionCollisionError,
    SessionLockedError,
    SessionNotFoundError,
)


def rpc_error_from_store(error: PersistenceError) -> RpcError:
    """Return the wire error of a store error; its sentence is fit for a client's eyes."""
    match error:
        case SessionNotFoundError():
            return RpcError.resource_not_found(error.session_id)
        case InvalidSessionIdError():
            return RpcError.resource_not_found(error.session_id)
        case InvalidCursorError():
            return RpcError.invalid_params(str(error))
        case SessionLockedError():
            # Not -32002: a client would silently go on in a new session (Z9).
            refused = RpcError.internal(str(error))
            refused.data = {"sessionId": error.session_id, "pid": error.pid}
            return refused
        case _:
            return RpcError.internal(str(error))


def is_lost(error: PersistenceError) -> bool:
    """Tell whether a live session cannot be stored any more: its log is somebody else's (Z8)."""
    return isinstance(error, SessionChangedError | SessionLockedError | SessionCollisionError)

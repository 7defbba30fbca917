"""Domain errors to wire errors, in one place: the code says what the client can do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acp_server.rpc.errors import RpcError
from persistence.errors import (
    InvalidCursorError,
    InvalidSessionIdError,
    PersistenceError,
    SessionLockedError,
    SessionNotFoundError,
    SessionOvertakenError,
)

if TYPE_CHECKING:
    from acp_server.turns.errors import CheckpointError


def rpc_error_from_store(error: PersistenceError) -> RpcError:
    """Return the wire error of a store error; its sentence is fit for a client's eyes."""
    match error:
        case SessionNotFoundError():
            return RpcError.resource_not_found(error.session_id)
        case InvalidSessionIdError():
            return RpcError.resource_not_found(error.session_id)
        case InvalidCursorError():
            return RpcError.invalid_params(str(error))
        case SessionLockedError() | SessionOvertakenError():
            # Not -32002: a client would silently go on in a new session (writing-takes-the-lock).
            refused = RpcError.internal(str(error))
            refused.data = {"sessionId": error.session_id, "pid": error.pid}
            return refused
        case _:
            return RpcError.internal(str(error))


def rpc_error_from_checkpoint(error: CheckpointError) -> RpcError:
    """Return the wire error of a checkpoint that failed outside of a turn."""
    cause = error.__cause__
    if isinstance(cause, PersistenceError):
        return rpc_error_from_store(cause)
    return RpcError.internal(str(error))

"""What can go wrong between a session and its store.

Every error is a `PersistenceError`, carries what it is about as typed attributes and reads as one
sentence. Nothing here knows a wire code; the server translates.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

WriteFailure = Literal[
    "disk full", "read-only", "permission denied", "locked", "not encodable", "i/o error"
]

_WRITE_FAILURES: dict[int, WriteFailure] = {
    errno.ENOSPC: "disk full",
    errno.EDQUOT: "disk full",
    errno.EFBIG: "disk full",
    errno.EROFS: "read-only",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
}


class PersistenceError(Exception):
    """Base of every error of this package."""


class SessionNotFoundError(PersistenceError):
    """No stored session has this id."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(f"session {session_id!r} is not stored")


class InvalidSessionIdError(PersistenceError):
    """The id is empty, or too long to name a place in the store."""

    def __init__(self, session_id: str, reason: str) -> None:
        self.session_id = session_id
        self.reason = reason
        super().__init__(f"session id {session_id[:80]!r} cannot be stored: {reason}")


class SessionCollisionError(PersistenceError):
    """The id belongs to another session than the one at hand."""

    def __init__(self, session_id: str, reason: str) -> None:
        self.session_id = session_id
        self.reason = reason
        super().__init__(f"session id {session_id!r} is taken: {reason}")


class SessionLiveError(PersistenceError):
    """The session is open in this process, and the operation needs it closed."""

    def __init__(self, session_id: str, operation: str) -> None:
        self.session_id = session_id
        self.operation = operation
        super().__init__(f"session {session_id!r} is open here and cannot {operation}")


class SessionLockedError(PersistenceError):
    """Another process has the session open for writing; `pid` is None when it left no trace."""

    def __init__(self, session_id: str, pid: int | None) -> None:
        self.session_id = session_id
        self.pid = pid
        holder = "another process" if pid is None else f"process {pid}"
        super().__init__(f"session {session_id!r} is in use by {holder}")


class SessionChangedError(PersistenceError):
    """The stored log is not as this process left it, so nothing was written."""

    def __init__(self, session_id: str, reason: str) -> None:
        self.session_id = session_id
        self.reason = reason
        super().__init__(f"the stored log of session {session_id!r} was changed: {reason}")


class SessionOvertakenError(SessionChangedError):
    """Another process went on with the session, and this one has events that it has not stored.

    Nothing is merged. `pid` is None when the other process left no trace.
    """

    def __init__(self, session_id: str, pid: int | None) -> None:
        super().__init__(session_id, "it went on elsewhere")
        self.pid = pid
        holder = "another process" if pid is None else f"process {pid}"
        self.args = (f"session {session_id!r} went on in {holder}; load it again",)


class SequenceError(PersistenceError):
    """A batch does not continue the stored log; nothing was written."""

    def __init__(self, session_id: str, expected: int, found: int) -> None:
        self.session_id = session_id
        self.expected = expected
        self.found = found
        super().__init__(f"session {session_id!r} continues at seq {expected}, not at seq {found}")


class CorruptLogError(PersistenceError):
    """Committed bytes are damaged; the log was left as it is.

    Attributes:
        reason: What is wrong there.
        seq: The seq that was expected where the damage is, if that is known.
        offset: The byte at which the damage starts, for stores of bytes.
    """

    _fault = "is damaged"

    def __init__(
        self, session_id: str, reason: str, *, seq: int | None = None, offset: int | None = None
    ) -> None:
        self.session_id = session_id
        self.reason = reason
        self.seq = seq
        self.offset = offset
        super().__init__(
            f"the log of session {session_id!r} {self._fault} at {self.where}: {reason}"
        )

    @property
    def where(self) -> str:
        """The place of the damage in words."""
        places = []
        if self.seq is not None:
            places.append(f"seq {self.seq}")
        if self.offset is not None:
            places.append(f"byte {self.offset}")
        return ", ".join(places) or "its header"


class RefusedLogError(CorruptLogError):
    """A whole event of the log is refused for what it says; the log was left as it is."""

    _fault = "has an event that is refused"


class UnsupportedVersionError(PersistenceError):
    """The log is of a format this build does not know; `found` is the stored JSON value."""

    def __init__(self, session_id: str, found: object, supported: int) -> None:
        self.session_id = session_id
        self.found = found
        self.supported = supported
        super().__init__(
            f"session {session_id!r} has format version {found!r}; this build supports {supported}"
        )


class ForeignStoreError(PersistenceError):
    """The place holds something that is not a store of ours; it was left as it is."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path!r} is not a session store: {reason}")


class UnknownStoreError(PersistenceError):
    """A store specification names no known backend."""

    def __init__(self, spec: str, known: Sequence[str]) -> None:
        self.spec = spec
        self.known = tuple(known)
        super().__init__(f"{spec!r} names no store; known are {', '.join(self.known)}")


class InvalidCursorError(PersistenceError):
    """The cursor of a list request is not one that a former page gave."""

    def __init__(self, cursor: str) -> None:
        self.cursor = cursor
        super().__init__(f"{cursor[:80]!r} is not a list cursor")


class TransferError(PersistenceError):
    """A session was not copied; nothing of it is left in the target."""

    def __init__(self, session_id: str, reason: str) -> None:
        self.session_id = session_id
        self.reason = reason
        super().__init__(f"session {session_id!r} was not copied: {reason}")


class StoreReadError(PersistenceError):
    """The operating system refused to read a stored session."""

    def __init__(self, session_id: str | None, path: str, detail: str) -> None:
        self.session_id = session_id
        self.path = path
        self.detail = detail
        subject = "the store" if session_id is None else f"session {session_id!r}"
        super().__init__(f"{subject} cannot be read: {detail}")


class StoreWriteError(PersistenceError):
    """The operating system refused to write; what was not acknowledged is not stored."""

    def __init__(self, session_id: str | None, reason: WriteFailure, detail: str) -> None:
        self.session_id = session_id
        self.reason = reason
        self.detail = detail
        subject = "the store" if session_id is None else f"session {session_id!r}"
        super().__init__(f"{subject} could not be written ({reason}): {detail}")


class StoreShutdownError(PersistenceError):
    """Closing the store failed; `errors` holds every failure in the order it happened."""

    def __init__(self, errors: Sequence[Exception]) -> None:
        self.errors = tuple(errors)
        super().__init__("closing the session store failed: " + "; ".join(map(str, self.errors)))


def write_error(session_id: str | None, error: OSError) -> StoreWriteError:
    """Return the store's sentence for a failed write."""
    reason = _WRITE_FAILURES.get(error.errno or 0, "i/o error")
    return StoreWriteError(session_id, reason, error.strerror or type(error).__name__)


def read_error(session_id: str | None, path: str, error: OSError) -> StoreReadError:
    """Return the store's sentence for a failed read."""
    return StoreReadError(session_id, path, error.strerror or type(error).__name__)

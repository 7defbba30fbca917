"""Durable session logs: the storage interface, the session repository and the backends.

`SessionRepository` is what a server uses; `open_backend` opens one of its backends. Backends are
imported when they are opened, and nothing heavy before that.
"""

from persistence.backends import open_backend
from persistence.errors import (
    CorruptLogError,
    ForeignStoreError,
    InvalidCursorError,
    InvalidSessionIdError,
    PersistenceError,
    RefusedLogError,
    SequenceError,
    SessionChangedError,
    SessionCollisionError,
    SessionLiveError,
    SessionLockedError,
    SessionNotFoundError,
    SessionOvertakenError,
    StoreReadError,
    StoreShutdownError,
    StoreWriteError,
    TransferError,
    UnknownStoreError,
    UnsupportedVersionError,
)
from persistence.opened import LoadedSession, OpenedSession, RepairReport
from persistence.repository import SessionRepository
from persistence.storage import (
    EntryPage,
    Location,
    SessionEntry,
    SessionSummary,
    StorageBackend,
    StoredLog,
    Writer,
)
from persistence.transfer import (
    Problem,
    Transferred,
    Verification,
    copy_session,
    import_log,
    verify,
)

__all__ = [
    # the store
    "SessionRepository",
    "OpenedSession",
    "LoadedSession",
    "RepairReport",
    "open_backend",
    # whole sessions
    "import_log",
    "copy_session",
    "verify",
    "Transferred",
    "Verification",
    "Problem",
    # the storage interface
    "StorageBackend",
    "Writer",
    "StoredLog",
    "SessionEntry",
    "SessionSummary",
    "EntryPage",
    "Location",
    # errors
    "PersistenceError",
    "SessionNotFoundError",
    "InvalidSessionIdError",
    "SessionCollisionError",
    "SessionLiveError",
    "SessionLockedError",
    "SessionChangedError",
    "SessionOvertakenError",
    "SequenceError",
    "CorruptLogError",
    "RefusedLogError",
    "UnsupportedVersionError",
    "ForeignStoreError",
    "UnknownStoreError",
    "InvalidCursorError",
    "TransferError",
    "StoreReadError",
    "StoreWriteError",
    "StoreShutdownError",
]

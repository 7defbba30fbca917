"""Durable session logs: the store seam, the write coordinator and the backends.

`SessionPersistence` is what a server uses; `open_store` opens one of its backends. Backends are
imported when they are opened, and nothing heavy before that.
"""

from persistence.coordinator import SessionPersistence
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
from persistence.opening import open_store
from persistence.seam import (
    EntryPage,
    Location,
    SessionBackend,
    SessionEntry,
    SessionSummary,
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
    "SessionPersistence",
    "OpenedSession",
    "LoadedSession",
    "RepairReport",
    "open_store",
    # whole sessions
    "import_log",
    "copy_session",
    "verify",
    "Transferred",
    "Verification",
    "Problem",
    # the seam of backends
    "SessionBackend",
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

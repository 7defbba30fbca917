"""What SQLite reports, as the store's own errors. The only reader of SQLite's codes."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from persistence.errors import (
    CorruptLogError,
    ForeignStoreError,
    PersistenceError,
    StoreReadError,
    StoreWriteError,
)

if TYPE_CHECKING:
    from persistence.errors import WriteFailure

_WRITE_FAILURES: dict[int, WriteFailure] = {
    sqlite3.SQLITE_BUSY: "locked",
    sqlite3.SQLITE_LOCKED: "locked",
    sqlite3.SQLITE_FULL: "disk full",
    sqlite3.SQLITE_READONLY: "read-only",
    sqlite3.SQLITE_PERM: "permission denied",
    sqlite3.SQLITE_TOOBIG: "not encodable",
}
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def primary_code(error: sqlite3.Error) -> int:
    """Return what kind of failure this is; 0 for one that SQLite itself did not report."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


def is_busy(error: sqlite3.Error) -> bool:
    """Tell whether somebody else holds the database."""
    return primary_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def lacks_room(error: sqlite3.Error) -> bool:
    """Tell whether a write may have failed for lack of room; SQLite does not tell a quota apart."""
    code = getattr(error, "sqlite_errorcode", 0)
    return primary_code(error) == sqlite3.SQLITE_FULL or code == sqlite3.SQLITE_IOERR_WRITE


def is_damage(error: sqlite3.Error) -> bool:
    """Tell whether the file itself is broken."""
    return primary_code(error) in _DAMAGE


def failed_write(session_id: str | None, error: sqlite3.Error) -> PersistenceError:
    """Return the store's sentence for a failed write."""
    reason = _WRITE_FAILURES.get(primary_code(error), "i/o error")
    return StoreWriteError(session_id, reason, str(error))


def failed_read(session_id: str | None, path: str, error: sqlite3.Error) -> PersistenceError:
    """Return the store's sentence for a failed read."""
    if session_id is not None and is_damage(error):
        return CorruptLogError(session_id, str(error))
    return StoreReadError(session_id, path, str(error))


def failed_open(path: str, error: sqlite3.Error | UnicodeDecodeError) -> PersistenceError:
    """Return the store's sentence for a database that cannot be opened."""
    if isinstance(error, UnicodeDecodeError):
        # The sqlite3 module cannot decode SQLite's own message about a damaged schema.
        return ForeignStoreError(path, "its schema is malformed")
    # SQLITE_ERROR: its tables are not what our statements name.
    if is_damage(error) or primary_code(error) == sqlite3.SQLITE_ERROR:
        return ForeignStoreError(path, str(error))
    return StoreReadError(None, path, str(error))

"""The look before a database file is opened: is it somebody else's?

Opening a foreign file could change it: SQLite plays a journal back, and moves a -wal into the
database. So what is surely none of ours is refused before. What counts is what one of ours can look
like after its process was killed at any moment:

- It has our application id in its first page: a database gets its name when it is complete, and no
  write of ours changes that id. So another id is decisive, whatever stands in a -wal.
- Its size may be wrong, as long as its -wal is not moved to its end. Recovery mends that, so the
  size decides nothing here; nor does the schema version, which a -wal may hold in a newer form.
- It has no journal of its own: only WAL is written, and the switch to it is atomic (`use_wal`). A
  journal beside it comes from other programs or for another file, and SQLite would cut the database
  to the size that this journal names.
- It is never missing or empty beside a -wal or a journal. SQLite would delete these, although they
  may hold the only copy of what was stored.

All else is decided by what a read transaction of the recovered database shows.

Nothing here opens the database file but SQLite: closing any other descriptor would drop the locks
that this process has on it (https://www.sqlite.org/howtocorrupt.html, 2.2). SQLite has no such
locks on a journal or a -wal.
"""

from __future__ import annotations

import os.path
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from persistence.errors import ForeignStoreError, read_error
from persistence.sqlite import sql
from persistence.sqlite.connection import apply, number
from persistence.sqlite.failures import failed_open, primary_code


class FileIdentity(NamedTuple):
    """Which file a path named; another one after a restored backup or a recreation."""

    device: int
    inode: int
    birth: float


def file_at(path: str) -> FileIdentity | None:
    """Return which file stands at the store's path; None if there is none, or an empty one.

    Raises:
        ForeignStoreError: What stands there is no file.
        StoreReadError: The operating system refused.
    """
    status = _status(path)
    return None if status is None or not status.st_size else _identity(status)


def wal_of(path: str) -> FileIdentity | None:
    """Return which file the -wal of a database is, an empty one too; None if there is none.

    Raises:
        ForeignStoreError: What stands there is no file.
        StoreReadError: The operating system refused.
    """
    status = _status(f"{os.path.realpath(path)}-wal")
    return None if status is None else _identity(status)


def refuse_foreign_file(path: str) -> None:
    """Refuse a file that is surely none of ours, without changing anything.

    Raises:
        ForeignStoreError: It is none of ours, of another schema version, or beside a journal that
            is not its own.
        StoreReadError: It cannot be read.
    """
    # SQLite names them after the file that links lead to. They are looked at first: while a busy
    # process creates the database, there is none of them until it has its name.
    target = os.path.realpath(path)
    wal, journal = (_status(f"{target}{suffix}") for suffix in ("-wal", "-journal"))
    has_wal = wal is not None and wal.st_size > 0
    has_journal = journal is not None and journal.st_size > 0
    if file_at(path) is None:
        if has_wal or has_journal:
            name = f"{target}{'-wal' if has_wal else '-journal'}"
            raise ForeignStoreError(path, f"it is missing or empty, but there is {name!r}")
        return
    if has_journal and _is_hot(f"{target}-journal"):
        reason = f"a journal that is not its own would change it, {f'{target}-journal'!r}"
        raise ForeignStoreError(path, reason)
    _refuse_by_header(path, has_wal=has_wal)


def check_application(path: str, application: int) -> None:
    """Check whose database it is.

    Raises:
        ForeignStoreError: Another program's.
    """
    if application != sql.APPLICATION_ID:
        raise ForeignStoreError(path, f"its application id is {application:#x}")


def check_version(path: str, version: int) -> None:
    """Check the version of the tables.

    Raises:
        ForeignStoreError: This build does not know it.
    """
    if version != sql.SCHEMA_VERSION:
        reason = f"it has schema version {version}; this build supports {sql.SCHEMA_VERSION}"
        raise ForeignStoreError(path, reason)


def is_wal_empty(path: str) -> bool:
    """Tell whether nothing stands in the -wal of a database, if there is one.

    Raises:
        ForeignStoreError: What stands there is no file.
        StoreReadError: The operating system refused.
    """
    status = _status(f"{os.path.realpath(path)}-wal")
    return status is None or not status.st_size


def _identity(status: os.stat_result) -> FileIdentity:
    return FileIdentity(status.st_dev, status.st_ino, getattr(status, "st_birthtime", 0.0))


def _status(path: str) -> os.stat_result | None:
    try:
        status = Path(path).stat()
    except FileNotFoundError:
        return None
    except NotADirectoryError as error:
        raise ForeignStoreError(path, "its folder is not a directory") from error
    except OSError as error:
        raise read_error(None, path, error) from error
    if not stat.S_ISREG(status.st_mode):
        raise ForeignStoreError(path, "it is not a file")
    return status


def _is_hot(journal: str) -> bool:
    """Tell whether SQLite would play a journal back; one that is done with may start with zeros."""
    try:
        with Path(journal).open("rb") as file:
            return file.read(1) not in (b"", b"\0")
    except FileNotFoundError:
        return False
    except OSError as error:
        raise read_error(None, journal, error) from error


def _refuse_by_header(path: str, *, has_wal: bool) -> None:
    """Look at the header as it stands in the file: through a connection that changes nothing."""
    uri = f"{Path(path).as_uri()}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            apply(connection, (sql.TOLERATE_A_WRONG_SIZE,))
            check_application(path, number(connection, sql.READ_APPLICATION_ID))
            if not has_wal:
                check_version(path, number(connection, sql.READ_SCHEMA_VERSION))
    except sqlite3.Error as error:
        # A library that tolerates no wrong size says this; it may be mended by recovery.
        if primary_code(error) != sqlite3.SQLITE_CORRUPT:
            raise failed_open(path, error) from error

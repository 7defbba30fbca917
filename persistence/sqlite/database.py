"""Opening the database file, creating it if need be, and seeing that it is ours.

What is surely none of ours is refused before SQLite opens it in earnest (`foreign`); all else by
what a transaction of the database shows, which SQLite recovers first. Nothing of a refusal is kept:
the next request looks again.
"""

from __future__ import annotations

import os
import sqlite3
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from persistence.errors import ForeignStoreError
from persistence.sqlite import sql
from persistence.sqlite.connection import (
    apply,
    apply_writer_settings,
    connect,
    number,
    use_wal,
)
from persistence.sqlite.creation import create_database
from persistence.sqlite.failures import failed_open
from persistence.sqlite.foreign import (
    FileIdentity,
    check_application,
    check_version,
    file_at,
    is_wal_empty,
    refuse_foreign_file,
    wal_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_OLDEST_SQLITE = (3, 37, 0)  # STRICT tables


class DatabaseAbsentError(Exception):
    """There is no database yet. Private to the backend: it means an empty store."""


@dataclass(frozen=True, slots=True)
class Database:
    """One open connection, used by one thread at a time.

    Attributes:
        wal: The -wal that the connection has open; None if there was none when it was opened.
        named_faults: What the list has said of bad rows.
    """

    path: str
    connection: sqlite3.Connection
    identity: FileIdentity
    store_id: str
    wal: FileIdentity | None
    named_faults: set[str] = field(default_factory=set)

    def revision(self, incarnation: str, number: int) -> str:
        """Return the opaque revision of a session's log (revision-changes-with-log)."""
        device, inode, birth = self.identity
        return (
            f"file:{device:x}:{inode:x}:{birth:g}:store:{self.store_id}"
            f":incarnation:{incarnation}:revision:{number}"
        )

    @property
    def has_its_wal(self) -> bool:
        """Whether the -wal that is open is the one that the next process would read."""
        return self.wal == wal_of(self.path)

    def leave_lost_wal(self) -> None:
        """Move into the database what a -wal holds whose name is gone.

        Raises:
            sqlite3.Error: It could not be moved, or its name is another file's.
        """
        if self.has_its_wal:
            return
        if not is_wal_empty(self.path):
            msg = "its -wal file was replaced"
            raise sqlite3.OperationalError(msg)
        # TRUNCATE: the next connection finds in the shared memory that its own -wal starts anew.
        if self.connection.execute(sql.TRUNCATE_WAL).fetchone()[0]:
            msg = "its -wal file was removed, and is still read"
            raise sqlite3.OperationalError(msg)


def check_sqlite() -> None:
    """Refuse an SQLite library that is too old for the tables.

    Raises:
        RuntimeError: It is.
    """
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        oldest = ".".join(map(str, _OLDEST_SQLITE))
        msg = f"SQLite {oldest} or newer is needed, this is {sqlite3.sqlite_version}"
        raise RuntimeError(msg)


def open_for_reading(path: str, give_up_at: float) -> Database:
    """Open the database for reads that no writer holds up.

    Raises:
        DatabaseAbsentError: There is none yet.
        ForeignStoreError: It is none of ours, or damaged.
        StoreReadError: It cannot be read.
        sqlite3.Error: It cannot be opened.
    """
    refuse_foreign_file(path)
    identity = file_at(path)
    if identity is None:
        raise DatabaseAbsentError
    connection = connect(path, give_up_at)
    try:
        apply(connection, sql.READER_SETTINGS)
        _check_ours(path, connection)
        return _database(path, connection, identity)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        connection.close()
        raise failed_open(path, error) from error
    except BaseException:
        connection.close()
        raise


def open_for_writing(
    path: str, new_token: Callable[[], str], give_up_at: float, create: bool
) -> Database:
    """Open the database for writes.

    Raises:
        DatabaseAbsentError: There is none, and none was to be created.
        ForeignStoreError: It is none of ours, or damaged.
        StoreReadError: It cannot be read.
        StoreWriteError: It cannot be created.
        sqlite3.Error: It cannot be written.
    """
    if file_at(path) is None and not create:
        raise DatabaseAbsentError
    refuse_foreign_file(path)
    if file_at(path) is None:
        create_database(path, new_token, give_up_at)
    connection = connect(path, give_up_at)
    try:
        apply_writer_settings(connection)
        _check_ours(path, connection)
        use_wal(connection, give_up_at)
        identity = file_at(path)
        if identity is None:
            raise ForeignStoreError(path, "it vanishes while it is opened")
        return _database(path, connection, identity)
    except UnicodeDecodeError as error:
        connection.close()
        raise failed_open(path, error) from error
    except BaseException:
        connection.close()
        raise


def _database(path: str, connection: sqlite3.Connection, identity: FileIdentity) -> Database:
    store_id = _read_store_id(path, connection)
    # Behind the first read, with which SQLite opens it.
    return Database(path, connection, identity, store_id, wal_of(path))


def _check_ours(path: str, connection: sqlite3.Connection) -> None:
    check_application(path, number(connection, sql.READ_APPLICATION_ID))
    check_version(path, number(connection, sql.READ_SCHEMA_VERSION))
    try:
        for probe in sql.PROBES:
            connection.execute(probe).fetchall()
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise failed_open(path, error) from error


def _read_store_id(path: str, connection: sqlite3.Connection) -> str:
    row = connection.execute(sql.READ_STORE_ID).fetchone()
    if row is None:
        raise ForeignStoreError(path, "it has no store id")
    if not isinstance(row[0], str | bytes):
        # A flipped bit may change the type of a stored value, STRICT or not.
        raise ForeignStoreError(path, "its store id is damaged")
    return os.fsdecode(row[0])

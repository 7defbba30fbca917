"""Opening the database file: whose it is, creating it, the settings of a connection.

The header of a file is looked at through an immutable connection before the file is opened in
earnest: that could already change a foreign one (a hot journal, a leftover -wal). Nothing here
opens the file but SQLite: closing any other descriptor would drop the locks that this process has
on it (https://www.sqlite.org/howtocorrupt.html, 2.2).
"""

from __future__ import annotations

import os
import sqlite3
import stat
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from persistence.errors import ForeignStoreError, read_error, write_error
from persistence.files import OsFiles, make_dirs
from persistence.sqlite import sql
from persistence.sqlite.failures import failed_open, is_busy

if TYPE_CHECKING:
    from collections.abc import Callable

_OLDEST_SQLITE = (3, 37, 0)  # STRICT tables

_RETRY_S = 0.01


class FileIdentity(NamedTuple):
    """Which file a path named; another one after a restored backup or a recreation."""

    device: int
    inode: int
    birth: float


class DatabaseAbsentError(Exception):
    """There is no database yet. Private to the backend: it means an empty store."""


@dataclass(frozen=True, slots=True)
class Database:
    """One open connection, used by one thread at a time."""

    connection: sqlite3.Connection
    identity: FileIdentity
    store_id: str

    def revision(self, incarnation: str, number: int) -> str:
        """Return the opaque revision of a session's log (contract 5.10)."""
        device, inode, birth = self.identity
        return (
            f"file:{device:x}:{inode:x}:{birth:g}:store:{self.store_id}"
            f":incarnation:{incarnation}:revision:{number}"
        )


def check_sqlite() -> None:
    """Refuse an SQLite library that is too old for the tables.

    Raises:
        RuntimeError: it is.
    """
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        oldest = ".".join(map(str, _OLDEST_SQLITE))
        msg = f"SQLite {oldest} or newer is needed, this is {sqlite3.sqlite_version}"
        raise RuntimeError(msg)


def file_at(path: str) -> FileIdentity | None:
    """Return which file stands at the store's path; None if there is none, or an empty one.

    Raises:
        ForeignStoreError: what stands there is no file.
        StoreReadError: the operating system refused.
    """
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
    if not status.st_size:
        return None
    return FileIdentity(status.st_dev, status.st_ino, getattr(status, "st_birthtime", 0.0))


def refuse_foreign_file(path: str) -> None:
    """Refuse a file that its header says is none of ours, without changing anything.

    Raises:
        ForeignStoreError: it is none of ours, or of another schema version.
        StoreReadError: it cannot be read.
    """
    if file_at(path) is None:
        return
    try:
        connection = sqlite3.connect(f"{Path(path).as_uri()}?mode=ro&immutable=1", uri=True)
        try:
            _check_application(path, _number(connection, sql.READ_APPLICATION_ID))
            _check_version(path, _number(connection, sql.READ_SCHEMA_VERSION))
        finally:
            connection.close()
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise failed_open(path, error) from error


def open_for_reading(path: str, give_up_at: float) -> Database:
    """Open the database for reads that no writer holds up.

    Raises:
        DatabaseAbsentError: there is none yet.
        ForeignStoreError: it is none of ours, or damaged.
        StoreReadError: it cannot be read.
    """
    refuse_foreign_file(path)
    identity = file_at(path)
    if identity is None:
        raise DatabaseAbsentError
    connection = _connect(path, give_up_at)
    try:
        _apply(connection, sql.READER_SETTINGS)
        _check_ours(path, connection)
        return Database(connection, identity, _read_store_id(path, connection))
    except (sqlite3.Error, UnicodeDecodeError) as error:
        connection.close()
        raise failed_open(path, error) from error
    except BaseException:
        connection.close()
        raise


def open_for_writing(path: str, new_token: Callable[[], str], give_up_at: float) -> Database:
    """Open the database for writes, creating it if there is none.

    Raises:
        ForeignStoreError: it is none of ours, or damaged.
        StoreReadError: it cannot be read.
        StoreWriteError: it cannot be created.
        sqlite3.Error: it cannot be written.
    """
    refuse_foreign_file(path)
    if file_at(path) is None:
        _create_file(path)
    connection = _connect(path, give_up_at)
    try:
        _apply(connection, sql.WRITER_SETTINGS)
        if sys.platform == "darwin":
            _apply(connection, sql.MACOS_SETTINGS)
        _create_tables(path, connection, new_token)
        _use_wal(connection, give_up_at)
        identity = file_at(path)
        if identity is None:
            raise ForeignStoreError(path, "it vanishes while it is opened")
        return Database(connection, identity, _read_store_id(path, connection))
    except UnicodeDecodeError as error:
        connection.close()
        raise failed_open(path, error) from error
    except BaseException:
        connection.close()
        raise


def wait_at_most(connection: sqlite3.Connection, give_up_at: float) -> None:
    """Bound how long the next statements wait for other processes."""
    left_ms = max(0, round((give_up_at - time.monotonic()) * 1000))
    connection.execute(sql.BUSY_TIMEOUT % left_ms)


def _check_application(path: str, application: int) -> None:
    if application != sql.APPLICATION_ID:
        raise ForeignStoreError(path, f"its application id is {application:#x}")


def _check_version(path: str, version: int) -> None:
    if version != sql.SCHEMA_VERSION:
        reason = f"it has schema version {version}; this build supports {sql.SCHEMA_VERSION}"
        raise ForeignStoreError(path, reason)


def _create_file(path: str) -> None:
    """Create an empty database file, private and durable in its folder; an existing one stays."""
    files = OsFiles()
    folder = str(Path(path).parent)
    try:
        make_dirs(files, folder)
        try:
            # SQLite gives its -wal and -shm the mode of this file.
            files.close(files.open(path, "create"))
        except FileExistsError:
            return
        files.sync_dir(folder)
    except OSError as error:
        raise write_error(None, error) from error


def _connect(path: str, give_up_at: float) -> sqlite3.Connection:
    # No URI: the path is verbatim, whatever is in it (Z25, B56). One thread at a time uses a
    # connection, but not always the same one.
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    # Texts stay bytes: they are JSON to be parsed, and a damaged one must not fail a whole page.
    connection.text_factory = bytes
    try:
        wait_at_most(connection, give_up_at)
        _apply(connection, sql.SETTINGS)
    except sqlite3.Error as error:
        connection.close()
        raise failed_open(path, error) from error
    return connection


def _apply(connection: sqlite3.Connection, settings: tuple[str, ...]) -> None:
    for setting in settings:
        connection.execute(setting).fetchall()


def _create_tables(path: str, connection: sqlite3.Connection, new_token: Callable[[], str]) -> None:
    """Create our tables in a pristine database.

    In rollback mode, so that the file's own header says whose it is from the first commit on.
    """
    if _number(connection, sql.READ_APPLICATION_ID) == sql.APPLICATION_ID:
        _check_ours(path, connection)
        return
    connection.execute(sql.BEGIN_IMMEDIATE)
    try:
        # Another process may have come first.
        if _number(connection, sql.READ_APPLICATION_ID) != sql.APPLICATION_ID:
            if _number(connection, sql.COUNT_OBJECTS):
                raise ForeignStoreError(path, "it holds tables of something else")
            for statement in sql.CREATE:
                connection.execute(statement)
            connection.execute(sql.CREATE_STATE, (new_token(),))
        connection.execute(sql.COMMIT)
    finally:
        if connection.in_transaction:
            connection.execute(sql.ROLLBACK)
    _check_ours(path, connection)


def _check_ours(path: str, connection: sqlite3.Connection) -> None:
    """Check through SQLite what the file's header said: the newest state may be in the -wal."""
    application = _number(connection, sql.READ_APPLICATION_ID)
    if not application and not _number(connection, sql.COUNT_OBJECTS):
        # Its creation was rolled back.
        raise DatabaseAbsentError
    _check_application(path, application)
    _check_version(path, _number(connection, sql.READ_SCHEMA_VERSION))
    try:
        for probe in sql.PROBES:
            connection.execute(probe).fetchall()
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise failed_open(path, error) from error


def _use_wal(connection: sqlite3.Connection, give_up_at: float) -> None:
    """Switch to WAL; SQLite does not wait for the exclusive lock that this takes, so we do."""
    while True:
        try:
            if connection.execute(sql.USE_WAL).fetchone() == (b"wal",):
                return
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() >= give_up_at:
                raise
        else:
            msg = "the file system has no WAL"
            raise sqlite3.OperationalError(msg)
        time.sleep(_RETRY_S)


def _read_store_id(path: str, connection: sqlite3.Connection) -> str:
    row = connection.execute(sql.READ_STORE_ID).fetchone()
    if row is None:
        raise ForeignStoreError(path, "it has no store id")
    if not isinstance(row[0], str | bytes):
        # A flipped bit may change the type of a stored value, STRICT or not.
        raise ForeignStoreError(path, "its store id is damaged")
    return os.fsdecode(row[0])


def _number(connection: sqlite3.Connection, statement: str) -> int:
    (number,) = connection.execute(statement).fetchone()
    return int(number)

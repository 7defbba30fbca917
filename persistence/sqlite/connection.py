"""A connection: its settings, its waits, and how it switches to WAL."""

from __future__ import annotations

import sqlite3
import sys
import time
from pathlib import Path

from persistence.sqlite import sql
from persistence.sqlite.failures import failed_open, is_busy

_RETRY_S = 0.01


def connect(path: str, give_up_at: float) -> sqlite3.Connection:
    """Open an existing file; SQLite recovers it when it is first read.

    Raises:
        sqlite3.Error: It cannot be opened.
        StoreReadError: Its settings cannot be made.
    """
    # Without `rwc` a file that vanishes meanwhile is not made anew. A file URI keeps the path
    # verbatim, whatever is in it (store-paths-are-verbatim, B56). One thread at a time uses a
    # connection, but not always the same one.
    uri = f"{Path(path).as_uri()}?mode=rw"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
    # Texts stay bytes: they are JSON to be parsed, and a damaged one must not fail a whole page.
    connection.text_factory = bytes
    try:
        wait_at_most(connection, give_up_at)
        apply(connection, sql.SETTINGS)
    except sqlite3.Error as error:
        connection.close()
        raise failed_open(path, error) from error
    return connection


def wait_at_most(connection: sqlite3.Connection, give_up_at: float) -> None:
    """Bound how long the next statements wait for other processes."""
    left_ms = max(0, round((give_up_at - time.monotonic()) * 1000))
    connection.execute(sql.BUSY_TIMEOUT % left_ms)


def apply(connection: sqlite3.Connection, settings: tuple[str, ...]) -> None:
    """Execute statements whose results nobody needs."""
    for setting in settings:
        connection.execute(setting).fetchall()


def apply_writer_settings(connection: sqlite3.Connection) -> None:
    """Make what is committed on a connection durable, and what is deleted gone."""
    apply(connection, sql.WRITER_SETTINGS)
    if sys.platform == "darwin":
        apply(connection, sql.MACOS_SETTINGS)


def use_wal(connection: sqlite3.Connection, give_up_at: float) -> None:
    """Switch to WAL; SQLite does not wait for the exclusive lock that this takes, so we do.

    The switch changes bytes of the first sector only, which a disk writes whole or not at all. So
    it needs no journal in a file, and none of ours ever stands beside a database.
    """
    while True:
        try:
            if _journal_mode(connection, sql.JOURNAL_MODE) == b"wal":
                return
            apply(connection, (sql.USE_MEMORY_JOURNAL,))
            if _journal_mode(connection, sql.USE_WAL) == b"wal":
                return
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() >= give_up_at:
                raise
        else:
            msg = "the file system has no WAL"
            raise sqlite3.OperationalError(msg)
        time.sleep(_RETRY_S)


def number(connection: sqlite3.Connection, statement: str) -> int:
    """Return the one number that a statement yields."""
    (value,) = connection.execute(statement).fetchone()
    return int(value)


def _journal_mode(connection: sqlite3.Connection, statement: str) -> bytes:
    mode: bytes = connection.execute(statement).fetchone()[0]
    return mode

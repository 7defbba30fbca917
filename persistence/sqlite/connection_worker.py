"""A connection worker: one connection, and the one thread at a time that works on it.

Rule: database-never-blocks-loop.

The backend has two, so that reads never stand behind a writer that waits for another process.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.to_thread

from persistence.sqlite import sql
from persistence.sqlite.connection import wait_at_most
from persistence.sqlite.foreign import file_at, is_wal_empty

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from persistence.sqlite.database import Database

T = TypeVar("T")


class WorkerBusyError(Exception):
    """The worker did not become free in time. Private to the backend."""


class ConnectionWorker:
    """Runs work on one connection, which it opens when it is first needed.

    Args:
        path: Of the database file.
        open_database: Opens it, given when to give up waiting and whether to create it.
        wait_s: The longest total wait of one piece of work, for the worker and for other processes.
    """

    def __init__(
        self, path: str, open_database: Callable[[float, bool], Database], wait_s: float
    ) -> None:
        self._path = path
        self._open_database = open_database
        self._wait_s = wait_s
        self._limiter = anyio.CapacityLimiter(1)
        self._database: Database | None = None

    async def run(self, work: Callable[[Database, float], T], *, create: bool = False) -> T:
        """Run `work(database, give_up_at)` in a thread; what was begun is never abandoned.

        Args:
            work: Raises `sqlite3.Error` where SQLite fails; an open transaction is rolled back.
            create: Create the database if there is none.

        Raises:
            WorkerBusyError: Other work held the worker too long.
            DatabaseAbsentError: There is no database, and none was to be created.
        """
        give_up_at = time.monotonic() + self._wait_s
        try:
            with anyio.fail_after(self._wait_s):
                return await anyio.to_thread.run_sync(
                    partial(self._run, work, give_up_at, create), limiter=self._limiter
                )
        except TimeoutError as error:
            raise WorkerBusyError from error

    async def close(self) -> None:
        """Close the connection; later work opens another."""
        await anyio.to_thread.run_sync(self._close, limiter=self._limiter)

    def _run(self, work: Callable[[Database, float], T], give_up_at: float, create: bool) -> T:
        database = self._current(give_up_at, create)
        try:
            wait_at_most(database.connection, give_up_at)
            return work(database, give_up_at)
        finally:
            self._roll_back()

    def _current(self, give_up_at: float, create: bool) -> Database:
        """Return the connection to the file that stands at the path now."""
        identity = file_at(self._path)
        if self._database is not None and identity != self._database.identity:
            self._close()
        if self._database is not None and not self._database.has_its_wal:
            if is_wal_empty(self._path):
                self._database.leave_lost_wal()
            self._close()
        if self._database is None:
            self._database = self._open_database(give_up_at, create)
        return self._database

    def _roll_back(self) -> None:
        if self._database is None:
            return
        try:
            roll_back(self._database.connection)
        except sqlite3.Error:
            # Nothing is known of it any more; closing it rolls back in any case.
            self._close()

    def _close(self) -> None:
        if self._database is not None:
            database, self._database = self._database, None
            database.connection.close()


def roll_back(connection: sqlite3.Connection) -> None:
    """Give up what is begun on a connection, if anything is."""
    if connection.in_transaction:
        connection.execute(sql.ROLLBACK)


@contextmanager
def transaction(database: Database) -> Iterator[None]:
    """Hold the write lock of the database; commit durably at the end, or change nothing.

    Raises:
        sqlite3.Error: It was not committed, or into a -wal that nobody will read.
    """
    database.connection.execute(sql.BEGIN_IMMEDIATE)
    yield
    database.connection.execute(sql.COMMIT)
    database.leave_lost_wal()

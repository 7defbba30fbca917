"""The SQLite backend: two connection workers for one database file, and its writers."""

from __future__ import annotations

import os.path
import secrets
import sqlite3
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.to_thread

from persistence.errors import (
    SessionLockedError,
    SessionNotFoundError,
    StoreReadError,
    write_error,
)
from persistence.lock import LOCK_WAIT_S, wait_for_lock
from persistence.paging import decode_cursor
from persistence.sqlite.connection_worker import ConnectionWorker, WorkerBusyError
from persistence.sqlite.database import (
    Database,
    DatabaseAbsentError,
    check_sqlite,
    open_for_reading,
    open_for_writing,
)
from persistence.sqlite.failures import failed_read
from persistence.sqlite.foreign import refuse_foreign_file
from persistence.sqlite.locks import SessionLock, is_storable_text
from persistence.sqlite.reading import has_session, read_page, read_snapshot
from persistence.sqlite.stored_log import decode_log
from persistence.sqlite.writer import SqliteWriter
from persistence.storage import EntryPage, StoredLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from persistence.storage import Location, Writer
    from session_core import SessionHeader

T = TypeVar("T")

# What a prompt may wait for another process before it fails (database-never-blocks-loop).
_WRITE_WAIT_S = 10.0
# Readers of a WAL wait for nobody but who recovers or closes the database.
_READ_WAIT_S = 5.0
# Decoding does not get faster by more threads, but a short log need not wait for a long one.
_MAX_DECODERS = 4


def _new_token() -> str:
    return secrets.token_hex(16)


class SqliteBackend:
    """One database file of sessions. See `StorageBackend`.

    Args:
        path: The file; created with the first session. A relative one is fixed here.
        pack: Write runs of deltas as packed rows; reading knows both forms.
        lock_wait_s: How long a session's lock is waited for.
        write_wait_s: How long a write waits for others, all in all.
        new_token: Makes the identities of the store and of its sessions.

    Raises:
        ForeignStoreError: The file is none of ours.
        StoreReadError: It cannot be read.
    """

    def __init__(
        self,
        path: str,
        *,
        pack: bool = True,
        lock_wait_s: float = LOCK_WAIT_S,
        write_wait_s: float = _WRITE_WAIT_S,
        new_token: Callable[[], str] = _new_token,
    ) -> None:
        check_sqlite()
        # Lexical: what links of the user's own lead to must stay under their control.
        self._path = os.path.abspath(path)  # noqa: PTH100 - resolve() would follow links
        self._pack = pack
        self._lock_wait_s = lock_wait_s
        self._new_token = new_token
        self._writers: set[SqliteWriter] = set()
        self._decoders = anyio.CapacityLimiter(_MAX_DECODERS)
        self._reading = ConnectionWorker(
            self._path, lambda give_up_at, _: open_for_reading(self._path, give_up_at), _READ_WAIT_S
        )
        self._writing = ConnectionWorker(
            self._path, partial(open_for_writing, self._path, new_token), write_wait_s
        )
        refuse_foreign_file(self._path)

    def locate(self, header: SessionHeader) -> Location | None:
        """See `StorageBackend.locate`: no session has a place of its own."""
        return None

    async def load_stored(self, session_id: str) -> StoredLog | None:
        """See `StorageBackend.load_stored`."""
        if not is_storable_text(session_id):
            return None
        read = lambda database: read_snapshot(database, session_id)  # noqa: E731
        snapshot = await self._read(read, session_id, None)
        if snapshot is None:
            return None
        # Not in the worker: a list must not wait until a long log is decoded.
        return await anyio.to_thread.run_sync(partial(decode_log, snapshot), limiter=self._decoders)

    async def list_page(self, cwd: str | None, cursor: str | None, limit: int) -> EntryPage:
        """See `StorageBackend.list_page`."""
        if cursor is not None:
            decode_cursor(cursor)
        read = lambda database: read_page(database, cwd, cursor, limit)  # noqa: E731
        return await self._read(read, None, EntryPage([], None))

    async def acquire_writer(
        self, session_id: str, header: SessionHeader | None = None, *, wait: bool = True
    ) -> Writer:
        """See `StorageBackend.acquire_writer`."""
        if header is None and not await self._has(session_id):
            raise SessionNotFoundError(session_id)
        lock = SessionLock(self._path, session_id)
        await self._acquire(session_id, lock, self._lock_wait_s if wait else 0.0)
        materialized = False
        try:
            # Looked at again: it may have come or gone while the lock was waited for.
            materialized = await self._has(session_id)
            if header is None and not materialized:
                raise SessionNotFoundError(session_id)
        except BaseException:
            release = partial(lock.release, remove=not materialized and header is None)
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(release)
            raise
        writer = SqliteWriter(
            self._writing,
            session_id,
            lock,
            materialized=materialized,
            pack=self._pack,
            new_token=self._new_token,
            on_released=self._writers.discard,
        )
        self._writers.add(writer)
        return writer

    async def close(self) -> None:
        """See `StorageBackend.close`."""
        for writer in list(self._writers):
            await writer.release()
        await self._reading.close()
        await self._writing.close()

    async def _acquire(self, session_id: str, lock: SessionLock, wait_s: float) -> None:
        async def attempt() -> bool | None:
            try:
                return await anyio.to_thread.run_sync(lock.try_acquire) or None
            except OSError as error:
                raise write_error(session_id, error) from error

        if not await wait_for_lock(attempt, wait_s):
            raise SessionLockedError(session_id, lock.holder_pid())

    async def _has(self, session_id: str) -> bool:
        if not is_storable_text(session_id):
            return False
        read = lambda database: has_session(database, session_id)  # noqa: E731
        return await self._read(read, session_id, absent=False)

    async def _read(self, read: Callable[[Database], T], session_id: str | None, absent: T) -> T:
        """Run a read; `absent` is what an empty store answers."""
        try:
            return await self._reading.run(lambda database, _: read(database))
        except DatabaseAbsentError:
            return absent
        except WorkerBusyError as error:
            raise StoreReadError(session_id, self._path, "other reads take too long") from error
        except sqlite3.Error as error:
            raise failed_read(session_id, self._path, error) from error

"""The SQLite backend's `Writer`: one transaction for each batch, repair and delete.

Remembers the log as this process left it, and finds it so in each transaction or writes nothing
(changed-log-is-never-overwritten).
"""

from __future__ import annotations

import sqlite3
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

import anyio
import anyio.to_thread

from persistence.errors import (
    SessionChangedError,
    SessionCollisionError,
    StoreWriteError,
)
from persistence.sqlite import sql
from persistence.sqlite.connection import wait_at_most
from persistence.sqlite.connection_worker import WorkerBusyError, roll_back, transaction
from persistence.sqlite.database import DatabaseAbsentError
from persistence.sqlite.failures import failed_write, lacks_room
from persistence.sqlite.rows import (
    EncodedBatch,
    LogState,
    encode_batch,
    header_crc,
    header_values,
    summary_values,
)
from persistence.summary import SummaryFold

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from persistence.sqlite.connection_worker import ConnectionWorker
    from persistence.sqlite.database import Database
    from persistence.sqlite.locks import SessionLock
    from persistence.storage import SessionSummary, StoredLog
    from session_core import Event, EventLog, Record, SessionHeader

T = TypeVar("T")

# Rows that are deleted at once where there is little room; most are smaller than a page.
_PIECE = 16
_CHECKPOINT_RETRY_S = 0.02


class SqliteWriter:
    """See `Writer`. Holds the session's lock from construction to `release`."""

    def __init__(
        self,
        worker: ConnectionWorker,
        session_id: str,
        lock: SessionLock,
        *,
        materialized: bool,
        pack: bool,
        new_token: Callable[[], str],
        on_released: Callable[[SqliteWriter], None],
    ) -> None:
        self._worker = worker
        self._session_id = session_id
        self._lock = lock
        self._materialized = materialized
        self._pack = pack
        self._new_token = new_token
        self._on_released = on_released
        self._log: _Log | None = None
        self._released = False

    @property
    def materialized(self) -> bool:
        """See `Writer.materialized`."""
        return self._materialized

    @property
    def position(self) -> object | None:
        """See `Writer.position`."""
        return self._log

    @property
    def former_pid(self) -> int | None:
        """See `Writer.former_pid`."""
        return self._lock.former_pid

    async def append_batch(
        self,
        header: SessionHeader,
        records: Sequence[Record],
        summary: SessionSummary | None = None,
    ) -> None:
        """See `Writer.append_batch`. The summary is our own, since every batch needs one."""
        if self._log is None and self._materialized:
            raise SessionCollisionError(self._session_id, "a log is stored already")
        if self._log is None:
            self._log = await self._run(partial(self._publish, header, records), create=True)
            self._materialized = True
        else:
            self._log = await self._run(partial(self._append, self._log, records))

    async def commit_repair(self, stored: StoredLog, closers: Sequence[Event]) -> None:
        """See `Writer.commit_repair`."""
        # A mark comes from this backend's own `load_stored`.
        state = cast("LogState", stored.mark)
        self._log = _Log(state, _LateFold(SummaryFold(stored.header), stored.log))
        if stored.torn is not None or closers:
            self._log = await self._run(partial(self._repair, self._log, closers))

    async def continue_from(self, position: object) -> None:
        """See `Writer.continue_from`."""
        log = cast("_Log", position)
        await self._run(lambda database, _: self._check_unchanged(database, log.state))
        self._log = log

    async def delete(self) -> None:
        """See `Writer.delete`."""
        try:
            await self._run(self._delete)
        finally:
            await self.release()

    async def release(self) -> None:
        """See `Writer.release`."""
        if self._released:
            return
        self._released = True
        self._on_released(self)
        # What is not stored leaves nothing behind.
        release = partial(self._lock.release, remove=not self._materialized)
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(release)

    async def _run(self, work: Callable[[Database, float], T], *, create: bool = False) -> T:
        try:
            return await self._worker.run(work, create=create)
        except DatabaseAbsentError as error:
            raise SessionChangedError(self._session_id, "its database is gone") from error
        except WorkerBusyError as error:
            raise StoreWriteError(self._session_id, "locked", "other writes wait too") from error
        except sqlite3.Error as error:
            raise failed_write(self._session_id, error) from error

    def _publish(
        self,
        header: SessionHeader,
        records: Sequence[Record],
        database: Database,
        _give_up_at: float,
    ) -> _Log:
        incarnation = self._new_token()
        state = LogState(database.identity, incarnation, 0, 0, -1, 0)
        batch = self._encode(records, state, header)
        fold = SummaryFold(header)
        fold.advance(records)
        values = (*header_values(header), incarnation, 0, *summary_values(fold.summary()))
        connection = database.connection
        with transaction(database):
            if connection.execute(sql.HAS_SESSION, (self._session_id,)).fetchone():
                raise SessionCollisionError(self._session_id, "a log is stored already")
            connection.execute(sql.INSERT_SESSION, values)
            connection.executemany(sql.INSERT_EVENT, batch.rows)
        return _Log(_state_after(state, batch, added=0), _LateFold(fold))

    def _append(
        self, log: _Log, records: Sequence[Record], database: Database, _give_up_at: float
    ) -> _Log:
        batch = self._encode(records, log.state)
        fold = log.fold.advanced(records)
        connection = database.connection
        with transaction(database):
            self._check_unchanged(database, log.state)
            connection.executemany(sql.INSERT_EVENT, batch.rows)
            self._update_session(connection, fold)
        return _Log(_state_after(log.state, batch), _LateFold(fold))

    def _repair(
        self, log: _Log, closers: Sequence[Event], database: Database, _give_up_at: float
    ) -> _Log:
        batch = self._encode(closers, log.state)
        fold = log.fold.advanced(closers)
        connection = database.connection
        with transaction(database):
            self._check_unchanged(database, log.state)
            connection.execute(sql.DELETE_EVENTS_FROM, (self._session_id, log.state.next_seq))
            connection.executemany(sql.INSERT_EVENT, batch.rows)
            self._update_session(connection, fold)
        return _Log(_state_after(log.state, batch), _LateFold(fold))

    def _delete(self, database: Database, give_up_at: float) -> None:
        connection = database.connection
        try:
            with transaction(database):
                connection.execute(sql.DELETE_SESSION, (self._session_id,))
                # Those of a damaged session may have lost their parent.
                connection.execute(sql.DELETE_EVENTS_FROM, (self._session_id, 0))
        except sqlite3.Error as error:
            if not lacks_room(error):
                raise
            roll_back(connection)
            self._delete_in_pieces(database)
        self._materialized = False
        # The pages are overwritten already; what is left of the text stands in the -wal.
        wait_at_most(connection, give_up_at)
        while connection.execute(sql.TRUNCATE_WAL).fetchone()[0]:
            if time.monotonic() >= give_up_at:
                detail = "a reader keeps deleted text in the -wal file"
                raise StoreWriteError(self._session_id, "locked", detail)
            time.sleep(_CHECKPOINT_RETRY_S)

    def _delete_in_pieces(self, database: Database) -> None:
        """Delete with the room that the -wal has: it is written from its start for each piece.

        The session goes first, so that a kill leaves nothing that is listed or loaded.
        """
        connection, session_id = database.connection, self._session_id
        connection.execute(sql.FOREIGN_KEYS_OFF)
        try:
            connection.execute(sql.RESTART_WAL).fetchall()
            with transaction(database):
                connection.execute(sql.DELETE_SESSION, (session_id,))
            is_left = True
            while is_left:
                connection.execute(sql.RESTART_WAL).fetchall()
                with transaction(database):
                    piece = connection.execute(sql.DELETE_LAST_EVENTS, (session_id, _PIECE))
                    is_left = piece.rowcount > 0
        finally:
            roll_back(connection)
            connection.execute(sql.FOREIGN_KEYS_ON)

    def _encode(
        self, records: Sequence[Record], state: LogState, header: SessionHeader | None = None
    ) -> EncodedBatch:
        try:
            crc = state.crc if header is None else header_crc(header)
            return encode_batch(self._session_id, records, state.next_seq, crc, pack=self._pack)
        except (TypeError, ValueError) as error:
            raise StoreWriteError(self._session_id, "not encodable", str(error)) from error

    def _check_unchanged(self, database: Database, state: LogState) -> None:
        """See that the log is as it was left, in the transaction that is about to change it.

        Raises:
            SessionChangedError: It is not.
        """
        if database.identity != state.identity:
            raise SessionChangedError(self._session_id, "its database is another file")
        connection = database.connection
        guard = connection.execute(sql.READ_GUARD, (self._session_id,)).fetchone()
        if guard is None:
            raise SessionChangedError(self._session_id, "it is gone")
        if guard != (state.incarnation.encode(), state.revision):
            raise SessionChangedError(self._session_id, "it has another revision")
        last = connection.execute(sql.READ_LAST_SEQ, (self._session_id,)).fetchone()
        if (-1 if last is None else last[0]) != state.last_seq:
            raise SessionChangedError(self._session_id, "it has other events")

    def _update_session(self, connection: sqlite3.Connection, fold: SummaryFold) -> None:
        values = summary_values(fold.summary())
        connection.execute(sql.UPDATE_SESSION, (*values, self._session_id))


class _LateFold:
    """The summary of a stored log, folded when it is first needed: many loads write nothing."""

    def __init__(self, fold: SummaryFold, log: EventLog | None = None) -> None:
        self._fold = fold
        self._log = log

    def advanced(self, records: Sequence[Record]) -> SummaryFold:
        """Return the fold behind more records, leaving this one as it is."""
        if self._log is not None:
            self._fold.advance(self._log.records())
            self._log = None
        fold = self._fold.copy()
        fold.advance(records)
        return fold


class _Log(NamedTuple):
    """The log as this writer left it, and its summary."""

    state: LogState
    fold: _LateFold


def _state_after(state: LogState, batch: EncodedBatch, *, added: int = 1) -> LogState:
    return replace(
        state,
        revision=state.revision + added,
        next_seq=batch.next_seq,
        last_seq=batch.next_seq - 1,
        crc=batch.crc,
    )

"""Reading sessions: one log, one page of the list. Each in one read transaction."""

from __future__ import annotations

import json
import logging
from contextlib import contextmanager
from itertools import starmap
from typing import TYPE_CHECKING

from persistence.errors import CorruptLogError, PersistenceError
from persistence.paging import DirectoryFilter, ListKey, decode_cursor, encode_cursor
from persistence.sqlite import sql
from persistence.sqlite.rows import (
    EventRow,
    SessionRecord,
    decode_header,
    decode_summary,
)
from persistence.sqlite.stored_log import Snapshot
from persistence.storage import EntryPage, SessionEntry

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from persistence.sqlite.database import Database

_logger = logging.getLogger(__name__)


def has_session(database: Database, session_id: str) -> bool:
    """Tell whether a session is stored, in whatever state."""
    cursor = database.connection.execute(sql.HAS_SESSION, (session_id,))
    return cursor.fetchone() is not None


def read_snapshot(database: Database, session_id: str) -> Snapshot | None:
    """Read the rows of a session; None when it is not stored.

    Raises:
        CorruptLogError: It has events and no header.
    """
    with _read_transaction(database.connection) as connection:
        session = connection.execute(sql.READ_SESSION, (session_id,)).fetchone()
        if session is None:
            if connection.execute(sql.HAS_EVENTS, (session_id,)).fetchone():
                raise CorruptLogError(session_id, "its row among the sessions is missing")
            return None
        rows = connection.execute(sql.READ_EVENTS, (session_id,))
        events = list(starmap(EventRow, rows))
    return Snapshot(session_id, database, SessionRecord(*session), events)


def read_page(database: Database, cwd: str | None, cursor: str | None, limit: int) -> EntryPage:
    """Read one page, see `StorageBackend.list_page`.

    Raises:
        InvalidCursorError: No page gave this cursor.
    """
    after = sql.FIRST_KEY
    if cursor is not None:
        key = decode_cursor(cursor)
        after = (-key.age, key.session_id.encode(errors="surrogatepass"))
    with _read_transaction(database.connection) as connection:
        if cursor is None:
            for (session_id,) in connection.execute(sql.READ_KEYLESS):
                _warn_once(database, f"the row of session {session_id!r} has a damaged key")
        cwds = None if cwd is None else _spellings(connection, cwd)
        entries: list[SessionEntry] = []
        # Damaged rows are left out, so that a page may take more than one look.
        while len(entries) <= limit:
            records = _read_after(connection, after, limit + 1, cwds)
            entries += _entries(database, records)
            if len(records) <= limit:
                break
            after = (records[-1].updated_at, records[-1].id)
    if len(entries) <= limit:
        return EntryPage(entries, None)
    page = entries[:limit]
    last = page[-1]
    return EntryPage(page, encode_cursor(ListKey.of(last.summary, last.header.id)))


def _spellings(connection: sqlite3.Connection, cwd: str) -> str:
    """Return the stored directories that are this one by realpath, as a JSON array (B23)."""
    is_wanted = DirectoryFilter(cwd)
    stored = (row[0].decode(errors="replace") for row in connection.execute(sql.READ_CWDS))
    return json.dumps([name for name in stored if is_wanted(name)])


def _read_after(
    connection: sqlite3.Connection, after: tuple[int, bytes], limit: int, cwds: str | None
) -> list[SessionRecord]:
    if cwds is None:
        rows = connection.execute(sql.READ_PAGE, (*after, limit))
    else:
        rows = connection.execute(sql.READ_PAGE_OF_CWDS, (*after, limit, cwds))
    return list(starmap(SessionRecord, rows))


def _entries(database: Database, records: list[SessionRecord]) -> Iterator[SessionEntry]:
    for record in records:
        try:
            header, summary = decode_header(record), decode_summary(record)
        except PersistenceError as error:
            _warn_once(database, str(error))
            continue
        incarnation = record.incarnation.decode(errors="replace")
        revision = database.revision(incarnation, record.revision)
        yield SessionEntry(header, summary, revision)


def _warn_once(database: Database, fault: str) -> None:
    if fault not in database.named_faults:
        database.named_faults.add(fault)
        _logger.warning("%s; it is left out of the list", fault)


@contextmanager
def _read_transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Show one state of the database; writers go on meanwhile."""
    connection.execute(sql.BEGIN)
    yield connection
    connection.execute(sql.COMMIT)

"""The harness of the SQLite backend for `persistence.testing`; here, because it runs SQL."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from persistence.sqlite.backend import SqliteBackend

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Checks that run into a held lock wait this long.
_LOCK_WAIT_S = 0.2

_BAD_ROW = (
    "INSERT INTO events SELECT id, {seq}, {seq}, 'turn/start', 1, '{{', NULL, NULL, NULL {of}"
)
_LAST = "(SELECT max(last_seq) + 1 FROM events WHERE session_id = id)"
_OF_SESSION = "FROM sessions WHERE id = ?"


class SqliteHarness:
    """A database file and ways to change its rows, see `BackendHarness`.

    Args:
        path: The database file, which need not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self) -> SqliteBackend:
        """See `BackendHarness.open`."""
        return SqliteBackend(str(self.path), lock_wait_s=_LOCK_WAIT_S)

    def tear(self, session_id: str) -> None:
        """See `BackendHarness.tear`."""
        self.execute(_BAD_ROW.format(seq=_LAST, of=_OF_SESSION), session_id)

    def damage(self, session_id: str) -> None:
        """See `BackendHarness.damage`."""
        self.execute("UPDATE events SET data = '?' WHERE session_id = ? AND seq = 1", session_id)

    def grow(self, session_id: str) -> None:
        """See `BackendHarness.grow`."""
        self.tear(session_id)
        self.execute("UPDATE sessions SET revision = revision + 1 WHERE id = ?", session_id)

    def contents(self, session_id: str) -> object:
        """See `BackendHarness.contents`."""
        if not self.path.exists():
            return None
        if not self.execute("SELECT 1 FROM sessions WHERE id = ?", session_id):
            return None
        return self.execute("SELECT * FROM events WHERE session_id = ? ORDER BY seq", session_id)

    def execute(self, statement: str, *values: Any) -> list[Any]:
        """Run one statement from outside of the backend; return its rows."""
        with self.connected() as connection:
            return connection.execute(statement, values).fetchall()

    @contextmanager
    def connected(self) -> Iterator[sqlite3.Connection]:
        """Open the database as another program would; each statement is a transaction."""
        connection = sqlite3.connect(str(self.path), isolation_level=None)
        connection.text_factory = lambda text: text.decode(errors="surrogateescape")
        try:
            yield connection
        finally:
            connection.close()

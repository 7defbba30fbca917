"""The harness of the SQLite backend for `persistence.testing`; here, because it runs SQL."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from persistence.records import BadRecordError, encode_record, parse_json
from persistence.sqlite.backend import SqliteBackend

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Checks that run into a held lock wait this long.
_LOCK_WAIT_S = 0.2

_HALF_RECORD = b'{"type":"turn/start","seq":'
_NEXT_SEQ = "SELECT coalesce(max(last_seq) + 1, 0) FROM events WHERE session_id = ?"
_INSERT = "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"


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
        self.plant(session_id, _HALF_RECORD)

    def plant(self, session_id: str, *records: bytes) -> None:
        """See `BackendHarness.plant`. What is not JSON becomes a row whose data is not JSON."""
        for record in records:
            ((next_seq,),) = self.execute(_NEXT_SEQ, session_id)
            row = _columns(record, next_seq)
            self.execute(_INSERT, session_id, *row)

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


def _columns(record: bytes, next_seq: int) -> tuple[Any, ...]:
    """Return the columns of a storage record behind the session's id; its `dt` tells its length."""
    try:
        value = parse_json(record)
    except BadRecordError:
        return (
            next_seq,
            next_seq,
            "turn/start",
            1,
            record.decode(errors="replace"),
            None,
            None,
            None,
        )
    seq, time = value.get("seq", value.get("seq0")), value.get("time", value.get("time0"))
    last_seq = seq + len(value["data"]["dt"]) if "seq0" in value else seq
    return (
        *(seq, last_seq, value["type"], time),
        *(_text(value, key) for key in ("data", "sourceEventSeqs", "surfaceOp")),
        None,
    )


def _text(value: dict[str, Any], key: str) -> str | None:
    return encode_record(value[key])[:-1].decode() if key in value else None

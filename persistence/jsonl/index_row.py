"""One line of the summary index, in memory and on the disk."""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson

from persistence.paging import ListKey
from persistence.storage import SessionEntry, SessionSummary
from persistence.summary import MAX_LINE
from session_core import SessionHeader, is_seq_int

_LINES = ("title", "firstPrompt")


class IndexRow(NamedTuple):
    """A cached summary of the log at `key`, as it was with this inode and size.

    Kept as the JSON object that it is stored as: of ten thousand rows a page shows fifty.
    """

    key: str
    inode: int
    size: int
    updated_at: int
    session_id: str
    stored: dict[str, Any]

    @property
    def place(self) -> ListKey:
        """Where the session stands in the list."""
        return ListKey(-self.updated_at, self.session_id)

    @property
    def cwd(self) -> str | None:
        """The session's working directory."""
        cwd: str | None = self.stored["header"].get("cwd")
        return cwd

    def entry(self, revision: str) -> SessionEntry:
        """Return the row as a list shows it.

        Raises:
            SessionCoreError: The header in it is none.
        """
        stored = self.stored
        summary = SessionSummary(
            stored.get("title"),
            stored.get("firstPrompt"),
            stored["updatedAt"],
            stored["events"],
            stored["turns"],
        )
        return SessionEntry(SessionHeader.from_json(stored["header"]), summary, revision)


def row_of(
    key: str, inode: int, size: int, header: SessionHeader, summary: SessionSummary
) -> IndexRow:
    """Return the row of a session whose log has this inode and size."""
    stored: dict[str, Any] = {
        "key": key,
        "inode": inode,
        "size": size,
        "header": header.to_json(),
        "updatedAt": summary.updated_at,
        "events": summary.event_count,
        "turns": summary.turn_count,
    }
    if summary.title is not None:
        stored["title"] = summary.title
    if summary.first_prompt is not None:
        stored["firstPrompt"] = summary.first_prompt
    return IndexRow(key, inode, size, summary.updated_at, header.id, stored)


def encode_row(row: IndexRow) -> bytes:
    """Return a row as a line."""
    return orjson.dumps(row.stored, option=orjson.OPT_APPEND_NEWLINE)


def decode_row(line: bytes) -> IndexRow | None:
    """Return the row of a line; None for a line that is none."""
    try:
        stored = orjson.loads(line)
        key, inode, size, header = (stored[name] for name in ("key", "inode", "size", "header"))
        counts = stored["updatedAt"], stored["events"], stored["turns"]
        session_id, cwd = header["id"], header.get("cwd")
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    are_texts = type(key) is str and type(session_id) is str and (cwd is None or type(cwd) is str)
    if not are_texts or type(inode) is not int or type(size) is not int:
        return None
    if not all(map(is_seq_int, counts)) or not all(_is_line(stored.get(name)) for name in _LINES):
        return None
    return IndexRow(key, inode, size, counts[0], session_id, stored)


def _is_line(value: object) -> bool:
    return value is None or (type(value) is str and len(value) <= MAX_LINE)

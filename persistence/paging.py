"""What a list shows: its order, its opaque keyset cursor, its filter by directory.

Rule: list-rows-fold-the-log.

Pages follow the key of the last row shown, not a position, so that sessions that come, go or move
meanwhile are neither repeated nor lost among the rest.
"""

from __future__ import annotations

import base64
import binascii
import heapq
import json
import os.path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from persistence.errors import InvalidCursorError
from session_core import is_seq_int

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from persistence.storage import SessionSummary

RowT = TypeVar("RowT")


class ListKey(NamedTuple):
    """Sorts the latest session first, then by id."""

    age: int
    session_id: str

    @classmethod
    def of(cls, summary: SessionSummary, session_id: str) -> ListKey:
        """Return the key of a session."""
        return cls(-summary.updated_at, session_id)


def take_page(
    rows: Iterable[RowT], place: Callable[[RowT], ListKey], cursor: str | None, limit: int
) -> tuple[list[RowT], str | None]:
    """Return the rows of one page, ordered by their `place`, and the cursor of the next.

    Raises:
        InvalidCursorError: No page gave this cursor.
    """
    after = None if cursor is None else decode_cursor(cursor)
    rest = rows if after is None else (row for row in rows if place(row) > after)
    page = heapq.nsmallest(limit + 1, rest, key=place)
    if len(page) <= limit:
        return page, None
    return page[:limit], encode_cursor(place(page[limit - 1]))


class DirectoryFilter:
    """Tells whether a path is a given directory, however either is spelled (B23)."""

    def __init__(self, cwd: str | None) -> None:
        self._wanted = None if cwd is None else _real(cwd)
        # Sessions share few directories; resolving one costs a system call a component.
        self._known: dict[str, bool] = {}

    def __call__(self, cwd: str | None) -> bool:
        """Tell whether a session of this working directory is wanted."""
        if self._wanted is None:
            return True
        if cwd is None:
            return False
        if cwd not in self._known:
            self._known[cwd] = _real(cwd) == self._wanted
        return self._known[cwd]


def _real(path: str) -> str:
    try:
        return os.path.realpath(path)
    except ValueError:
        # A NUL: no system has such a path, but a foreign log may name it.
        return path


def encode_cursor(key: ListKey) -> str:
    """Return the cursor of the page behind the row with this key."""
    text = json.dumps([-key.age, key.session_id], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_cursor(cursor: str) -> ListKey:
    """Return the key behind which a page starts.

    Raises:
        InvalidCursorError: No page gave this cursor.
    """
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        value = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, binascii.Error, RecursionError) as error:
        raise InvalidCursorError(cursor) from error
    match value:
        case [updated_at, str(session_id)] if is_seq_int(updated_at):
            return ListKey(-updated_at, session_id)
        case _:
            raise InvalidCursorError(cursor)

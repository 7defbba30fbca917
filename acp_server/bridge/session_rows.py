"""The rows of `session/list`, from what is stored and what is live (list-rows-fold-the-log)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from acp_server.bridge.timestamps import iso_time
from acp_server.wire import results
from persistence.summary import list_line
from session_core import current_title, is_turn_open

if TYPE_CHECKING:
    from collections.abc import Iterable

    from acp_server.bridge.open_sessions import OpenSessions
    from persistence.storage import SessionEntry


_logger = logging.getLogger(__name__)


class SessionRows:
    """Makes the rows of stored sessions.

    The summary of a session is stored at the end of a turn, so while a turn is open here its title
    is taken from the live log. The order, and the time it goes by, is that of the store.
    """

    def __init__(self, open_sessions: OpenSessions) -> None:
        self._open_sessions = open_sessions
        self._timeless: set[str] = set()

    def rows_of(self, entries: Iterable[SessionEntry]) -> list[Any]:
        """Return the rows; a session without a directory cannot be opened, nor listed."""
        return [
            results.session_info(
                entry.header.id,
                entry.header.cwd,
                title=self._live_title(entry.header.id) or entry.summary.title,
                updated_at=self._time(entry),
            )
            for entry in entries
            if entry.header.cwd is not None
        ]

    def _time(self, entry: SessionEntry) -> str | None:
        time, session_id = entry.summary.updated_at, entry.header.id
        stamp = iso_time(time)
        if stamp is None and session_id not in self._timeless:
            self._timeless.add(session_id)
            what = "session %r is listed without its time: no calendar has %d ms"
            _logger.warning(what, session_id, time)
        return stamp

    def _live_title(self, session_id: str) -> str | None:
        opened = self._open_sessions.get(session_id)
        if opened is None or not is_turn_open(opened.session.events):
            return None
        title = current_title(opened.session.events)
        return None if title is None else list_line(title)

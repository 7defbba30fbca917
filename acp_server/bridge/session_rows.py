"""The rows of `session/list`, from what is stored and what is live (list-rows-fold-the-log)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acp_server.bridge.timestamps import iso_time
from acp_server.wire import results
from session_core import current_title, is_turn_open

if TYPE_CHECKING:
    from collections.abc import Iterable

    from acp_server.bridge.open_sessions import OpenSessions
    from persistence.storage import SessionEntry


def session_rows(entries: Iterable[SessionEntry], open_sessions: OpenSessions) -> list[Any]:
    """Return the rows of stored sessions; one without a directory cannot be opened, nor listed.

    The summary of a session is stored at the end of a turn, so while a turn is open here its title
    is taken from the live log. The order, and the time it goes by, is that of the store.
    """
    return [
        results.session_info(
            entry.header.id,
            entry.header.cwd,
            title=_live_title(entry.header.id, open_sessions) or entry.summary.title,
            updated_at=iso_time(entry.summary.updated_at),
        )
        for entry in entries
        if entry.header.cwd is not None
    ]


def _live_title(session_id: str, open_sessions: OpenSessions) -> str | None:
    opened = open_sessions.get(session_id)
    if opened is None or not is_turn_open(opened.session.events):
        return None
    return current_title(opened.session.events)

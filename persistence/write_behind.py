"""Writing behind: what no checkpoint asked for reaches the disk a window later.

Rule: important-events-start-flush.

The window opens with the first pending event and later events do not extend it. A failure is
logged once, keeps everything, and ends the attempts until the next event. Nothing depends on the
window for being correct; it bounds what a SIGKILL can take.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import anyio

from persistence.errors import PersistenceError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from anyio.abc import TaskGroup

    from persistence.slots import LiveSession

_logger = logging.getLogger(__name__)


class WriteBehind:
    """Starts background drains of live sessions in the repository's task group."""

    def __init__(
        self, tasks: TaskGroup, window_s: float, drain: Callable[[LiveSession], Awaitable[None]]
    ) -> None:
        self._tasks = tasks
        self._window_s = window_s
        self._drain = drain

    def schedule_flush(self, live: LiveSession) -> None:
        """Something is pending: open a window, unless one is open."""
        if live.timer is None:
            live.timer = anyio.Event()
            self._tasks.start_soon(self._write_later, live, live.timer)

    def flush_soon(self, live: LiveSession) -> None:
        """Something is pending that must not wait."""
        self.schedule_flush(live)
        if live.timer is not None:
            live.timer.set()

    async def _write_later(self, live: LiveSession, timer: anyio.Event) -> None:
        if not timer.is_set():
            with anyio.move_on_after(self._window_s):
                await timer.wait()
        # What comes from here on opens a window of its own.
        live.timer = None
        if not live.pending:
            return
        try:
            await self._drain(live)
        except PersistenceError as error:
            if not live.failure_logged and live.lost is None:
                live.failure_logged = True
                _logger.warning("%s; %d events are kept in memory", error, live.pending)
        except Exception:
            # A failure in the background must not end the task group, and all sessions with it.
            _logger.exception("session %r could not be written", live.session.id)

"""Writing behind: what no checkpoint asked for reaches the disk a window later.

Rule: important-events-start-flush.

The window opens with the first pending event and later events do not extend it. A failure is
logged once, keeps everything, and ends the attempts until the next event. Nothing depends on the
window for being correct; it bounds what a SIGKILL can take. The checkpoints, where a turn waits
until its events are durable, are the turn's.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio

from persistence.errors import PersistenceError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from anyio.abc import TaskGroup

    from persistence.slots import LiveSession

_logger = logging.getLogger(__name__)

# What a person has seen as settled, or what records an intent to act: a kill between two
# checkpoints must not take it. Text and progress may be lost up to the window.
_AT_ONCE = frozenset({"assistant/message", "todo/write"})
_AT_ONCE_FAMILIES = ("tool/", "approval/")


def starts_write_behind(event_type: str) -> bool:
    """Tell whether an event of this type starts the write-behind without waiting for the window.

    If a checkpoint follows before the next await it takes the event along, and the write-behind
    finds nothing left to do.
    """
    return event_type in _AT_ONCE or event_type.startswith(_AT_ONCE_FAMILIES)


@dataclass(frozen=True, slots=True)
class WriteBehind:
    """Starts background drains of live sessions in the repository's task group."""

    _tasks: TaskGroup
    _window_s: float
    _drain: Callable[[LiveSession], Awaitable[None]]

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

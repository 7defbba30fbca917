"""Code of an author in a task of its own, which is left behind if it does not stop.

Rule: cancel-is-bounded-in-time.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from anyio.abc import TaskGroup

_log = logging.getLogger(__name__)


class AuthorTask:
    """Runs a coroutine function once.

    Args:
        tasks: Where the task belongs, which outlives a turn.
        name: What the task is, for diagnostics.
        cancel_grace_s: How long it may take to end once it is cancelled.
    """

    def __init__(self, tasks: TaskGroup, name: str, cancel_grace_s: float) -> None:
        self._tasks = tasks
        self._name = name
        self._cancel_grace_s = cancel_grace_s
        self._scope = anyio.CancelScope()
        self._failure: BaseException | None = None
        self._ended = anyio.Event()
        self._ended_or_cancelled = anyio.Event()

    def cancel(self) -> None:
        """Ask the task to stop, now or as soon as it runs."""
        self._scope.cancel()
        self._ended_or_cancelled.set()

    async def run(self, work: Callable[[], Awaitable[None]]) -> BaseException | None:
        """Return what left the task, once it has ended or is given up."""
        self._tasks.start_soon(self._task, work, name=self._name)
        await self._ended_or_cancelled.wait()
        if not self._ended.is_set():
            with anyio.move_on_after(self._cancel_grace_s):
                await self._ended.wait()
        if not self._ended.is_set():
            _log.warning("the %s did not stop when cancelled", self._name)
        return self._failure

    async def _task(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            with self._scope:
                await work()
        except anyio.get_cancelled_exc_class() as error:
            # Not of our scope, which keeps its own: the server is being torn down, or else the
            # author's code has raised this by itself.
            self._failure = error
            await anyio.lowlevel.checkpoint_if_cancelled()
        except BaseException as error:  # noqa: BLE001 - SystemExit of an author must not end the server (B86)
            self._failure = error
        finally:
            self._ended.set()
            self._ended_or_cancelled.set()

"""One session while it is in a store: its attachment, and the listeners that follow it."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import anyio

from session_core.invariants import Violation
from session_core.listener import StoreListener, overrides
from session_core.publication import Observer, Publication, Validator, discard_awaitable
from session_core.session import Session

_logger = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class LiveSession:
    """A session that is in a store, and what the store knows of it.

    Attributes:
        violations: Where the log that it was read back from breaks the order.
    """

    session: Session
    publication: Publication
    violations: Sequence[Violation] = ()
    announced: bool = False
    out_of_band: bool = False
    # Each listener with the functions of it that hang in the publication.
    _following: list[tuple[StoreListener, Validator | None, Observer | None]] = field(
        default_factory=list
    )

    def attach(self, listener: StoreListener) -> None:
        """Let `listener` look at and hear of the session's events from now on."""
        publication, veto, hear = self.publication, None, None
        if overrides(listener, "before_append"):
            veto = partial(listener.before_append, self.session)
            publication.validators = (*publication.validators, veto)
        if overrides(listener, "on_event"):
            hear = partial(listener.on_event, self.session)
            publication.observers = (*publication.observers, hear)
        self._following.append((listener, veto, hear))

    def drop(self, listener: StoreListener) -> None:
        """Tell `listener` nothing any more."""
        publication = self.publication
        for entry in [entry for entry in self._following if entry[0] is listener]:
            _, veto, hear = entry
            publication.validators = tuple(v for v in publication.validators if v is not veto)
            publication.observers = tuple(o for o in publication.observers if o is not hear)
            self._following.remove(entry)

    def tell_created(self, listener: StoreListener) -> None:
        """Attach `listener` and announce the session to it.

        Raises:
            Exception: Its veto.
        """
        self.attach(listener)
        on_created: Callable[[Session], Any] = listener.on_created
        discard_awaitable(on_created(self.session), "on_created")

    def tell_disposed(self) -> None:
        """Tell those who follow that the session is live no more, each contained."""
        for listener, _, _ in tuple(self._following):
            on_disposed: Callable[[Session], Any] = listener.on_disposed
            try:
                discard_awaitable(on_disposed(self.session), "on_disposed")
            except Exception:
                _logger.exception("a listener failed on the end of session %s", self.session.id)

    async def settle(self, method: Literal["on_write", "on_flush"]) -> None:
        """Run a method of all who follow and wait for all.

        Raises:
            Exception: The first failure in their order.
        """
        await _settle_all(
            [
                partial(getattr(listener, method), self.session)
                for listener, _, _ in self._following
                if overrides(listener, method)
            ]
        )


async def _settle_all(flushes: Sequence[Callable[[], Awaitable[None]]]) -> None:
    failures: dict[int, Exception] = {}

    async def settle(place: int, flush: Callable[[], Awaitable[None]]) -> None:
        try:
            await flush()
        except Exception as error:  # noqa: BLE001 - kept, and raised below
            failures[place] = error

    if len(flushes) == 1:
        # The usual case, one persistence, needs no task.
        await settle(0, flushes[0])
    elif flushes:
        async with anyio.create_task_group() as tasks:
            for place, flush in enumerate(flushes):
                tasks.start_soon(settle, place, flush)
    if failures:
        raise failures[min(failures)]

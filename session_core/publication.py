"""What a session is attached to while it is live: who may veto an event, and who hears of it.

Made by the store, used by the session on every append. Owns the containment of observers, and the
rule that a session is not detached in the middle of something.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import iscoroutine

from session_core.errors import ReentrantAppendError
from session_core.events import Event
from session_core.invariants import InvariantTrace

Observer = Callable[[Event], object]
"""Hears of a committed event. Synchronous; what it raises is logged and reaches nobody."""

Validator = Callable[[Event], object]
"""Looks at a candidate before it is committed, and may veto it by raising."""

_logger = logging.getLogger(__name__)


class Publication:
    """The attachment of one live session.

    `observers` and `validators` are tuples that are replaced, never changed, so that an append goes
    on with those it found when it began.
    """

    __slots__ = ("_deferred", "_holds", "_publishing", "observers", "trace", "validators")

    def __init__(self, trace: InvariantTrace | None = None) -> None:
        self.observers: tuple[Observer, ...] = ()
        self.validators: tuple[Validator, ...] = ()
        self.trace = trace
        self._publishing = False
        self._holds = 0
        self._deferred: Callable[[], None] | None = None

    def begin(self, session_id: str, event_type: str) -> None:
        """Begin an append; `end` must follow.

        Raises:
            ReentrantAppendError: An observer or validator made this append inside another one.
        """
        if self._publishing:
            raise ReentrantAppendError(session_id, event_type)
        self._publishing = True

    def validate(self, event: Event) -> tuple[Observer, ...]:
        """Let everybody veto the candidate; return who will hear of it.

        Raises:
            Exception: Whatever a validator raised.
        """
        observers = self.observers
        if self.trace is not None:
            self.trace.check(event)
        for validate in self.validators:
            validate(event)
        return observers

    def notify(
        self, observers: tuple[Observer, ...], event: Event, *, in_order: bool = False
    ) -> None:
        """Tell the observers that `validate` returned of the committed event, each contained.

        `in_order` says that it only continues what the trace has followed already.
        """
        if self.trace is not None and not in_order:
            self.trace.advance(event)
        for observer in observers:
            try:
                result = observer(event)
            except Exception:
                _logger.exception("an observer failed on %s at seq %d", event.type, event.seq)
            else:
                if result is not None:
                    discard_awaitable(result, "an observer")

    def end(self) -> None:
        """End the append; a detach that was asked for meanwhile happens now."""
        self._publishing = False
        if self._deferred is not None:
            self._settle()

    @contextmanager
    def defer_detach(self) -> Iterator[None]:
        """Keep the session attached inside the block; a detach waits for its end."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1
            self._settle()

    def when_free(self, action: Callable[[], None]) -> None:
        """Do `action` now, or as soon as nothing is under way any more."""
        self._deferred = action
        self._settle()

    def _settle(self) -> None:
        if self._publishing or self._holds or self._deferred is None:
            return
        action, self._deferred = self._deferred, None
        action()


def without_one(listeners: tuple[Observer, ...], listener: Observer) -> tuple[Observer, ...]:
    """Return `listeners` with one occurrence of `listener` less."""
    place = listeners.index(listener)
    return listeners[:place] + listeners[place + 1 :]


def discard_awaitable(result: object, who: str) -> None:
    """Close a coroutine that a synchronous callback returned: nobody here could await it."""
    if iscoroutine(result):
        result.close()
        _logger.error("%s must be synchronous; its coroutine was not run", who)

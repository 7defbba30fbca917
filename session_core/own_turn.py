"""A turn of its own, for events that no running turn brings (out-of-band-append-makes-own-turn)."""

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from session_core.errors import TurnRunningError
from session_core.events import Event
from session_core.folds import is_turn_open, open_turn
from session_core.session import Session

_logger = logging.getLogger(__name__)

COMPLETED: Final[Mapping[str, Any]] = {"kind": "completed"}


@contextmanager
def own_turn(
    session: Session,
    trigger: Mapping[str, Any],
    reason_of: Callable[[BaseException], Mapping[str, Any]] = lambda _error: COMPLETED,
) -> Iterator[int]:
    """Put what is appended in the block into a turn of its own, which is closed in any case.

    Args:
        session: A session without an open turn.
        trigger: Why there is a turn, for its `turn/start`.
        reason_of: The `turn/end` reason of a block that raises; it has completed by default.

    Yields:
        The number of the turn.

    Raises:
        TurnRunningError: A turn is open.
        TurnNumberError: The log has no number for another turn.
    """
    running = open_turn(session.events)
    if running is not None:
        raise TurnRunningError(session.id, running)
    turn = session.next_turn
    session.append("turn/start", {"turn": turn, "trigger": trigger})
    reason = COMPLETED
    try:
        yield turn
    except BaseException as error:
        reason = reason_of(error)
        raise
    finally:
        session.append("turn/end", {"turn": turn, "reason": reason})


async def append_enclosed(
    session: Session,
    event_type: str,
    data: Mapping[str, Any],
    trigger: Mapping[str, Any],
    flush: Callable[[], Awaitable[None]],
) -> Event:
    """Append the event in the open turn, or in a turn of its own that is flushed.

    In an open turn nothing is flushed: that turn's own checkpoint covers the event.

    Raises:
        Exception: What refused the event, after its turn was closed and flushed; else what the
            flush raised, with the log balanced.
    """
    if is_turn_open(session.events):
        return session.append(event_type, data)
    refusal: Exception | None = None
    with own_turn(session, trigger):
        try:
            event = session.append(event_type, data)
        except Exception as error:  # noqa: BLE001 - raised again, behind the turn's end
            refusal = error
    if refusal is None:
        await flush()
        return event
    try:
        await flush()
    except Exception:
        # The caller is told of the refusal, which came first.
        _logger.exception("the flush after a refused %s failed", event_type)
    raise refusal

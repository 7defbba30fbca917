"""One log-only event appended outside the turn runner (out-of-band-append-makes-own-turn)."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from session_core.events import Event
from session_core.folds import is_turn_open
from session_core.own_turn import own_turn
from session_core.session import Session

_logger = logging.getLogger(__name__)


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

"""A turn of its own, for events that no running turn brings (out-of-band-append-makes-own-turn)."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from session_core.errors import TurnRunningError
from session_core.folds import open_turn
from session_core.session import Session

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

"""Where a session may be forked (fork-ends-at-turn-end)."""

from session_core.errors import ForkError
from session_core.json_value import is_seq_int
from session_core.session import Session


def inherited_length(parent: Session, boundary: int | None) -> int:
    """Return how many events a fork at `boundary` inherits.

    Raises:
        ForkError: The boundary is none.
    """
    events = parent.events
    if boundary is None:
        if not events:
            return 0
        boundary = len(events) - 1
    if not is_seq_int(boundary) or boundary >= len(events):
        raise ForkError("INVALID_BOUNDARY", f"{boundary!r} is no event of {parent.id!r}")
    if (found := events[boundary].type) != "turn/end":
        raise ForkError("OPEN_TURN", f"event {boundary} of {parent.id!r} is a {found}")
    return boundary + 1

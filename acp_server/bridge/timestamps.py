"""Times of the log in the words of the protocol."""

from __future__ import annotations

from datetime import UTC, datetime


def iso_time(time_ms: int) -> str | None:
    """Return epoch milliseconds as ISO 8601 in UTC; None for a time that no calendar has.

    A foreign log may hold any integer that is not negative.
    """
    try:
        stamp = datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return None
    return stamp.replace("+00:00", "Z")

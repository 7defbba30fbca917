"""The clock that is used where none is injected."""

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Returns the present time in epoch milliseconds."""


def system_clock() -> int:
    """Return the wall time in epoch milliseconds."""
    # The one place that reads the wall clock; all others take a `Clock`.
    return time.time_ns() // 1_000_000  # noqa: TID251

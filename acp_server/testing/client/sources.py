"""Clock and ids that make a run repeatable (clock-and-ids-are-injected)."""

DEFAULT_START_MS = 1_700_000_000_000  # 2023-11-14T22:13:20Z; any fixed instant does


class SteppingClock:
    """A clock that moves on by one step each time it is read; epoch milliseconds."""

    def __init__(self, start_ms: int = DEFAULT_START_MS, step_ms: int = 1) -> None:
        self._next_ms = start_ms
        self._step_ms = step_ms

    def __call__(self) -> int:
        """Return the time and step."""
        now = self._next_ms
        self._next_ms += self._step_ms
        return now

    def advance(self, milliseconds: int) -> None:
        """Move the clock, backwards if negative."""
        self._next_ms += milliseconds


class CountingIds:
    """Ids that count up and are shaped like UUIDs, so that they pass as session ids.

    The shape is that of UUIDv7 (session-ids-are-time-ordered). Two sources in one test take
    different `series`.
    """

    def __init__(self, series: int = 0) -> None:
        self._series = series
        self._count = 0

    def __call__(self) -> str:
        """Return the next id."""
        self._count += 1
        return f"{self._series:08x}-0000-7000-8000-{self._count:012x}"


SERIES_MS = 86_400_000
"""How far apart the clocks of servers on one store begin: a day, longer than any test counts."""


def clock_of_series(series: int) -> SteppingClock:
    """Return the clock of the n-th server on a store: later than what former ones have written."""
    return SteppingClock(DEFAULT_START_MS + series * SERIES_MS)


class CountedIds:
    """An id source that counts each kind of id by itself (clock-and-ids-are-injected)."""

    def __init__(self, series: int = 0) -> None:
        self._sessions = CountingIds(series)
        self._series = series
        self._counts: dict[str, int] = {}

    def session_id(self) -> str:
        """Return the next session id, shaped like a UUID."""
        return self._sessions()

    def call_id(self) -> str:
        """Return `call_<series>_<n>`: a resumed session must not see an id twice."""
        return self._next(f"call_{self._series}")

    def approval_id(self) -> str:
        """Return `approval_<series>_<n>`."""
        return self._next(f"approval_{self._series}")

    def diagnostic_id(self) -> str:
        """Return `entry_<n>`."""
        return self._next("entry")

    def _next(self, kind: str) -> str:
        self._counts[kind] = self._counts.get(kind, 0) + 1
        return f"{kind}_{self._counts[kind]}"

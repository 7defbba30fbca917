"""Clock and ids that make a run repeatable (Z36)."""

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

    The shape is that of UUIDv7 (Z43). Two sources in one test take different `series`.
    """

    def __init__(self, series: int = 0) -> None:
        self._series = series
        self._count = 0

    def __call__(self) -> str:
        """Return the next id."""
        self._count += 1
        return f"{self._series:08x}-0000-7000-8000-{self._count:012x}"

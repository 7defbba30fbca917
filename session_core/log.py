"""The event log in memory, with its runs of delta chunks packed (log-in-memory-stays-packed).

`EventLog` is a finished log, `GrowingLog` the one inside a live session, `EventView` what a session
hands out: a fixed number of the first events of a log, read as a sequence. Whoever reads much walks
`records()`, which gives runs as they are; indexing makes an `Event` of a run's member when asked.

Owns storage and reading only: what is added has been checked before.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import islice
from operator import sub
from typing import Final, TypeAlias, overload

from session_core.chunks import ChunkRun, DeltaKey, DeltaShape, is_same_run, trusted_run
from session_core.events import Event

Record: TypeAlias = Event | ChunkRun

_MAX_OPEN_MEMBERS: Final = 512
"""When a growing run is sealed: to find a member's time, a sealed run walks up to its gap."""


class OpenRun:
    """The run at the end of a growing log. It becomes a `ChunkRun` when the next record follows.

    What its members have in common stands in slots of its own: each delta is held against it.
    """

    __slots__ = (
        "call_id",
        "index",
        "key",
        "kind",
        "name",
        "seq0",
        "shape",
        "step",
        "texts",
        "times",
        "turn",
    )

    def __init__(self, key: DeltaKey, seq0: int) -> None:
        self.key = key
        self.kind, self.turn, self.step, self.index, self.call_id, self.name = key
        self.shape = DeltaShape(key)
        self.seq0 = seq0
        self.texts: list[str] = []
        self.times: list[int] = []

    def event(self, k: int) -> Event:
        """Return member `k` as an event."""
        return self.shape.event(self.texts[k], self.seq0 + k, self.times[k])

    def slice(self, start_seq: int, stop_seq: int) -> ChunkRun:
        """Return a packed copy of the members with start_seq <= seq < stop_seq."""
        first, end = max(start_seq - self.seq0, 0), stop_seq - self.seq0
        times = self.times[first:end]
        return trusted_run(
            self.key,
            self.seq0 + first,
            times[0],
            tuple(self.texts[first:end]),
            (0, *map(sub, islice(times, 1, None), times)),
        )

    def sealed(self) -> ChunkRun:
        """Return all members, packed for good."""
        return self.slice(self.seq0, self.seq0 + len(self.texts))


class EventLog:
    """A packed log of events with seqs from 0 on. Read-only.

    Attributes:
        state: What its events amount to, if its builder has played them: a `LogState`, which
            this module knows nothing of.
    """

    __slots__ = ("_length", "_places", "_records", "_starts", "state")

    def __init__(self) -> None:
        self.state: object = None
        self._records: list[Event | ChunkRun | OpenRun] = []
        self._starts: list[int] = []
        self._length = 0
        # Where the events of each type are: a long log is never walked for a few of them.
        self._places: dict[str, array[int]] = {}

    def _push(self, record: Record) -> None:
        if isinstance(record, Event):
            places = self._places.get(record.type)
            if places is None:
                places = self._places[record.type] = array("L")
            places.append(len(self._records))
        self._records.append(record)
        self._starts.append(self._length)
        self._length += 1 if isinstance(record, Event) else len(record)

    def _moved(self) -> "EventLog":
        log = EventLog()
        log._records, self._records = self._records, []
        log._starts, self._starts = self._starts, []
        log._places, self._places = self._places, {}
        log._length, self._length = self._length, 0
        return log

    def __len__(self) -> int:
        """Return the number of events."""
        return self._length

    def __iter__(self) -> Iterator[Event]:
        return iter(self.view())

    def records(self, start: int = 0, stop: int | None = None) -> Iterator[Record]:
        """Yield the events with start <= seq < stop, runs packed and cut at the bounds."""
        stop = self._length if stop is None else min(stop, self._length)
        if start >= stop:
            return
        position = bisect_right(self._starts, start) - 1
        # By position, because a growing log may grow or seal its last run between two steps.
        while position < len(self._records) and self._starts[position] < stop:
            record = self._records[position]
            if isinstance(record, Event):
                yield record
            else:
                yield record.slice(start, stop)
            position += 1

    def event_at(self, seq: int) -> Event:
        """Return the event with this seq, 0 <= seq < len(self)."""
        position = bisect_right(self._starts, seq) - 1
        record = self._records[position]
        return record if isinstance(record, Event) else record.event(seq - record.seq0)

    def last_of(self, types: Iterable[str], stop: int | None = None) -> Event | None:
        """Return the last event below seq `stop` that has one of `types`, none of them a chunk."""
        positions = [places[-1] for places in self._places_of(types, stop) if places]
        if not positions:
            return None
        record = self._records[max(positions)]
        assert isinstance(record, Event)  # noqa: S101 - only events have places
        return record

    def of_types(self, types: Iterable[str], stop: int | None = None) -> Iterator[Event]:
        """Yield the events below seq `stop` that have one of `types`, in order; no packed deltas.

        Costs nothing for the others.
        """
        for position in merge(*self._places_of(types, stop)):
            record = self._records[position]
            assert isinstance(record, Event)  # noqa: S101 - only events have places
            yield record

    def _places_of(self, types: Iterable[str], stop: int | None) -> "Iterator[array[int]]":
        end = len(self._records) if stop is None else bisect_left(self._starts, stop)
        for event_type in frozenset(types):
            places = self._places.get(event_type)
            if places is not None:
                yield places[: bisect_left(places, end)]

    def prefix(self, stop: int | None = None) -> "EventLog":
        """Return the first `stop` events as a log of its own, which shares the records."""
        log = EventLog()
        stop = self._length if stop is None else min(stop, self._length)
        # All but the last record are whole, and of this very class a growing one is the last.
        end = max(bisect_left(self._starts, stop) - 1, 0)
        log._records, log._starts = self._records[:end], self._starts[:end]
        log._places = {
            event_type: places[: bisect_left(places, end)]
            for event_type, places in self._places.items()
        }
        log._length = self._starts[end] if end < len(self._starts) else 0
        for record in self.records(log._length, stop):
            log._push(record)
        return log

    def view(self) -> "EventView":
        """Return all events there are now, as a sequence that never grows."""
        return EventView(self, self._length)


class GrowingLog(EventLog):
    """A log that its owner extends. Deltas are packed from the moment they come in."""

    __slots__ = ("open_run",)

    def __init__(self, seed: EventLog | None = None) -> None:
        super().__init__()
        self.open_run: OpenRun | None = None
        if type(seed) is EventLog:
            # A finished log of this very class: its records are shared as they are.
            self._records, self._starts = seed._records.copy(), seed._starts.copy()  # noqa: SLF001
            self._length = seed._length  # noqa: SLF001
            self._places = {
                event_type: places[:]
                for event_type, places in seed._places.items()  # noqa: SLF001
            }
        elif seed is not None:
            for record in seed.records():
                self._push(record)

    def add(self, record: Record) -> None:
        """Append a record; its first seq is the log's length."""
        self._seal()
        self._push(record)

    def run_for(self, key: DeltaKey) -> OpenRun:
        """Return the run that a delta with this key joins: the open one, or one yet to open."""
        run = self.open_run
        return run if run is not None and is_same_run(run.key, key) else OpenRun(key, self._length)

    def add_delta(self, run: OpenRun, text: str, time: int) -> None:
        """Append a delta chunk to `run`, which came from `run_for` after the last append."""
        if run is not self.open_run:
            self._seal()
            self.open_run = run
            self._records.append(run)
            self._starts.append(self._length)
        run.texts.append(text)
        run.times.append(time)
        self._length += 1
        if len(run.texts) == _MAX_OPEN_MEMBERS:
            self._seal()

    def finish(self) -> EventLog:
        """Return what has been added as a log that grows no more; this one is empty then."""
        self._seal()
        return self._moved()

    def _seal(self) -> None:
        if self.open_run is not None:
            self._records[-1] = self.open_run.sealed()
            self.open_run = None


class EventView(Sequence[Event]):
    """The first `length` events of a log, read-only. It never grows, whatever the log does."""

    __slots__ = ("_length", "_log")

    def __init__(self, log: EventLog, length: int) -> None:
        self._log = log
        self._length = length

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Event, ...]: ...
    def __getitem__(self, index: int | slice) -> Event | tuple[Event, ...]:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._length)
            if step == 1:
                return tuple(self._events(start, stop))
            return tuple(self._log.event_at(seq) for seq in range(start, stop, step))
        seq = index + self._length if index < 0 else index
        if not 0 <= seq < self._length:
            msg = f"no event at {index}, the log has {self._length}"
            raise IndexError(msg)
        return self._log.event_at(seq)

    def __iter__(self) -> Iterator[Event]:
        return self._events(0, self._length)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EventView | list | tuple):
            return NotImplemented
        return len(self) == len(other) and all(
            mine == theirs for mine, theirs in zip(self, other, strict=True)
        )

    __hash__ = None  # type: ignore[assignment]  # equal to lists, which have no hash either

    def _events(self, start: int, stop: int) -> Iterator[Event]:
        for record in self._log.records(start, stop):
            if isinstance(record, Event):
                yield record
            else:
                yield from record

    def event_at(self, seq: int) -> Event:
        """Return the event with this seq, 0 <= seq < len(self)."""
        return self._log.event_at(seq)

    def records(self, start: int = 0, stop: int | None = None) -> Iterator[Record]:
        """Yield the events with start <= seq < stop, runs packed and cut at the bounds."""
        return self._log.records(start, self._length if stop is None else min(stop, self._length))

    def last_of(self, types: Iterable[str], stop: int | None = None) -> Event | None:
        """Return the last event below seq `stop` that has one of `types`, none of them a delta."""
        return self._log.last_of(types, self._length if stop is None else min(stop, self._length))

    def of_types(self, types: Iterable[str]) -> Iterator[Event]:
        """Yield the events that have one of `types`, in order; no packed deltas."""
        return self._log.of_types(types, self._length)

    def prefix(self, stop: int | None = None) -> EventLog:
        """Return the first `stop` events as a log of its own, which shares the records."""
        return self._log.prefix(self._length if stop is None else min(stop, self._length))


Events: TypeAlias = Iterable[Event] | EventLog | EventView
"""What folds read: any events in log order; a log or view is walked without unpacking its runs."""


def records_of(events: Events) -> Iterator[Record]:
    """Return the records of `events`, packed where they are."""
    if isinstance(events, EventLog | EventView):
        return events.records()
    return iter(events)


def events_of(events: Events) -> Iterator[Event]:
    """Return the events of `events` that are no packed deltas: all that most folds look at."""
    return (record for record in records_of(events) if isinstance(record, Event))

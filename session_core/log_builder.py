"""Building a log from stored or foreign events: every entry is checked, then packed or kept.

Owns the checks that look at one event (seed-is-checked-like-appends). What needs the events
before is played on the way, and refused by whoever makes a session of the log (step 7): a log that
breaks such a rule can still be read.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from session_core.chunks import CHUNK_EVENT, ChunkRun, DeltaKey, split_delta
from session_core.errors import EnvelopeError, NotJsonError, SeedError, SessionCoreError
from session_core.events import MAX_DATA_DEPTH, Event, event_from_json
from session_core.json_value import FrozenDict, freeze_json, is_seq_int, is_well_formed_text
from session_core.log import EventLog, GrowingLog, Record
from session_core.log_state import LogState, state_of
from session_core.seqs import compact_seqs
from session_core.vocabulary import CORE_VOCABULARY, Vocabulary


class EventLogBuilder:
    """Takes events in log order and gives the packed log of them, with what they amount to.

    Args:
        vocabulary: The event types whose payloads are checked.
        start: A log that the events follow; it is left as it is.
    """

    def __init__(
        self, vocabulary: Vocabulary = CORE_VOCABULARY, start: EventLog | None = None
    ) -> None:
        self._vocabulary = vocabulary
        self._log = GrowingLog(start)
        self._state = LogState() if start is None else state_of(start).copy()

    def __len__(self) -> int:
        """Return the number of events so far."""
        return len(self._log)

    @property
    def state(self) -> LogState:
        """What the events so far amount to."""
        return self._state

    def add(self, entry: Record | Mapping[str, Any]) -> Event | None:
        """Append an event, in memory or stored form, or a packed run.

        Returns:
            The event, or `None` for deltas, which become part of a run.

        Raises:
            SeedError: The entry is refused, nothing was appended; its cause says why.
        """
        index = len(self._log)
        if isinstance(entry, ChunkRun):
            self._add_run(entry, index)
            return None
        if (delta := _stored_delta(entry, index)) is not None:
            key, text, time = delta
            run = self._log.run_for(key)
            if run is not self._log.open_run:
                self._state.follow_run(key, index)
            self._log.add_delta(run, text, time)
            return None
        try:
            event = _detached(entry)
            self._vocabulary.check_loaded(event)
        except SeedError:
            raise
        except SessionCoreError as error:
            raise SeedError(index, str(error)) from error
        if event.seq != index:
            raise SeedError(index, f"seq must be {index}, found {event.seq}")
        self._state.follow(event, self._log)
        self._log.add(event)
        return event

    def extend(self, entries: Iterable[Record | Mapping[str, Any]]) -> None:
        """Append all `entries`; stops at the first that is refused.

        Raises:
            SeedError: As `add`.
        """
        for entry in entries:
            self.add(entry)

    def build(self) -> EventLog:
        """Return the log of what was added; the builder is empty then."""
        log = self._log.finish()
        self._state.end_at(len(log))
        log.state, self._state = self._state, LogState()
        return log

    def _add_run(self, run: ChunkRun, index: int) -> None:
        if run.seq0 != index:
            raise SeedError(index, f"seq must be {index}, found {run.seq0}")
        if run.time0 < 0 or (min(run.gaps) < 0 and min(run.times) < 0):
            raise SeedError(index, "invalid envelope: 'time' must not be negative")
        self._state.follow_run(run.key, index)
        self._log.add(run)


def _stored_delta(entry: Any, seq: int) -> tuple[DeltaKey, str, int] | None:
    """Return key, text and time of an entry that is exactly a delta and the event of this `seq`.

    A log that is not packed consists of these, so they do not go through all the checks: their
    exact shape leaves nothing to find.
    """
    if isinstance(entry, Event):
        event_type, found, time, data, sources, op = entry
        if sources is not None or op is not None:
            return None
    elif (type(entry) is dict or type(entry) is FrozenDict) and entry.keys() == _BARE_KEYS:
        event_type, found, time, data = (entry[k] for k in ("type", "seq", "time", "data"))
    else:
        return None
    if event_type != CHUNK_EVENT or found != seq or type(found) is not int or not is_seq_int(time):
        return None
    delta = split_delta(data)
    return None if delta is None else (*delta, time)


_BARE_KEYS: Final = frozenset({"type", "seq", "time", "data"})


def _detached(entry: Event | Mapping[str, Any]) -> Event:
    """Return `entry` as an event that nobody else can change, its envelope checked."""
    if not isinstance(entry, Event):
        return event_from_json(entry)
    event_type, seq, time, data, sources, op = entry
    if type(event_type) is not str or not is_well_formed_text(event_type):
        raise EnvelopeError("'type' must be a string")
    if not (is_seq_int(seq) and is_seq_int(time)):
        raise EnvelopeError("'seq' and 'time' must be integers that are not negative")
    try:
        frozen: FrozenDict = freeze_json(data, what=event_type, max_depth=MAX_DATA_DEPTH)
        if op is not None and op != "append" and not isinstance(op, tuple):
            op = freeze_json(op, what="surfaceOp")
    except NotJsonError as error:
        raise EnvelopeError(str(error)) from error
    if isinstance(sources, list | tuple):
        sources = compact_seqs(tuple(sources))
    return Event(event_type, seq, time, frozen, sources, op)

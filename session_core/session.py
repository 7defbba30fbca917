"""The session: an append-only log with everything that is derived from it at hand.

Owns the order of checks at `append` (append-checks-before-commit) and at seeding
(seed-is-checked-like-appends), and keeps log, surface and derived history in step. Knows nothing of
stores: who listens comes in as a `Publication`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from session_core.chunks import (
    CHUNK_EVENT,
    DELTA_KINDS,
    DeltaKey,
    DeltaKind,
    delta_parts,
)
from session_core.clock import Clock, system_clock
from session_core.errors import NotJsonError, PayloadError, SessionHeaderError, TurnNumberError
from session_core.events import MAX_DATA_DEPTH, Event, Message, SessionId, SurfaceIntent
from session_core.folds import last_turn_number
from session_core.header import SessionHeader
from session_core.json_value import (
    MAX_SAFE_INT,
    FrozenDict,
    freeze_json,
    is_safe_int,
    is_well_formed_text,
)
from session_core.log import EventLog, EventView, GrowingLog
from session_core.log_builder import EventLogBuilder
from session_core.log_state import LogState, state_of
from session_core.projection import HistoryProjection
from session_core.publication import Publication
from session_core.request_header import RequestHeaderFold
from session_core.surface import Placement, Surface, SurfaceTracker, snapshot_intent
from session_core.vocabulary import CORE_VOCABULARY, Vocabulary, refuse_legacy


class Session:
    """An agent session: an append-only event log, and what is derived from it.

    Args:
        session_id: The id; a header must name the same one.
        header: Facts from the session's birth; made anew when absent.
        seed: The events it starts with, stored or in memory. An `EventLog` has been checked by its
            builder and is taken over as it is, records shared.
        clock: Gives the time of new events, in epoch milliseconds.
        vocabulary: The event types whose payloads are checked.

    Raises:
        SeedError: An event of the seed is refused; there is no session then.
        SessionHeaderError: The header is of another id.
    """

    __slots__ = (
        "__weakref__",
        "_clock",
        "_header",
        "_header_fold",
        "_history",
        "_is_loaded",
        "_log",
        "_publication",
        "_seed_state",
        "_surface",
        "_surface_view",
        "_view",
        "_vocabulary",
    )

    def __init__(
        self,
        session_id: SessionId | str,
        *,
        header: SessionHeader | None = None,
        seed: Iterable[Event | Mapping[str, Any]] | EventLog = (),
        clock: Clock = system_clock,
        vocabulary: Vocabulary = CORE_VOCABULARY,
    ) -> None:
        self._clock = clock
        self._vocabulary = vocabulary
        self._surface = SurfaceTracker()
        self._is_loaded = isinstance(seed, EventLog)
        self._view: EventView | None = None
        self._take(seed if isinstance(seed, EventLog) else _built_log(seed, vocabulary))
        self._header = header or SessionHeader(SessionId(session_id), clock())
        if self._header.id != session_id:
            raise SessionHeaderError("id", f"{session_id!r}, the id of the session")
        self._surface_view = Surface(self._surface)
        self._publication: Publication | None = None

    @property
    def id(self) -> SessionId:
        """The session's id."""
        return self._header.id

    @property
    def header(self) -> SessionHeader:
        """The immutable facts from the session's birth."""
        return self._header

    @property
    def seq(self) -> int:
        """The seq of the next event: how many there are."""
        return len(self._log)

    @property
    def events(self) -> EventView:
        """All events, read-only: the same object until the next append, and it never grows."""
        if self._view is None:
            self._view = self._log.view()
        return self._view

    @property
    def next_turn(self) -> int:
        """The number of the next turn: the first above all that the boundaries of turns name.

        Raises:
            TurnNumberError: There is none.
        """
        trace = None if self._publication is None else self._publication.trace
        number = last_turn_number(self.events) + 1 if trace is None else trace.next_turn
        if number > MAX_SAFE_INT:
            raise TurnNumberError(self.id, number - 1)
        return max(number, 1)

    @property
    def surface(self) -> Surface:
        """The live surface: `nodes` and `replace_generation`."""
        return self._surface_view

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary that payloads are held against."""
        return self._vocabulary

    @property
    def is_loaded(self) -> bool:
        """Whether it was seeded with a log read back, whose faults of order are tolerated.

        Rule: stored-violations-are-reported.
        """
        return self._is_loaded

    @property
    def seed_state(self) -> LogState:
        """What the events that it was seeded with amount to. For the store."""
        return self._seed_state

    @property
    def publication(self) -> Publication | None:
        """The attachment to a store, `None` while the session is bare. For the store."""
        return self._publication

    def attach(self, publication: Publication) -> None:
        """Attach the session. For the store."""
        self._publication = publication

    def detach(self) -> None:
        """Make the session bare again. For the store."""
        self._publication = None

    def read_on(self, log: EventLog) -> None:
        """Go on with a longer log, which begins with this one's events. For the store's keeper.

        Nobody hears of the events: they were appended, and heard of, elsewhere.

        Raises:
            SeedError: An event breaks a rule of the surface; nothing has changed.
        """
        self._take(log)
        if self._publication is not None and self._publication.trace is not None:
            self._publication.trace = self._seed_state.trace.copy()

    def append(
        self, type: str, data: Mapping[str, Any], intent: SurfaceIntent | None = None
    ) -> Event:
        """Append an event and return it, committed. Synchronous, no I/O.

        If anything raises, nothing has changed. Observers hear of the event before this returns.

        Args:
            type: The event type; unknown ones are legal and log-only.
            data: The payload; it is copied.
            intent: How a surface type joins the surface; absent for all others.

        Raises:
            NotJsonError: The payload or the surface marker is not lossless JSON.
            LegacyVocabularyError: The event has a form that was removed from the format.
            PayloadError: The type is known, and the payload has another shape.
            SurfaceError: The surface rules forbid it.
            ReentrantAppendError: An observer or validator of this session made the call.
            InvariantViolationError: The order of turns, steps and calls forbids it.
        """
        if type == CHUNK_EVENT and intent is None and (delta := delta_parts(data)):
            key, text = delta
            return self.append_delta(
                key.turn, key.step, key.kind, key.block_index, text, key.call_id, key.name
            )
        return self._append(type, data, intent)

    def append_delta(
        self,
        turn: int,
        step: int,
        kind: DeltaKind,
        index: int,
        text: str,
        call_id: str | None = None,
        name: str | None = None,
    ) -> Event:
        """Append the `assistant/chunk` event of one delta; the same as `append`, only faster.

        Raises:
            NotJsonError: As `append`.
            PayloadError: As `append`.
            ReentrantAppendError: As `append`.
            InvariantViolationError: As `append`.
        """
        log = self._log
        run = log.open_run
        # By identity: that is quick, and unlike equality it does not take True for 1. What is equal
        # but not identical goes the way of a new run, where it is checked.
        continues = (
            run is not None
            and run.index is index
            and run.kind is kind
            and run.step is step
            and run.turn is turn
            and run.call_id is call_id
            and run.name is name
        )
        if run is None or not continues:
            key = DeltaKey(kind, turn, step, index, call_id, name)
            if not _is_legal_key(key):
                return self._append(CHUNK_EVENT, _loose_delta_data(key, text), None)
            run = log.run_for(key)
        if type(text) is not str or not (text.isascii() or is_well_formed_text(text)):
            return self._append(CHUNK_EVENT, _loose_delta_data(run.key, text), None)
        publication = self._publication
        if publication is None:
            event = run.shape.event(text, len(log), self._clock())
            log.add_delta(run, text, event.time)
            self._view = None
            return event
        publication.begin(self._header.id, CHUNK_EVENT)
        try:
            time = self._clock()
            event = run.shape.event(text, run.seq0 + len(run.texts), time)
            # Nothing was committed since the delta that this one continues, so the trace, which
            # passed that one, has nothing to add; only validators look at each.
            in_order = continues and not publication.validators
            observers = publication.observers if in_order else publication.validate(event)
            log.add_delta(run, text, time)
            self._view = None
            publication.notify(observers, event, in_order=in_order)
        finally:
            publication.end()
        return event

    def derive_messages(self) -> list[Message]:
        """Return the history as the model sees it: a new list over shared, frozen messages."""
        return self._history.messages(self._surface, self._log)

    def prepare_messages(self, limit: int) -> bool:
        """Do part of what the next `derive_messages` does, for at most `limit` events.

        The first derivation of a long log takes a while: in parts, others can run in between.

        Returns:
            Whether nothing is left to do.
        """
        return self._history.project(self._surface, self._log, limit)

    def request_header(self) -> FrozenDict | None:
        """Return the canonical header of the last model request, or `None` before the first."""
        return self._header_fold.header(self.events)

    def _append(
        self, event_type: str, data: Mapping[str, Any], intent: SurfaceIntent | None
    ) -> Event:
        if type(event_type) is not str or not is_well_formed_text(event_type):
            raise NotJsonError("event type", "it is no string that JSON can carry")
        frozen: FrozenDict = freeze_json(
            data, what=f"data of {event_type}", max_depth=MAX_DATA_DEPTH
        )
        refuse_legacy(event_type, frozen)
        self._vocabulary.check_append(event_type, frozen)
        op, sources = snapshot_intent(event_type, intent)
        publication = self._publication
        if publication is None:
            event = Event(event_type, len(self._log), self._clock(), frozen, sources, op)
            self._commit(event, self._surface.check(event, self._log))
            return event
        publication.begin(self._header.id, event_type)
        try:
            event = Event(event_type, len(self._log), self._clock(), frozen, sources, op)
            placement = self._surface.check(event, self._log)
            observers = publication.validate(event)
            self._commit(event, placement)
            publication.notify(observers, event)
        finally:
            publication.end()
        return event

    def _take(self, log: EventLog) -> None:
        state = state_of(log)
        state.require_surface()
        self._seed_state = state
        self._surface.restore(state.surface)
        self._log = GrowingLog(log)
        self._view = None
        self._history = HistoryProjection()
        self._header_fold = RequestHeaderFold()

    def _commit(self, event: Event, placement: Placement | None) -> None:
        self._surface.commit(event, placement)
        self._log.add(event)
        self._view = None


def _built_log(seed: Iterable[Event | Mapping[str, Any]], vocabulary: Vocabulary) -> EventLog:
    builder = EventLogBuilder(vocabulary)
    for entry in seed:
        builder.add(entry)
        # At once: what comes behind a refused event is not even looked at.
        builder.state.require_surface()
    return builder.build()


def _is_legal_key(key: DeltaKey) -> bool:
    """Return whether `append` would pass a delta with this key."""
    kind, turn, step, index, call_id, name = key
    if type(turn) is not int or type(step) is not int or type(index) is not int:
        return False
    if not (0 < turn <= MAX_SAFE_INT and 0 < step <= MAX_SAFE_INT and is_safe_int(index)):
        return False
    if kind == "tool-call-delta":
        return _is_text(call_id) and (name is None or _is_text(name))
    return kind in DELTA_KINDS and call_id is None and name is None


def _is_text(value: object) -> bool:
    return type(value) is str and is_well_formed_text(value)


def _loose_delta_data(key: DeltaKey, text: Any) -> dict[str, Any]:
    """Return the payload that a wrong delta would be, for the checks of `append` to name the fault.

    Raises:
        PayloadError: No payload would be that, since the kind takes no such fields.
    """
    kind, turn, step, index, call_id, name = key
    chunk: dict[str, Any] = {"type": kind, "index": index}
    if kind == "tool-call-delta":
        chunk |= {"id": call_id, "argumentsDelta": text}
        if name is not None:
            chunk["name"] = name
    elif kind in DELTA_KINDS and call_id is None and name is None:
        chunk["text"] = text
    else:
        raise PayloadError(CHUNK_EVENT, "chunk.type", "a kind of delta that has these fields")
    return {"turn": turn, "step": step, "chunk": chunk}

"""Which sessions are live, who hears of them, and how a session comes and goes.

Rules: store-enters-then-announces, fork-refusals-have-typed-codes.

Owns the lifecycle: prepare, enter, announce, detach; flush; fork; the door to out-of-band appends.
In memory only: whoever keeps sessions elsewhere subscribes as a `StoreListener`.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, Final, Unpack

from session_core.clock import Clock, system_clock
from session_core.errors import (
    AnnounceError,
    ForkError,
    InvariantViolationError,
    OutOfBandError,
    SessionExistsError,
    SessionNotLiveError,
)
from session_core.events import Event, SessionId
from session_core.folds import is_turn_open
from session_core.fork import inherited_length
from session_core.header import HeaderFields, SessionHeader
from session_core.invariants import InvariantTrace, Violation
from session_core.listener import StoreListener
from session_core.live import LiveSession
from session_core.log import EventLog
from session_core.log_state import state_of
from session_core.own_turn import append_enclosed
from session_core.publication import Observer, Publication, without_one
from session_core.session import Session
from session_core.vocabulary import CORE_VOCABULARY, Vocabulary

_logger = logging.getLogger(__name__)

_MAX_LOGGED: Final = 20
"""Violations of one log that the diagnostics name: one fault may have very many followers."""

Detach = Callable[[], None]


class SessionStore:
    """The live sessions of one process.

    Args:
        clock: Gives event and creation times, in epoch milliseconds.
        new_id: Source of session ids; without one they are `session-1`, `session-2`, …
        vocabulary: The event types of all its sessions.
        invariants: Whether the order of turns, steps and calls is held (turns-and-steps-nest).
    """

    def __init__(
        self,
        clock: Clock = system_clock,
        new_id: Callable[[], str] | None = None,
        *,
        vocabulary: Vocabulary = CORE_VOCABULARY,
        invariants: bool = True,
    ) -> None:
        self._clock = clock
        self._new_id = new_id or map("session-{}".format, count(1)).__next__
        self._vocabulary = vocabulary
        self._invariants = invariants
        self._live: dict[SessionId, LiveSession] = {}
        self._listeners: list[StoreListener] = []

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of all sessions made here."""
        return self._vocabulary

    # Reading

    def get(self, session_id: str) -> Session | None:
        """Return the live session of this id."""
        live = self._live.get(SessionId(session_id))
        return None if live is None else live.session

    def list(self) -> list[Session]:
        """Return all live sessions, in the order they came."""
        return [live.session for live in self._live.values()]

    def violations(self, session: Session) -> Sequence[Violation]:
        """Return where the log that `session` was read back from breaks the order.

        Rule: stored-violations-are-reported.

        Raises:
            SessionNotLiveError: It is not the live one of its id.
        """
        return self._entry(session).violations

    # Coming and going

    def create(
        self,
        id: str | None = None,
        *,
        seed: Iterable[Event | Mapping[str, Any]] | EventLog = (),
        header: SessionHeader | None = None,
        created_at: int | None = None,
        **fields: Unpack[HeaderFields],
    ) -> Session:
        """Make a session and publish it: prepare, enter and announce in one.

        A seed that is an `EventLog`, a log read back, may break the order of turns and steps: that
        is logged (stored-violations-are-reported). Any other seed must keep it.

        Args:
            id: The id; made up if absent.
            seed: The events it starts with.
            header: A complete header, for a session that is read back; instead of the fields below.
            created_at: Epoch milliseconds; now if absent.
            **fields: What else the header says.

        Raises:
            SessionExistsError: The id is taken.
            SeedError: An event of the seed is refused.
            InvariantViolationError: The seed breaks the order.
            SessionHeaderError: A header field is wrong.
            Exception: Whatever a listener's `on_created` vetoed with.
        """
        session = self.prepare(id, seed=seed, header=header, created_at=created_at, **fields)
        self.enter(session)
        self.announce(session)
        return session

    def prepare(
        self,
        id: str | None = None,
        *,
        seed: Iterable[Event | Mapping[str, Any]] | EventLog = (),
        header: SessionHeader | None = None,
        created_at: int | None = None,
        **fields: Unpack[HeaderFields],
    ) -> Session:
        """Make a session as `create` does, but publish nothing; ids are not reserved.

        Raises:
            SeedError: As `create`.
            SessionHeaderError: As `create`.
        """
        if header is None:
            header = SessionHeader(
                SessionId(self._free_id() if id is None else id),
                self._clock() if created_at is None else created_at,
                **fields,
            )
        return Session(
            header.id if id is None else id,
            header=header,
            seed=seed,
            clock=self._clock,
            vocabulary=self._vocabulary,
        )

    def enter(self, session: Session) -> Detach:
        """Make `session` the live one of its id, without telling anybody yet.

        Returns:
            What takes this very session out again, once or more often.

        Raises:
            SessionExistsError: The id is taken, or the object is in a store already.
            InvariantViolationError: Its events break the order, and it is not one read back.
        """
        if session.id in self._live or session.publication is not None:
            raise SessionExistsError(session.id)
        trace, violations = self._trace(session)
        live = LiveSession(session, Publication(trace), violations)
        self._live[session.id] = live
        session.attach(live.publication)
        return partial(self._detach, live)

    def announce(self, session: Session) -> None:
        """Tell the listeners of an entered session.

        Raises:
            SessionNotLiveError: It is not the live one of its id.
            AnnounceError: It was announced already, or is just being.
            Exception: Whatever a listener vetoed with; the session is gone then.
        """
        live = self._entry(session)
        if live.announced:
            raise AnnounceError(session.id)
        live.announced = True
        with live.publication.defer_detach():
            try:
                for listener in tuple(self._listeners):
                    live.tell_created(listener)
            except BaseException:
                self._detach(live)
                raise

    def detach(self, session: Session) -> None:
        """Take `session` out of the store; while something is under way on it, right after that.

        Raises:
            SessionNotLiveError: It is not the live one of its id.
        """
        self._detach(self._entry(session))

    # Following

    def subscribe(self, listener: StoreListener) -> Detach:
        """Let `listener` follow all sessions; those that are live already from their next event on.

        Returns:
            What ends it, once or more often.
        """
        self._listeners.append(listener)
        for live in self._live.values():
            if live.announced:
                live.attach(listener)

        def unsubscribe() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)
                for live in self._live.values():
                    live.drop(listener)

        return unsubscribe

    def observe(self, session: Session, fn: Observer) -> Detach:
        """Let `fn` hear of every event committed to `session`, contained.

        Returns:
            What ends it, once or more often.

        Raises:
            SessionNotLiveError: It is not the live one of its id.
        """
        publication = self._entry(session).publication
        publication.observers = (*publication.observers, fn)
        added = [fn]

        def stop() -> None:
            if added:
                publication.observers = without_one(publication.observers, added.pop())

        return stop

    # Durability

    async def flush(self, session: Session) -> None:
        """Have all listeners make durable what was appended so far; all of them are waited for.

        Raises:
            SessionNotLiveError: It is not the live one of its id.
            Exception: The first failure in the order of the listeners.
        """
        await self._entry(session).settle("on_flush")

    async def append_out_of_band(
        self, session: Session, type: str, data: Mapping[str, Any], trigger: Mapping[str, Any]
    ) -> Event:
        """Append one log-only event outside the turn runner (out-of-band-append-makes-own-turn).

        In an open turn it is just appended; else it gets a turn of its own, which is flushed.

        Raises:
            OutOfBandError: The type is not eligible, or another such append is under way.
            SessionNotLiveError: It is not the live one of its id.
            Exception: What refused the event, or what a listener raised before or after it.
        """
        if not self._vocabulary.is_out_of_band(type):
            raise OutOfBandError(session.id, type, "the type is not eligible")
        live = self._entry(session)
        if live.out_of_band:
            raise OutOfBandError(session.id, type, "another one is under way")
        live.out_of_band = True
        try:
            with live.publication.defer_detach():
                if not is_turn_open(session.events):
                    await live.settle("on_write")
                return await append_enclosed(
                    session, type, data, trigger, partial(self.flush, session)
                )
        finally:
            live.out_of_band = False

    # Forking

    def fork(
        self,
        source: Session | str,
        boundary: int | None = None,
        child_id: str | None = None,
        *,
        inherited: EventLog | None = None,
    ) -> Session:
        """Make a live session that starts with the events of `source` up to `boundary`.

        Args:
            source: A live session or its id.
            boundary: Seq of the `turn/end` to inherit up to; the last event if absent.
            child_id: The new id; made up if absent.
            inherited: Those events, if the caller has them with their `state` played, which takes
                a while for a long log.

        Raises:
            ForkError: `code` says why, checked in this order (fork-refusals-have-typed-codes).
        """
        if child_id is not None and child_id in self._live:
            raise ForkError("SESSION_ALREADY_EXISTS", f"{child_id!r} is live")
        parent = self._fork_source(source)
        length = inherited_length(parent, boundary)
        return self.create(
            child_id,
            seed=parent.events.prefix(length) if inherited is None else inherited,
            cwd=parent.header.cwd,
            parent_session=parent.id,
            seed_length=length,
        )

    def _fork_source(self, source: Session | str) -> Session:
        session_id = source.id if isinstance(source, Session) else SessionId(source)
        live = self._live.get(session_id)
        if live is None:
            raise ForkError("SESSION_NOT_FOUND", f"{session_id!r} is not live")
        if isinstance(source, Session) and live.session is not source:
            raise ForkError("SESSION_NOT_LIVE", f"{session_id!r} is another object now")
        return live.session

    # The inside

    def _free_id(self) -> str:
        while (candidate := self._new_id()) in self._live:
            pass
        return candidate

    def _trace(self, session: Session) -> tuple[InvariantTrace | None, Sequence[Violation]]:
        if not self._invariants:
            return None, ()
        state = session.seed_state
        if state.trace.last_seq + 1 != session.seq:
            # It was appended to before it came here.
            state = state_of(session.events)
        violations = state.violations
        if violations and not session.is_loaded:
            first = violations[0]
            raise InvariantViolationError(first.event_type, first.seq, first.rule)
        for violation in violations[:_MAX_LOGGED]:
            _logger.warning("session %s, as read back: %s", session.id, violation)
        more = len(violations) - _MAX_LOGGED
        if more > 0:
            _logger.warning("session %s, as read back: %d more out of order", session.id, more)
        return state.trace.copy(), violations

    def _entry(self, session: Session) -> LiveSession:
        live = self._live.get(session.id)
        if live is None or live.session is not session:
            raise SessionNotLiveError(session.id)
        return live

    def _detach(self, live: LiveSession) -> None:
        if self._live.get(live.session.id) is live:
            live.publication.when_free(partial(self._remove, live))

    def _remove(self, live: LiveSession) -> None:
        session = live.session
        del self._live[session.id]
        session.detach()
        live.tell_disposed()

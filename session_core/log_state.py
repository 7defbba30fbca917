"""What the events of a log amount to, played once while the log is built.

A log that is read back is needed as a surface (placement-follows-event-type), as a place in the
order of turns (turns-and-steps-nest), and as the closers of what a crash left open
(open-turn-gets-closers). All three follow the log in one pass.
"""

from session_core.chunks import CHUNK_EVENT, DeltaKey
from session_core.errors import InvariantViolationError, SeedError, SurfaceError
from session_core.events import Event
from session_core.invariants import InvariantTrace, Violation
from session_core.log import EventLog, EventView
from session_core.open_tail import OpenTail
from session_core.surface import SurfaceTracker


class LogState:
    """What the events of a log amount to.

    A fault of the surface ends the surface and nothing else, so that a damaged log can still be
    looked at; a fault of the order is tolerated (stored-payloads-are-checked-for-use).

    Attributes:
        surface: The surface after the events before a fault.
        trace: Where the order of turns and steps stands.
        tail: What is open at the end.
        violations: What broke the order.
        surface_fault: The first event that broke a rule of the surface, and the rule.
    """

    __slots__ = ("surface", "surface_fault", "tail", "trace", "violations")

    def __init__(self) -> None:
        self.surface = SurfaceTracker()
        self.trace = InvariantTrace()
        self.tail = OpenTail()
        self.violations: list[Violation] = []
        self.surface_fault: SeedError | None = None

    def copy(self) -> "LogState":
        """Return a state that goes its own way from here."""
        state = LogState()
        state.surface.restore(self.surface)
        state.trace = self.trace.copy()
        state.tail = self.tail.copy()
        state.violations = list(self.violations)
        state.surface_fault = self.surface_fault
        return state

    def follow(self, event: Event, log: EventLog | EventView) -> None:
        """Take the next event into account; `log` has all that came before it."""
        if self.surface_fault is None:
            try:
                self.surface.commit(event, self.surface.check(event, log))
            except SurfaceError as error:
                self.surface_fault = SeedError(event.seq, str(error))
        try:
            self.trace.check(event)
        except InvariantViolationError as error:
            self.violations.append(Violation(error.seq, error.event_type, error.rule))
        self.trace.advance(event)
        self.tail.follow(event)

    def follow_run(self, key: DeltaKey, seq: int) -> None:
        """Take a run of deltas that begins at `seq` into account: they stand or fall together."""
        rule = self.trace.step_problem(key.turn, key.step)
        if rule:
            self.violations.append(Violation(seq, CHUNK_EVENT, rule))

    def end_at(self, length: int) -> None:
        """Note how many events there are, members of runs included."""
        self.trace.last_seq = length - 1

    def require_surface(self) -> None:
        """Return unless the surface is broken.

        Raises:
            SeedError: It is.
        """
        if self.surface_fault is not None:
            raise SeedError(self.surface_fault.index, self.surface_fault.reason)


def state_of(log: EventLog | EventView) -> LogState:
    """Return what the events of `log` amount to, playing them if its builder has not."""
    if isinstance(log, EventLog) and isinstance(log.state, LogState):
        return log.state
    state = LogState()
    for record in log.records():
        if isinstance(record, Event):
            state.follow(record, log)
        else:
            state.follow_run(record.key, record.seq0)
    state.end_at(len(log))
    return state

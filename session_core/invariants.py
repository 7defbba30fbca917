"""The order that turns, steps and tool calls keep in a log (turns-and-steps-nest).

A trace looks at each candidate before it is committed (`check`) and follows what was committed
(`advance`). Knows nothing of surfaces or payload shapes.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from session_core.chunks import CHUNK_EVENT, ChunkRun
from session_core.errors import InvariantViolationError
from session_core.events import Event
from session_core.log import Events, records_of


class Violation(NamedTuple):
    """One event of a log that breaks a rule."""

    seq: int
    event_type: str
    rule: str

    def __str__(self) -> str:
        """Return it as one sentence."""
        return f"{self.event_type} at seq {self.seq}: {self.rule}"


@dataclass(eq=False, slots=True)
class InvariantTrace:
    """Where a log stands: the open turn and step, their next numbers, the unanswered calls.

    The next turn has the first number above all that a boundary has named, so that a log whose
    turns are out of order can still be continued.
    """

    last_seq: int = -1
    turn: int | None = None
    step: int | None = None
    next_turn: int = 1
    next_step: int = 1
    calls: set[str] = field(default_factory=set)

    def copy(self) -> "InvariantTrace":
        """Return a trace that goes its own way from here."""
        return replace(self, calls=set(self.calls))

    def check(self, event: Event) -> None:
        """Check that `event` may come next. Changes nothing.

        Raises:
            InvariantViolationError: It may not.
        """
        rule = _CHECKS.get(event.type, _check_inside_turn)(self, event.data, event)
        if event.seq <= self.last_seq:
            rule = f"seq must be above {self.last_seq}"
        if rule:
            raise InvariantViolationError(event.type, event.seq, rule)

    def check_run(self, run: ChunkRun) -> None:
        """Check that the deltas of `run` may come next: they stand or fall together."""
        rule = self.step_problem(run.key.turn, run.key.step)
        if run.seq0 <= self.last_seq:
            rule = f"seq must be above {self.last_seq}"
        if rule:
            raise InvariantViolationError(CHUNK_EVENT, run.seq0, rule)

    def step_problem(self, turn: int, step: int) -> str | None:
        """Return what is wrong with an event that names this turn and step."""
        if self.step is None or step != self.step or turn != self.turn:
            return f"turn {turn} step {step} is not the open one, turn {self.turn} step {self.step}"
        return None

    def advance(self, event: Event) -> None:
        """Follow an event that was committed."""
        self.last_seq = event.seq
        step = _ADVANCES.get(event.type)
        if step is not None:
            step(self, event.data, event)

    def advance_run(self, run: ChunkRun) -> None:
        """Follow a committed run of deltas."""
        self.last_seq = run.stop - 1


def trace_of(events: Events) -> InvariantTrace:
    """Return the trace after `events`.

    Raises:
        InvariantViolationError: An event breaks a rule.
    """
    trace = InvariantTrace()
    for record in records_of(events):
        if isinstance(record, Event):
            trace.check(record)
            trace.advance(record)
        else:
            trace.check_run(record)
            trace.advance_run(record)
    return trace


_Check = Callable[[InvariantTrace, Any, Event], str | None]


def _check_inside_turn(trace: InvariantTrace, _data: Any, _event: Event) -> str | None:
    return "no turn is open" if trace.turn is None else None


def _check_turn_start(trace: InvariantTrace, data: Any, _event: Event) -> str | None:
    if trace.turn is not None:
        return f"turn {trace.turn} is still open"
    if data["turn"] != trace.next_turn:
        return f"turn {data['turn']} must be {trace.next_turn}"
    return None


def _check_turn_end(trace: InvariantTrace, data: Any, _event: Event) -> str | None:
    if trace.turn is None or data["turn"] != trace.turn:
        return f"turn {data['turn']} is not the open one, {trace.turn}"
    if trace.step is not None:
        return f"step {trace.step} is still open"
    return None


def _check_step_start(trace: InvariantTrace, data: Any, event: Event) -> str | None:
    if rule := _check_turn_end(trace, data, event):
        return rule
    if data["step"] != trace.next_step:
        return f"step {data['step']} must be {trace.next_step}"
    return None


def _check_inside_step(trace: InvariantTrace, data: Any, _event: Event) -> str | None:
    return trace.step_problem(data["turn"], data["step"])


def _check_tool_result(trace: InvariantTrace, data: Any, event: Event) -> str | None:
    if event.surface_op != "append":
        return _check_inside_turn(trace, data, event)
    if rule := _check_inside_step(trace, data, event):
        return rule
    if data["callId"] in trace.calls or _is_not_started(data):
        return None
    return f"no tool/call {data['callId']!r} waits for a result in this step"


def _is_not_started(data: Any) -> bool:
    error = data.get("error")
    return bool(data["isError"]) and error is not None and error["code"] == "TOOL_NOT_STARTED"


_CHECKS: Final[dict[str, _Check]] = {
    "turn/start": _check_turn_start,
    "turn/end": _check_turn_end,
    "step/start": _check_step_start,
    "step/end": _check_inside_step,
    "assistant/chunk": _check_inside_step,
    "assistant/message": _check_inside_step,
    "tool/call": _check_inside_step,
    "tool/result": _check_tool_result,
}


def _open_turn(trace: InvariantTrace, data: Any, _event: Event) -> None:
    trace.turn = data["turn"]
    trace.next_turn = max(trace.next_turn, data["turn"] + 1)
    trace.step, trace.next_step = None, 1


def _close_turn(trace: InvariantTrace, data: Any, _event: Event) -> None:
    trace.turn = trace.step = None
    trace.next_turn = max(trace.next_turn, data["turn"] + 1)


def _open_step(trace: InvariantTrace, data: Any, _event: Event) -> None:
    trace.step = data["step"]
    # Calls that the step before left without a result: this one cannot give it.
    trace.calls.clear()


def _close_step(trace: InvariantTrace, data: Any, _event: Event) -> None:
    trace.step, trace.next_step = None, data["step"] + 1


def _note_call(trace: InvariantTrace, data: Any, _event: Event) -> None:
    trace.calls.add(data["callId"])


def _note_result(trace: InvariantTrace, data: Any, event: Event) -> None:
    if event.surface_op == "append":
        trace.calls.discard(data["callId"])


_ADVANCES: Final[dict[str, Callable[[InvariantTrace, Any, Event], None]]] = {
    "turn/start": _open_turn,
    "turn/end": _close_turn,
    "step/start": _open_step,
    "step/end": _close_step,
    "tool/call": _note_call,
    "tool/result": _note_result,
}

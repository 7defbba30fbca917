"""Closing what a crash left open (contract 5.4): the events a log needs to be balanced again."""

from typing import Any, Final

from session_core.events import Event
from session_core.json_value import FrozenDict, FrozenList
from session_core.log import EventLog, EventView

NOT_STARTED_TEXT: Final = (
    "The tool call was interrupted before the Harness recorded it as started. "
    "Retry it if it is still needed."
)
OUTCOME_UNKNOWN_TEXT: Final = (
    "The tool call was interrupted after it was recorded, but no result was durably recorded. "
    "Its outcome is unknown. Decide whether to retry from the tool semantics: retry only if the "
    "operation is read-only or idempotent; if it may have side effects, first verify external "
    "state or ask the user. Do not retry blindly."
)


class OpenTail:
    """What is open at the end of a log."""

    __slots__ = ("pending", "step", "turn")

    def __init__(self) -> None:
        self.turn: int | None = None
        self.step: int | None = None
        # Call id -> step of the message that asked for it, and seq of its tool/call, if it has one.
        self.pending: dict[str, tuple[int, int | None]] = {}

    def copy(self) -> "OpenTail":
        """Return a tail that goes its own way from here."""
        tail = OpenTail()
        tail.turn, tail.step, tail.pending = self.turn, self.step, dict(self.pending)
        return tail

    def follow(self, event: Event) -> None:
        """Take the next event of the log into account."""
        data = event.data
        match event.type:
            case "turn/start":
                self.turn, self.step = data["turn"], None
                self.pending.clear()
            case "turn/end":
                self.turn = self.step = None
                self.pending.clear()
            case "step/start":
                self.step = data["step"]
            case "step/end":
                self.step = None
                self.pending.clear()
            case "assistant/message":
                self._register(data["step"], data["content"])
            case "tool/call" if data["callId"] in self.pending:
                step, _ = self.pending[data["callId"]]
                self.pending[data["callId"]] = (step, event.seq)
            case "tool/result":
                self.pending.pop(data["callId"], None)

    def _register(self, step: int, content: FrozenList) -> None:
        for block in content:
            if block["type"] == "tool-call":
                # An id that comes again keeps its place and waits anew.
                self.pending[block["id"]] = (step, None)


def compute_closers(log: EventLog | EventView) -> list[Event]:
    """Return the events that close the open turn of `log`; none if no turn is open.

    An error result for every call without one, in the order the calls were asked for, then the ends
    of step and turn. All have the time of the last event: repair is deterministic.
    """
    tail = _tail_of(log)
    if tail.turn is None:
        return []
    time = log.event_at(len(log) - 1).time
    closers: list[Event] = []

    def close(
        event_type: str, data: dict[str, Any], surface: tuple[Any, ...] = (None, None)
    ) -> None:
        sources, op = surface
        seq = len(log) + len(closers)
        closers.append(Event(event_type, seq, time, FrozenDict(data), sources, op))

    for call_id, (asked_in, called_at) in tail.pending.items():
        # The two differ only in a log that is out of order; a result belongs to the open step.
        step = asked_in if tail.step is None else tail.step
        sources = None if called_at is None else (called_at,)
        close(
            "tool/result",
            _interrupted_result(tail.turn, step, call_id, was_called=called_at is not None),
            (sources, "append"),
        )
    if tail.step is not None:
        close("step/end", {"turn": tail.turn, "step": tail.step})
    close("turn/end", {"turn": tail.turn, "reason": {"kind": "interrupted"}})
    return closers


def _tail_of(log: EventLog | EventView) -> OpenTail:
    if isinstance(log, EventLog) and log.state is not None:
        return log.state.tail
    tail = OpenTail()
    for record in log.records():
        if isinstance(record, Event):
            tail.follow(record)
    return tail


def _interrupted_result(turn: int, step: int, call_id: str, *, was_called: bool) -> dict[str, Any]:
    if was_called:
        text = OUTCOME_UNKNOWN_TEXT
        error = {"name": "ToolOutcomeUnknownError", "code": "TOOL_OUTCOME_UNKNOWN"}
    else:
        text = NOT_STARTED_TEXT
        error = {"name": "ToolNotStartedError", "code": "TOOL_NOT_STARTED"}
    return {
        "turn": turn,
        "step": step,
        "callId": call_id,
        "content": [{"type": "text", "text": text}],
        "isError": True,
        "error": error,
    }

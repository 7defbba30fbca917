"""Closing what a crash left open: the events a log needs to be balanced again.

Rule: open-turn-gets-closers.
"""

from typing import Any, Final

from session_core.events import Event
from session_core.json_value import FrozenDict
from session_core.log import EventLog, EventView
from session_core.log_state import state_of

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


def compute_closers(log: EventLog | EventView) -> list[Event]:
    """Return the events that close the open turn of `log`; none if no turn is open.

    An error result for every call without one, in the order the calls were asked for, then the ends
    of step and turn. All have the time of the last event: repair is deterministic.
    """
    tail = state_of(log).tail
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

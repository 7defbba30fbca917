from collections.abc import Callable, Iterable
from typing import Any

import pytest

from session_core import (
    NOT_STARTED_TEXT,
    OUTCOME_UNKNOWN_TEXT,
    Event,
    EventLog,
    EventLogBuilder,
    EventView,
    Session,
    SessionStore,
    compute_closers,
)

Write = Callable[..., list[Event]]


def log_of(events: Iterable[Event]) -> EventLog:
    builder = EventLogBuilder()
    builder.extend(events)
    return builder.build()


def outline(closers: list[Event]) -> list[Any]:
    """Return type, and for results call, code and sources, of each closer."""
    return [
        (e.data["callId"], e.data["error"]["code"], e.source_event_seqs)
        if e.type == "tool/result"
        else e.type
        for e in closers
    ]


@pytest.mark.rule("open-turn-gets-closers")
def test_what_is_balanced_needs_nothing(session: Session, write: Write) -> None:
    assert compute_closers(EventLog()) == []
    assert compute_closers(session.events) == []
    write(session, "turn", "user a", "step", "ask c1", "call c1", "result c1", "/step", "/turn")
    assert compute_closers(session.events) == []


@pytest.mark.rule("open-turn-gets-closers")
def test_an_open_turn_and_step_are_ended(session: Session, write: Write) -> None:
    write(session, "turn", "user a")
    assert outline(compute_closers(session.events)) == ["turn/end"]
    write(session, "step", "delta a", "delta b")
    step_end, turn_end = compute_closers(session.events)
    assert step_end.to_json() == {
        "type": "step/end",
        "seq": 5,
        "time": session.events[-1].time,
        "data": {"turn": 1, "step": 1},
    }
    assert turn_end.data == {"turn": 1, "reason": {"kind": "interrupted"}}
    assert turn_end.seq == 6


@pytest.mark.rule("closers-follow-worked-example", "closers-have-last-time")
def test_the_worked_example() -> None:
    """Contract 5.4: a answered never, b answered, c called; a crash after that."""
    user = {"kind": "user"}
    calls = [{"type": "tool-call", "id": i, "name": "t", "arguments": ""} for i in "abc"]
    here = {"turn": 1, "step": 1}
    provenance = {"provider": "p", "model": "m"}
    rows: list[tuple[str, int, dict[str, Any], str | None]] = [
        ("turn/start", 50, {"turn": 1, "trigger": {"kind": "message", "source": user}}, None),
        ("user/message", 50, {"content": [], "source": user}, "append"),
        ("step/start", 51, here, None),
        (
            "assistant/message",
            59,
            {**here, "content": calls, "provenance": provenance},
            "append",
        ),
        ("tool/call", 60, {**here, "callId": "b", "name": "t", "arguments": ""}, None),
        ("tool/result", 61, {**here, "callId": "b", "content": [], "isError": False}, "append"),
        ("tool/call", 62, {**here, "callId": "c", "name": "t", "arguments": ""}, None),
    ]
    builder = EventLogBuilder()
    for seq, (event_type, time, data, op) in enumerate(rows):
        marker = {} if op is None else {"surfaceOp": op}
        builder.add({"type": event_type, "seq": seq, "time": time, "data": data, **marker})

    def interrupted(call_id: str, name: str, code: str, text: str) -> dict[str, Any]:
        return {
            **here,
            "callId": call_id,
            "content": [{"type": "text", "text": text}],
            "isError": True,
            "error": {"name": name, "code": code},
        }

    not_started = interrupted("a", "ToolNotStartedError", "TOOL_NOT_STARTED", NOT_STARTED_TEXT)
    unknown = interrupted(
        "c", "ToolOutcomeUnknownError", "TOOL_OUTCOME_UNKNOWN", OUTCOME_UNKNOWN_TEXT
    )
    assert [closer.to_json() for closer in compute_closers(builder.build())] == [
        {"type": "tool/result", "seq": 7, "time": 62, "data": not_started, "surfaceOp": "append"},
        {
            "type": "tool/result",
            "seq": 8,
            "time": 62,
            "data": unknown,
            "sourceEventSeqs": [6],
            "surfaceOp": "append",
        },
        {"type": "step/end", "seq": 9, "time": 62, "data": here},
        {
            "type": "turn/end",
            "seq": 10,
            "time": 62,
            "data": {"turn": 1, "reason": {"kind": "interrupted"}},
        },
    ]


@pytest.mark.rule("unstarted-calls-may-be-retried", "started-calls-have-unknown-outcome")
def test_the_texts_are_those_that_models_know() -> None:
    assert NOT_STARTED_TEXT == (
        "The tool call was interrupted before the Harness recorded it as started. "
        "Retry it if it is still needed."
    )
    assert OUTCOME_UNKNOWN_TEXT == (
        "The tool call was interrupted after it was recorded, but no result was durably "
        "recorded. Its outcome is unknown. Decide whether to retry from the tool semantics: "
        "retry only if the operation is read-only or idempotent; if it may have side effects, "
        "first verify external state or ask the user. Do not retry blindly."
    )


@pytest.mark.rule("open-turn-gets-closers")
def test_answered_calls_and_ended_steps_get_no_result(session: Session, write: Write) -> None:
    write(session, "turn", "step", "ask c1", "call c1", "result c1")
    assert outline(compute_closers(session.events)) == ["step/end", "turn/end"]
    write(session, "ask c2", "call c2", "/step")
    assert outline(compute_closers(session.events)) == ["turn/end"]
    write(session, "step", "ask c3")
    assert outline(compute_closers(session.events))[0] == ("c3", "TOOL_NOT_STARTED", None)


@pytest.mark.rule("open-turn-gets-closers")
def test_calls_of_earlier_turns_are_left_alone(session: Session, write: Write) -> None:
    write(session, "turn", "step", "ask old", "call old", "/step", "/turn", "turn", "user b")
    assert outline(compute_closers(session.events)) == ["turn/end"]


@pytest.mark.rule("open-turn-gets-closers")
def test_a_call_that_no_message_asked_for_gets_no_result(session: Session, write: Write) -> None:
    write(session, "turn", "step", "call orphan", "ask c1", "call c1")
    assert outline(compute_closers(session.events)) == [
        ("c1", "TOOL_OUTCOME_UNKNOWN", (4,)),
        "step/end",
        "turn/end",
    ]


def test_an_id_asked_for_again_keeps_its_place_and_waits_anew(
    session: Session, write: Write
) -> None:
    write(session, "turn", "step", "ask c1 c2", "call c1", "ask c1")
    assert outline(compute_closers(session.events))[:2] == [
        ("c1", "TOOL_NOT_STARTED", None),
        ("c2", "TOOL_NOT_STARTED", None),
    ]


@pytest.mark.rule("closers-have-last-time")
def test_the_time_is_that_of_the_last_event_even_in_a_packed_run(write: Write) -> None:
    times = iter([0, 100, 200, 300, 250, 9999])
    session = Session("s", clock=lambda: next(times))
    write(session, "turn", "step", "delta a", "delta b")
    assert [event.time for event in session.events] == [100, 200, 300, 250]
    for log in (session.events, log_of(session.events)):
        assert [closer.time for closer in compute_closers(log)] == [250, 250]


@pytest.mark.rule("repair-happens-once")
def test_a_repaired_log_needs_no_second_repair(session: Session, write: Write) -> None:
    write(session, "turn", "step", "ask c1 c2", "call c2")
    repaired = log_of([*session.events, *compute_closers(session.events)])
    assert compute_closers(repaired) == []
    assert compute_closers(repaired.view()) == []


@pytest.mark.rule("repaired-history-is-paired")
def test_a_repaired_log_is_a_history_to_go_on_from(
    store: SessionStore, session: Session, write: Write
) -> None:
    write(session, "turn", "user a", "step", "ask c1 c2", "call c2")
    resumed = store.create("s", seed=[*session.events, *compute_closers(session.events)])
    messages = resumed.derive_messages()
    asked = {b["id"] for m in messages for b in m["content"] if b["type"] == "tool-call"}
    answered = {
        b["toolCallId"] for m in messages for b in m["content"] if b["type"] == "tool-result"
    }
    assert asked == answered == {"c1", "c2"}
    write(resumed, "turn", "user b", "/turn")
    assert resumed.events[-1].data["turn"] == 2


def test_any_view_of_a_log_is_repaired_at_its_own_end(session: Session, write: Write) -> None:
    write(session, "turn", "user a")
    early: EventView = session.events
    write(session, "/turn")
    assert outline(compute_closers(early)) == ["turn/end"]
    assert compute_closers(session.events) == []

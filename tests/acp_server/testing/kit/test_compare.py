"""Comparison by meaning: one sentence, what differs, the event behind it."""

from typing import Any

import pytest

from acp_server.testing.kit.compare import changes, differences

LOG: list[dict[str, Any]] = [
    {"type": "session", "id": "{{session.1}}"},
    {"type": "turn/start", "seq": 0, "time": 0, "data": {"turn": 1}},
    {"type": "tool/call", "seq": 1, "time": 0, "data": {"callId": "{{call.1}}"}},
    {
        "type": "tool/result",
        "seq": 2,
        "time": 0,
        "data": {"callId": "{{call.1}}", "isError": False},
    },
    {"type": "turn/end", "seq": 3, "time": 0, "data": {"turn": 1, "reason": {"kind": "completed"}}},
]


def update(variant: str, **members: Any) -> dict[str, Any]:
    params = {"sessionId": "{{session.1}}", "update": {"sessionUpdate": variant, **members}}
    return {"jsonrpc": "2.0", "method": "session/update", "params": params}


def text(message_id: str, said: str) -> dict[str, Any]:
    return update(
        "agent_message_chunk", messageId=message_id, content={"type": "text", "text": said}
    )


def result(request_id: int, **members: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "result": members}


FRAMES = [
    text("a5", "one"),
    update("tool_call_update", toolCallId="{{call.1}}", status="completed"),
    text("a9", "two"),
    result(3, stopReason="end_turn"),
]


def report(expected: list[dict[str, Any]], found: list[dict[str, Any]]) -> list[str]:
    (difference,) = differences({"f": expected}, {"f": found}, [LOG])
    return difference.report()


def sentence(expected: list[dict[str, Any]], found: list[dict[str, Any]]) -> str:
    (difference,) = differences({"f": expected}, {"f": found}, [LOG])
    return difference.sentence()


def test_equal_lines_give_nothing() -> None:
    assert differences({"f": FRAMES}, {"f": list(FRAMES)}) == []


@pytest.mark.rule("failed-run-leaves-new-files")
def test_a_changed_field_is_named_with_both_values_and_its_event() -> None:
    found = [*FRAMES]
    found[1] = update("tool_call_update", toolCallId="{{call.1}}", status="failed")
    assert sentence(FRAMES, found) == (
        'f: tool_call_update {{call.1}}, line 2 of 4, has `params.update.status` "failed" '
        'where "completed" is expected'
    )
    assert report(FRAMES, found) == [
        "f",
        "  ~ tool_call_update {{call.1}}   <- event 2 tool/result",
        '      params.update.status: "completed" -> "failed"',
    ]


def test_a_missing_and_an_unexpected_line_are_told_apart() -> None:
    assert sentence(FRAMES, FRAMES[1:]) == (
        "f: agent_message_chunk a5 is missing, which should be line 1"
    )
    assert sentence(FRAMES[1:], FRAMES) == (
        "f: agent_message_chunk a5 is there unexpectedly, line 1 of 4"
    )


def test_lines_in_another_order_are_one_missing_and_one_unexpected() -> None:
    found = [FRAMES[1], FRAMES[0], *FRAMES[2:]]
    kinds = [change.kind for change in changes(FRAMES, found)]
    assert sorted(kinds) == ["missing", "unexpected"]


def test_a_line_more_does_not_hide_behind_the_numbers_that_it_shifts() -> None:
    more = {"type": "todo/write", "seq": 1, "time": 0, "data": {"todos": []}}
    shifted = [{**event, "seq": event["seq"] + 1} for event in LOG[2:]]
    lines = report(LOG, [*LOG[:2], more, *shifted])
    assert lines == [
        "f",
        '  + event 1 todo/write: {"todos":[]}',
        "  3 further lines differ only in the numbers of events",
    ]


def test_numbers_alone_are_a_difference_too() -> None:
    found = [*FRAMES[:2], text("a10", "two"), FRAMES[3]]
    assert 'has `params.update.messageId` "a10" where "a9" is expected' in sentence(FRAMES, found)


def test_true_is_not_1_and_a_field_more_is_a_difference() -> None:
    assert changes([result(1, x=True)], [result(1, x=1)])[0].kind == "changed"
    assert report([result(1, x=1)], [result(1, x=1, y=[2])])[2] == "      result.y: absent -> [2]"
    assert changes([result(1, x=1, y=2)], [result(1, y=2, x=1)]) == []


def test_the_event_behind_a_message_is_found_by_its_id() -> None:
    found = [text("a3", "changed"), *FRAMES[1:]]
    assert "  ~ agent_message_chunk a3   <- event 3 turn/end" in report(FRAMES, found)


def test_files_of_one_side_only_are_all_missing_or_unexpected() -> None:
    (gone,) = differences({"session.jsonl": LOG}, {})
    assert {change.kind for change in gone.changes} == {"missing"}
    (new,) = differences({}, {"session.jsonl": LOG})
    assert {change.kind for change in new.changes} == {"unexpected"}


def test_a_long_report_is_cut() -> None:
    found = [text("a5", f"{number}" * 500) for number in range(40)]
    lines = report([], found)
    assert len(lines) == 14
    assert lines[-1] == "  … and 28 more"
    assert all(len(line) < 260 for line in lines)

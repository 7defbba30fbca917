"""Normalization: pure, idempotent, and no more than it must do."""

import copy
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_server.testing.client import RecordedFrame
from acp_server.testing.kit.normalize import (
    Identities,
    ImpureOutputError,
    Places,
    normalize_frame_lines,
    normalize_frames,
    normalize_log,
)

UUID = "0a1b2c3d-0000-7000-8000-00000000000{}"
PLACES = Places(Path("/tmp/run/workspace"), Path("/tmp/run"))


def sent(*frames: dict[str, Any]) -> list[RecordedFrame]:
    return [RecordedFrame("agent", orjson.dumps({"jsonrpc": "2.0", **frame})) for frame in frames]


def normalized(*frames: dict[str, Any]) -> list[dict[str, Any]]:
    found = normalize_frames([sent(*frames)], Identities(PLACES))
    return [{key: value for key, value in frame.items() if key != "jsonrpc"} for frame in found]


def update(session: str, **members: Any) -> dict[str, Any]:
    return {"method": "session/update", "params": {"sessionId": session, "update": members}}


@pytest.mark.rule("placeholders-keep-identity")
def test_ids_are_numbered_as_the_agent_uses_them_whoever_asked() -> None:
    frames = normalized(
        {"id": 0, "result": {}},
        {"id": 7, "method": "session/request_permission", "params": {"sessionId": "s-12345678"}},
        {"method": "$/cancel_request", "params": {"requestId": 7}},
        {"id": 7, "result": {}},
        {"id": "7", "result": {}},
        {"id": None, "error": {}},
    )
    assert [frame.get("id", "none") for frame in frames] == [1, 2, "none", 3, 4, None]
    assert frames[2]["params"]["requestId"] == 2


def test_each_process_has_ids_of_its_own_behind_a_line_that_says_so() -> None:
    one, other = sent({"id": 0, "result": {}}), sent({"id": 0, "result": {}})
    frames = normalize_frames([one, other], Identities())
    assert [frame.get("id", frame.get("process")) for frame in frames] == [1, 2, 2]


@pytest.mark.rule("placeholders-keep-identity")
def test_ids_become_placeholders_that_keep_identity() -> None:
    frames = normalized(
        update(UUID.format(1), sessionUpdate="tool_call", toolCallId="call_0_1", title="T"),
        update(
            UUID.format(2), sessionUpdate="tool_call", toolCallId="call_0_2", title=UUID.format(1)
        ),
        update(
            UUID.format(1), sessionUpdate="x", text=f"see {UUID.format(9)} and {UUID.format(2)}"
        ),
        update(
            UUID.format(2), sessionUpdate="x", text=UUID.format(9), about="not call_0_10, call_0_1"
        ),
    )
    told = [(frame["params"]["sessionId"], frame["params"]["update"]) for frame in frames]
    assert [session for session, _ in told] == [
        "{{session.1}}",
        "{{session.2}}",
        "{{session.1}}",
        "{{session.2}}",
    ]
    assert told[0][1]["toolCallId"] == "{{call.1}}"
    assert told[1][1] == {
        "sessionUpdate": "tool_call",
        "toolCallId": "{{call.2}}",
        "title": "{{session.1}}",
    }
    assert told[2][1]["text"] == "see {{uuid.1}} and {{session.2}}"
    assert told[3][1]["text"] == "{{uuid.1}}"
    assert told[3][1]["about"] == "not call_0_10, {{call.1}}"


@pytest.mark.rule("placeholders-keep-identity")
def test_paths_lose_what_differs_from_machine_to_machine() -> None:
    text = "/tmp/run/workspace/a, /private/tmp/run/workspace, /tmp/run/store, /tmp/other"
    (frame,) = normalized({"id": 0, "result": {"text": text}})
    assert frame["result"]["text"] == "{{cwd}}/a, {{cwd}}, {{root}}/store, /tmp/other"


def test_moments_and_versions_go_and_nothing_else_does() -> None:
    title = {
        "sessionUpdate": "session_info_update",
        "title": "T",
        "updatedAt": "2023-11-14T22:13:20Z",
    }
    frames = normalized(
        {"id": 0, "result": {"agentInfo": {"name": "a", "version": "1.2"}, "version": "1.2"}},
        update("s", **title),
        {"id": 1, "result": {"sessions": [{"sessionId": "s", "updatedAt": "now"}]}},
        {"id": 2, "result": {"stopReason": "end_turn", "time": 5, "createdAt": 7}},
    )
    assert frames[0]["result"] == {
        "agentInfo": {"name": "a", "version": "{{version}}"},
        "version": "1.2",
    }
    assert frames[1]["params"]["update"] == {**title, "updatedAt": "{{updatedAt}}"}
    assert frames[2]["result"]["sessions"][0]["updatedAt"] == "{{updatedAt}}"
    assert frames[3]["result"] == {"stopReason": "end_turn", "time": 5, "createdAt": 7}


@pytest.mark.rule("times-become-zero-in-logs")
def test_times_of_a_log_become_0_and_seqs_stay() -> None:
    header = {"version": 0, "id": "s-12345678", "createdAt": 99}
    records: list[dict[str, Any]] = [
        {"type": "turn/start", "seq": 0, "time": 5, "data": {"turn": 1, "time": 8}},
        {
            "type": "text-chunks",
            "seq0": 1,
            "time0": 6,
            "data": {"turn": 1, "step": 1, "index": 0, "dt": [1, -2], "texts": ["a", "b", "c"]},
        },
        {"type": "hook/result", "seq": 4, "time": 9, "data": {"durationMs": 12}},
        {"type": "tool/result", "seq": 5, "time": 9, "data": {"durationMs": 12}},
    ]
    before = copy.deepcopy(records)
    log = normalize_log(header, records, Identities())
    assert records == before
    assert log[0] == {
        "type": "session",
        "version": 0,
        "id": "{{session.1}}",
        "createdAt": 0,
        "delegationDepth": 0,
    }
    assert [line.get("time", line.get("time0")) for line in log[1:]] == [0, 0, 0, 0]
    assert [line.get("seq", line.get("seq0")) for line in log[1:]] == [0, 1, 4, 5]
    assert log[1]["data"] == {"turn": 1, "time": 8}
    assert log[2]["data"]["dt"] == [0, 0]
    assert log[2]["data"]["texts"] == ["a", "b", "c"]
    assert [line["data"]["durationMs"] for line in log[3:]] == [0, 12]


def test_request_headers_are_scrubbed_unless_they_are_the_subject() -> None:
    header = {"config": {"model": "m"}, "system": "long", "tools": [1], "messagePrefix": [1, 2]}
    record = {"type": "request/header", "seq": 0, "time": 1, "data": {"header": header}}
    scrubbed = normalize_log({}, [record], Identities())[1]["data"]["header"]
    assert scrubbed == {
        "config": {"model": "m"},
        "system": "{{system}}",
        "tools": "{{tools}}",
        "messagePrefix": ["{{messagePrefix}}"] * 2,
    }
    kept = normalize_log({}, [record], Identities(), keep_request_headers=True)
    assert kept[1]["data"]["header"] == header


@pytest.mark.rule("runs-check-more-than-expected")
@pytest.mark.parametrize("line", [b"Traceback", b"[1]", b'"text"', b'{"a": NaN}', b"\xff"])
def test_a_line_that_is_no_json_object_is_an_error(line: bytes) -> None:
    with pytest.raises(ImpureOutputError) as caught:
        normalize_frames([[RecordedFrame("agent", line)]], Identities())
    assert caught.value.line == line


def test_blank_lines_and_lines_of_the_client_are_passed_over() -> None:
    lines = [RecordedFrame("agent", b"  "), RecordedFrame("client", b"rubbish")]
    assert normalize_frames([lines], Identities()) == []


texts = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        [
            UUID.format(1),
            UUID.format(2),
            "call_0_1",
            "call_0_2",
            "/tmp/run/workspace/x",
            "{{session.3}}",
            "{{call.1}}",
            f"in {UUID.format(1)} and {UUID.format(3)}",
        ]
    ),
)
members = st.recursive(
    texts | st.integers(0, 5),
    lambda inner: (
        st.dictionaries(
            st.sampled_from(
                ["sessionId", "toolCallId", "callId", "id", "text", "type", "updatedAt"]
            ),
            inner,
            max_size=4,
        )
        | st.lists(inner, max_size=3)
    ),
    max_leaves=8,
)
frames_of_any_sort = st.lists(
    st.one_of(
        st.builds(lambda i, r: {"id": i, "result": {"r": r}}, st.integers(0, 3), members),
        st.builds(
            lambda s, u: {
                "method": "session/update",
                "params": {"sessionId": s, "update": {"u": u}},
            },
            texts,
            members,
        ),
        st.builds(
            lambda i, p: {"id": i, "method": "session/request_permission", "params": {"p": p}},
            st.integers(0, 3),
            members,
        ),
    ),
    max_size=6,
)


@pytest.mark.rule("normalizing-is-idempotent")
@given(frames=frames_of_any_sort)
def test_normalizing_twice_is_normalizing_once(frames: list[dict[str, Any]]) -> None:
    once = normalize_frames([sent(*frames)], Identities(PLACES))
    lines = [orjson.dumps(frame) for frame in once]
    assert normalize_frame_lines(lines, Identities(PLACES)) == once
    assert normalize_frames([sent(*frames)], Identities(PLACES)) == once


@pytest.mark.rule("normalizing-is-idempotent")
def test_normalizing_a_log_twice_is_normalizing_it_once() -> None:
    header = {"version": 0, "id": UUID.format(1), "createdAt": 99, "parentSession": UUID.format(2)}
    call = {
        "type": "tool-call",
        "id": "call_0_1",
        "name": "n",
        "arguments": '{"p": "/tmp/run/workspace/a"}',
    }
    records = [
        {"type": "assistant/message", "seq": 0, "time": 5, "data": {"content": [call]}},
        {"type": "tool/call", "seq": 1, "time": 6, "data": {"callId": "call_0_1"}},
    ]
    once = normalize_log(header, records, Identities(PLACES))
    assert normalize_log(once[0], once[1:], Identities(PLACES)) == once
    assert once[1]["data"]["content"][0]["id"] == once[2]["data"]["callId"] == "{{call.1}}"

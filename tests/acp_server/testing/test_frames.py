"""The checker accepts good conversations and names the rule that a bad one breaks."""

from collections.abc import Iterable
from typing import Any, TypeAlias

import orjson
import pytest

from acp_server.testing import FrameChecker, FrameViolationError
from acp_server.testing.checks.frame_values import difference, find_null

Frame: TypeAlias = dict[str, Any] | bytes
Step: TypeAlias = tuple[str, Frame]

CAPABILITIES = {
    "fs": {"readTextFile": True, "writeTextFile": True},
    "terminal": True,
    "session": {"configOptions": {"boolean": {}}, "notices": {}},
    "elicitation": {"form": {}, "url": {}},
}
OPTIONS = [
    {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
    {"optionId": "no", "name": "No", "kind": "reject_once"},
]
BOOLEAN = {"id": "b", "name": "B", "type": "boolean", "currentValue": True}


def asked(request_id: int | str, method: str, **params: object) -> Step:
    return "client", {"id": request_id, "method": method, "params": params}


def told(method: str, **params: object) -> Step:
    return "client", {"method": method, "params": params}


def result(request_id: int | str | None, **members: object) -> Step:
    return "agent", {"id": request_id, "result": members}


def error(request_id: int | str | None, code: int = -32602) -> Step:
    return "agent", {"id": request_id, "error": {"code": code, "message": "no"}}


def agent_asks(request_id: int | str, method: str, **params: object) -> Step:
    return "agent", {"id": request_id, "method": method, "params": {"sessionId": "s", **params}}


def update(variant: str, **members: object) -> Step:
    params = {"sessionId": "s", "update": {"sessionUpdate": variant, **members}}
    return "agent", {"method": "session/update", "params": params}


def text(words: str, message_id: str | None = None, variant: str = "agent_message_chunk") -> Step:
    tag: dict[str, Any] = {} if message_id is None else {"messageId": message_id}
    return update(variant, content={"type": "text", "text": words}, **tag)


def call(call_id: str = "c", **members: object) -> Step:
    return update("tool_call", toolCallId=call_id, title="T", **members)


def change(call_id: str = "c", **members: object) -> Step:
    return update("tool_call_update", toolCallId=call_id, **members)


def permission(call_id: str = "c", options: object = OPTIONS, **members: object) -> Step:
    tool_call = {"toolCallId": call_id, **members}
    return agent_asks(0, "session/request_permission", toolCall=tool_call, options=options)


def prompt(request_id: int | str = 2) -> Step:
    return asked(
        request_id, "session/prompt", sessionId="s", prompt=[{"type": "text", "text": "hi"}]
    )


def load(request_id: int = 7) -> Step:
    return asked(request_id, "session/load", sessionId="s", cwd="/w", mcpServers=[])


INIT: list[Step] = [
    asked(0, "initialize", protocolVersion=1, clientCapabilities=CAPABILITIES),
    result(0, protocolVersion=1),
]
OPEN: list[Step] = [
    *INIT,
    asked(1, "session/new", cwd="/w", mcpServers=[]),
    result(1, sessionId="s"),
]
PROMPTED: list[Step] = [*OPEN, prompt()]
END = result(2, stopReason="end_turn")
TURN: list[Step] = [
    *PROMPTED,
    text("a", "a1"),
    call(status="pending"),
    change(status="completed"),
    END,
]


def check(steps: Iterable[Step], *, sdk: bool, complete: bool = True) -> list[str]:
    """Feed the steps and return the broken rules."""
    checker = FrameChecker(sdk=sdk)
    for sender, frame in steps:
        if isinstance(frame, dict):
            frame = orjson.dumps({"jsonrpc": "2.0", **frame}) + b"\n"  # noqa: PLW2901
        (checker.from_client if sender == "client" else checker.from_agent)(frame)
    checker.finish(complete=complete)
    return [violation.rule for violation in checker.violations]


GOOD: dict[str, list[Step]] = {
    "a turn with everything": [
        *OPEN,
        update("available_commands_update", availableCommands=[]),
        prompt(),
        text("why", "t1", "agent_thought_chunk"),
        text("a", "a1"),
        text("b", "a1"),
        update("plan", entries=[{"content": "x", "priority": "medium", "status": "pending"}]),
        call(status="pending", rawInput={"x": None}),
        permission(title="T"),
        ("client", {"id": 0, "result": {"outcome": {"outcome": "selected", "optionId": "yes"}}}),
        change(status="in_progress"),
        change(content=[{"type": "diff", "path": "/w/a", "oldText": None, "newText": "x"}]),
        agent_asks(1, "fs/read_text_file", path="/w/a"),
        ("client", {"id": 1, "result": {"content": "x"}}),
        change(status="completed", rawOutput=None, _meta={"x": None}),
        update("session_info_update", title="T"),
        update("usage_update", used=1, size=2),
        END,
        update("notice", severity="info", title="N"),
        update("current_mode_update", currentModeId="m"),
    ],
    "a call that is final at once": [*PROMPTED, call(status="failed"), END],
    "a load and the next turn": [
        *TURN,
        load(),
        text("hi", "u0", "user_message_chunk"),
        text("a", "a1"),
        call(status="completed"),
        result(7),
        prompt(8),
        text("b", "a9"),
        result(8, stopReason="end_turn"),
    ],
    "two pipelined loads, each with a replay": [
        *TURN,
        load(7),
        load(8),
        call(status="completed"),
        result(7),
        call(status="completed"),
        result(8),
    ],
    "a load while a turn runs": [
        *PROMPTED,
        text("a", "a1"),
        call(status="in_progress"),
        load(),
        text("a", "a1"),
        call(status="in_progress"),
        result(7),
        text("b", "a1"),
        change(status="completed"),
        END,
    ],
    "a first load of an unknown session": [*INIT, load(), text("a", "a1"), result(7)],
    "a queued prompt is cancelled before the running one ends": [
        *PROMPTED,
        prompt(3),
        call(status="in_progress"),
        told("$/cancel_request", requestId=3),
        result(3, stopReason="cancelled"),
        change(status="failed"),
        END,
    ],
    "a second prompt behind the first": [
        *PROMPTED,
        prompt(3),
        text("a", "a1"),
        END,
        text("b", "a2"),
        result(3, stopReason="end_turn"),
    ],
    "errors": [
        *INIT,
        load(),
        error(7, -32002),
        asked("x", "session/nope"),
        error("x", -32601),
        ("client", b"not json\n"),
        error(None, -32700),
        ("client", b"[]\n"),
        error(None, -32600),
        ("client", b'{"id":5,"method":"initialize"}\n'),
        error(5, -32600),
        ("client", b'{"jsonrpc":"2.0","id":true,"method":"initialize"}\n'),
        error(None, -32600),
    ],
    "the same id twice": [
        *INIT,
        asked(5, "_ping"),
        asked(5, "_ping"),
        error(5, -32601),
        error(5, -32601),
    ],
    "a null id, a string id and a number id": [
        *INIT,
        ("client", {"id": None, "method": "_x"}),
        asked("1", "_x"),
        asked(1, "_x"),
        error(1, -32601),
        error(None, -32601),
        error("1", -32601),
    ],
    "what the client may send between frames": [
        ("client", b"\xef\xbb\xbf\n  \n\r\n"),
        *INIT,
        ("client", {"id": 777, "result": {}}),
        told("_vendor/x"),
    ],
    "extensions of the agent": [*OPEN, ("agent", {"method": "_x/y", "params": {}})],
    "a huge user chunk": [
        *TURN,
        load(),
        text("x" * (1 << 20), "u0", "user_message_chunk"),
        result(7),
    ],
}


@pytest.mark.rule("frame-checker-finds-violations")
@pytest.mark.parametrize("sdk", [True, False])
@pytest.mark.parametrize("name", GOOD)
def test_a_good_conversation_is_accepted(name: str, sdk: bool) -> None:
    assert check(GOOD[name], sdk=sdk) == []


BAD: dict[str, tuple[str, list[Step]]] = {
    "a stray print": ("json", [*OPEN, ("agent", b"hello\n")]),
    "a blank line": ("json", [*OPEN, ("agent", b"\n")]),
    "NaN": ("json", [("agent", b'{"jsonrpc":"2.0","method":"_x","params":{"a":NaN}}\n')]),
    "bad UTF-8": ("json", [("agent", b'{"jsonrpc":"2.0","method":"_x\xff"}\n')]),
    "a lone surrogate": ("json", [("agent", b'{"jsonrpc":"2.0","method":"_\\ud800"}\n')]),
    "two objects in a line": ("json", [("agent", b"{}{}\n")]),
    "an array": ("json", [("agent", b"[1]\n")]),
    "no LF at the end": ("json", [*INIT, ("agent", b'{"jsonrpc":"2.0"')]),
    "no jsonrpc": ("envelope", [("agent", b'{"method":"_x","params":{}}\n')]),
    "wrong jsonrpc": ("envelope", [("agent", {"jsonrpc": "1.0", "method": "_x"})]),
    "jsonrpc as number": ("envelope", [("agent", {"jsonrpc": 2.0, "method": "_x"})]),
    "an unknown root key": ("envelope", [("agent", {"method": "_x", "extra": 1})]),
    "neither kind": ("envelope", [("agent", {"params": {}})]),
    "result and error": (
        "envelope",
        [asked(0, "_x"), ("agent", {"id": 0, "result": {}, "error": {"code": 1, "message": ""}})],
    ),
    "a result without id": ("envelope", [("agent", {"result": {}})]),
    "array params": ("envelope", [("agent", {"method": "_x", "params": []})]),
    "a result that is no object": (
        "envelope",
        [*INIT, asked(1, "session/list"), ("agent", {"id": 1, "result": []})],
    ),
    "a bool as request id": ("envelope", [*OPEN, ("agent", {"id": True, "method": "_x"})]),
    "an error without message": (
        "envelope",
        [asked(0, "_x"), ("agent", {"id": 0, "error": {"code": -32602}})],
    ),
    "an error with a text code": (
        "envelope",
        [asked(0, "_x"), ("agent", {"id": 0, "error": {"code": "x", "message": ""}})],
    ),
    "an error with more keys": (
        "envelope",
        [asked(0, "_x"), ("agent", {"id": 0, "error": {"code": 1, "message": "", "x": 1}})],
    ),
    "a response to nothing": ("response", [*INIT, result(9)]),
    "a second response": ("response", [*INIT, result(0, protocolVersion=1)]),
    "an id of another type": ("response", [asked(1, "_x"), error("1", -32601)]),
    "a float for an integer": ("response", [asked(1, "_x"), error(1.0, -32601)]),  # type: ignore[arg-type]
    "no response": ("response", [*INIT, asked(1, "session/list")]),
    "a response to a notification": ("response", [told("_x"), error(None, -32601)]),
    "an unasked parse error": ("response", [*INIT, error(None, -32700)]),
    "two errors for one bad line": (
        "response",
        [("client", b"x\n"), error(None, -32700), error(None, -32700)],
    ),
    "two open requests with one id": (
        "response",
        [
            *PROMPTED,
            agent_asks(0, "fs/read_text_file", path="/w/a"),
            agent_asks(0, "fs/read_text_file", path="/w/a"),
            END,
        ],
    ),
    "an unknown update": ("shape", [*PROMPTED, update("news"), END]),
    "an update without session": (
        "shape",
        [*INIT, ("agent", {"method": "session/update", "params": {"update": {}}})],
    ),
    "an unknown method of the client": ("method", [*OPEN, ("agent", {"method": "session/x"})]),
    "a request sent as notification": (
        "method",
        [*OPEN, ("agent", {"method": "fs/read_text_file", "params": {"sessionId": "s"}})],
    ),
    "a file without the capability": (
        "gate",
        [
            asked(0, "initialize", protocolVersion=1),
            result(0, protocolVersion=1),
            *OPEN[2:],
            agent_asks(0, "fs/read_text_file", path="/w/a"),
        ],
    ),
    "a notice without the capability": (
        "gate",
        [
            asked(0, "initialize", protocolVersion=1),
            result(0, protocolVersion=1),
            *OPEN[2:],
            update("notice", severity="info", title="N"),
        ],
    ),
    "a boolean option without the capability": (
        "gate",
        [
            asked(0, "initialize", protocolVersion=1),
            result(0, protocolVersion=1),
            asked(1, "session/new", cwd="/w", mcpServers=[]),
            result(1, sessionId="s", configOptions=[BOOLEAN]),
        ],
    ),
    "a null title": ("null", [*PROMPTED, update("session_info_update", title=None), END]),
    "a null in a list": (
        "null",
        [*OPEN, ("agent", {"method": "_x", "params": {"list": [1, None]}})],
    ),
    "a null result": ("null", [asked(0, "_x"), ("agent", {"id": 0, "result": None})]),
    "a huge update": ("size", [*PROMPTED, text("x" * (1 << 20)), END]),
    "an update before session/new is answered": (
        "unknown-session",
        [
            *OPEN[:3],
            update("available_commands_update", availableCommands=[]),
            OPEN[3],
        ],
    ),
    "an update after the close": (
        "unknown-session",
        [
            *OPEN,
            asked(3, "session/close", sessionId="s"),
            result(3),
            update("session_info_update", title="T"),
        ],
    ),
    "an update after a failed load": (
        "unknown-session",
        [*INIT, load(), error(7), update("session_info_update", title="T")],
    ),
    "an update before resume is answered": (
        "unknown-session",
        [
            *INIT,
            asked(7, "session/resume", sessionId="s", cwd="/w"),
            update("session_info_update", title="T"),
            result(7),
        ],
    ),
    "a request for an unknown session": (
        "unknown-session",
        [*INIT, agent_asks(0, "fs/read_text_file", path="/w/a")],
    ),
    "a chunk after the response": ("idle", [*TURN, text("late", "a1")]),
    "a plan while idle": ("idle", [*OPEN, update("plan", entries=[])]),
    "a replay after the load": ("idle", [*TURN, load(), result(7), text("a", "a1")]),
    "a replay by resume": (
        "idle",
        [
            *TURN,
            asked(7, "session/resume", sessionId="s", cwd="/w"),
            text("a", "a1"),
            result(7),
        ],
    ),
    "a change without announcement": ("tool-call", [*PROMPTED, change(status="completed"), END]),
    "a call announced twice": (
        "tool-call",
        [*PROMPTED, call(status="pending"), call(status="completed"), END],
    ),
    "a call of an earlier turn": (
        "tool-call",
        [*TURN, prompt(3), call(status="completed"), result(3, stopReason="end_turn")],
    ),
    "a call replayed twice": (
        "tool-call",
        [*TURN, load(), call(status="completed"), call(status="completed"), result(7)],
    ),
    "a call left open": ("final-status", [*PROMPTED, call(status="in_progress"), END]),
    "a call left open by a failed turn": (
        "final-status",
        [*PROMPTED, call(), error(2, -32603)],
    ),
    "a call left open by a replay": (
        "final-status",
        [*TURN, load(), call(status="in_progress"), result(7)],
    ),
    "two final statuses": (
        "final-status",
        [*PROMPTED, call(), change(status="completed"), change(status="failed"), END],
    ),
    "a change after the final status": (
        "final-status",
        [*PROMPTED, call(), change(status="completed"), change(title="U"), END],
    ),
    "a step back": (
        "final-status",
        [
            *PROMPTED,
            call(status="in_progress"),
            change(status="pending"),
            change(status="completed"),
            END,
        ],
    ),
    "a permission before its call": (
        "permission",
        [*PROMPTED, permission(), END],
    ),
    "a permission for a finished call": (
        "permission",
        [*PROMPTED, call(status="completed"), permission(), END],
    ),
    "a permission tagged as update": (
        "permission",
        [
            *PROMPTED,
            call(),
            permission(sessionUpdate="tool_call_update"),
            change(status="failed"),
            END,
        ],
    ),
    "a permission without options": (
        "permission",
        [*PROMPTED, call(), permission(options=[]), change(status="failed"), END],
    ),
    "a permission with one id twice": (
        "permission",
        [*PROMPTED, call(), permission(options=OPTIONS[:1] * 2), change(status="failed"), END],
    ),
    "a message of two kinds": (
        "message-id",
        [*PROMPTED, text("a", "m"), text("b", "m", "agent_thought_chunk"), END],
    ),
    "a message of an earlier turn": (
        "message-id",
        [*TURN, prompt(3), text("more", "a1"), result(3, stopReason="end_turn")],
    ),
    "a replayed message that goes on": (
        "message-id",
        [
            *INIT,
            load(),
            text("a", "a1"),
            result(7),
            prompt(3),
            text("more", "a1"),
            result(3, stopReason="end_turn"),
        ],
    ),
}


@pytest.mark.rule("frame-checker-finds-violations")
@pytest.mark.parametrize("name", BAD)
def test_a_bad_conversation_breaks_its_rule(name: str) -> None:
    rule, steps = BAD[name]
    assert set(check(steps, sdk=False)) == {rule}


@pytest.mark.parametrize("name", BAD)
def test_the_sdk_takes_no_rule_away(name: str) -> None:
    rule, steps = BAD[name]
    assert {rule} <= set(check(steps, sdk=True)) <= {rule, "shape"}


SHAPES: dict[str, list[Step]] = {
    "a snake_case key": [*PROMPTED, change(tool_call_id="c"), END],
    "an unknown key": [*PROMPTED, call(name="read", status="completed"), END],
    "a number as text": [*PROMPTED, update("agent_message_chunk", content={"type": "text"}), END],
    "an unknown kind": [*PROMPTED, call(kind="cook", status="failed"), END],
    "an unknown stop reason": [*PROMPTED, result(2, stopReason="done")],
    "modeId in current_mode_update": [*OPEN, update("current_mode_update", modeId="m")],
    "a result with an unknown key": [*PROMPTED, result(2, stopReason="end_turn", extra=1)],
    "a wrong initialize result": [INIT[0], result(0, protocolVersion="1")],
    "a salvaged option": [*PROMPTED, call(locations=[{"path": 5}], status="failed"), END],
    "a notice without title": [*OPEN, update("notice", severity="info", title="")],
    "a notice with more": [*OPEN, update("notice", severity="info", title="x", code=1)],
    "a request of the client": [*INIT, asked(3, "session/new", cwd=5), error(3)],
    "a result of the client": [
        *PROMPTED,
        agent_asks(0, "fs/read_text_file", path="/w/a"),
        ("client", {"id": 0, "result": {"text": "x"}}),
        END,
    ],
    "more params than session/update has": [
        *PROMPTED,
        (
            "agent",
            {
                "method": "session/update",
                "params": {
                    "sessionId": "s",
                    "update": {"sessionUpdate": "usage_update", "used": 1, "size": 2},
                    "time": 1,
                },
            },
        ),
        END,
    ],
}


@pytest.mark.parametrize("name", SHAPES)
def test_the_sdk_finds_a_wrong_shape(name: str) -> None:
    assert "shape" in check(SHAPES[name], sdk=True)


def test_a_wrong_request_on_purpose_is_no_violation() -> None:
    checker = FrameChecker(sdk=True)
    frame = b'{"jsonrpc":"2.0","id":0,"method":"session/new","params":{"cwd":5}}\n'
    checker.from_client(frame, checked=False)
    checker.from_agent(b'{"jsonrpc":"2.0","id":0,"error":{"code":-32602,"message":"x"}}\n')
    checker.finish()
    assert checker.violations == []


def test_after_a_kill_nothing_is_owed() -> None:
    unanswered = [*PROMPTED, call(), ("agent", b'{"jsonrpc":')]
    assert check(unanswered, sdk=False, complete=False) == []
    assert set(check(unanswered, sdk=False)) == {"json", "response"}


def test_bytes_may_come_in_any_pieces() -> None:
    checker = FrameChecker(sdk=False)
    for byte in b'{"jsonrpc":"2.0","id":1,"method":"_x"}\n':
        checker.from_client(bytes([byte]))
    for byte in b'{"jsonrpc":"2.0","id":1,"result":{}}\nx\n':
        checker.from_agent(bytes([byte]))
    checker.finish()
    assert [(found.number, found.rule) for found in checker.violations] == [(3, "json")]


@pytest.mark.rule("frame-checker-finds-violations")
def test_a_violation_names_frame_sender_and_rule() -> None:
    checker = FrameChecker(sdk=False)
    checker.from_agent(b"hello\n")
    with pytest.raises(FrameViolationError) as caught:
        checker.raise_violations()
    (found,) = caught.value.violations
    assert (found.number, found.sender, found.rule, found.frame) == (1, "agent", "json", "hello")
    assert str(caught.value).startswith("frame 1 of the agent breaks `json`: ")


def test_a_checker_may_raise_at_once() -> None:
    checker = FrameChecker(sdk=False, collect=False)
    with pytest.raises(FrameViolationError):
        checker.from_agent(b"hello\n")


def test_a_checker_without_violations_raises_nothing() -> None:
    FrameChecker(sdk=False).raise_violations()


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        ("1", 1, False),
        (None, None, True),
        ({"a": [1, {"b": "x"}]}, {"a": [1, {"b": "x"}]}, True),
        ({"a": [1, {"b": "x"}]}, {"a": [1, {"b": "y"}]}, False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ([1], [1, 2], False),
        ([], {}, False),
    ],
)
def test_json_values_are_compared_exactly(left: object, right: object, same: bool) -> None:
    assert (difference(left, right) is None) is same


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"id": None, "result": {}}, None),
        ({"a": {"b": [{"c": None}]}}, ".a.b[0].c"),
        ({"a": [1, None]}, ".a[1]"),
        ({"rawInput": {"a": None}, "rawOutput": None, "_meta": {"a": [None]}}, None),
        ({"content": [{"type": "diff", "oldText": None, "newText": "x"}]}, None),
        ({"content": [{"type": "diff", "oldText": "x", "newText": None}]}, ".content[0].newText"),
    ],
)
def test_a_null_is_found_where_none_may_be(value: object, path: str | None) -> None:
    assert find_null(value) == path

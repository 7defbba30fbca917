"""Cards on the wire: what each view becomes, live and on replay (generic-card-has-its-fields)."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import pytest

from acp_server.agents.presenters import REFERENCE_PRESENTERS, Presenter, Presenters
from acp_server.bridge.cards import ToolCards
from acp_server.bridge.frames import FrameBuilder
from acp_server.bridge.messages import usage_update_from
from acp_server.bridge.projector import LiveProjector
from acp_server.bridge.replay import Replay
from acp_server.bridge.update_gate import UpdateGate
from session_core import CardError, Session, SessionId, SurfaceIntent

TEXT = {"type": "text", "text": "out"}
STEP = {"turn": 1, "step": 1}


class Log:
    """A log in the making, with what a client is shown live and on replay."""

    def __init__(self, cwd: str | None = "/w", **options: Any) -> None:
        self.session = Session(SessionId("s"), clock=lambda: 1_700_000_000_123)
        self.cwd = cwd
        self.options = options
        self.live: list[dict[str, Any]] = []
        frames = FrameBuilder("s")
        outlet = UpdateGate(lambda frame: self.live.append(_update(frame)))
        self._gate = outlet
        self._project = LiveProjector(frames, self._cards(), outlet)
        self.add("turn/start", turn=1, trigger={"kind": "message", "source": {"kind": "user"}})
        self.add("step/start", **STEP)

    def _cards(self) -> ToolCards:
        return ToolCards(self.cwd, **self.options)

    def add(self, event_type: str, *intent: SurfaceIntent, **data: Any) -> int:
        event = self.session.append(event_type, data, *intent)
        self._project(event)
        self._gate.on_durable(event.seq + 1)
        return event.seq

    def card(self, view: Mapping[str, Any], call_id: str = "c") -> None:
        self.add("tool/card", **STEP, callId=call_id, view=view)

    def call(self, name: str = "t", arguments: str = "{}", call_id: str = "c") -> None:
        self.add("tool/call", **STEP, callId=call_id, name=name, arguments=arguments)

    def result(
        self, *content: Mapping[str, Any], error: bool = False, call_id: str = "c", **more: Any
    ) -> None:
        data = {**STEP, "callId": call_id, "content": list(content), "isError": error, **more}
        if error:
            data["error"] = {"name": "E", "code": "TOOL_FAILED"}
        starts = [
            e.seq
            for e in self.session.events
            if e.type == "tool/call" and e.data["callId"] == call_id
        ]
        self.add("tool/result", SurfaceIntent("append", starts), **data)

    def replayed(self) -> list[dict[str, Any]]:
        replay = Replay(FrameBuilder("s"), self._cards())
        return [_update(frame) for frame in replay.frames(self.session.events.records())]


def _update(frame: bytes) -> dict[str, Any]:
    update: dict[str, Any] = orjson.loads(frame)["params"]["update"]
    return update


def folded(updates: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the last value of each field of the one call."""
    card: dict[str, Any] = {}
    for update in updates:
        card.update({k: v for k, v in update.items() if k != "sessionUpdate"})
    return card


def content(*blocks: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"type": "content", "content": block} for block in blocks]


def text(value: str) -> dict[str, str]:
    return {"type": "text", "text": value}


def shown(
    view: Mapping[str, Any],
    result: Mapping[str, Any] | None = None,
    *blocks: Mapping[str, Any],
    cwd: str | None = "/w",
    error: bool = False,
    **options: Any,
) -> Log:
    """Return the log of one call with these views."""
    log = Log(cwd, **options)
    log.card(view)
    log.call()
    if result is not None:
        log.card(result)
    log.result(*blocks, error=error)
    return log


# -- generic cards --------------------------------------------------------------------------


@pytest.mark.rule("raw-input-is-object-or-absent")
@pytest.mark.parametrize(
    ("arguments", "raw"), [("", {}), ('{"a": null}', {"a": None}), ("{bad", None), ("[1]", None)]
)
def test_raw_input_is_the_parsed_object_or_absent(arguments: str, raw: Any) -> None:
    log = Log()
    log.call(arguments=arguments)
    assert log.live[0].get("rawInput", None if raw is None else "absent") == raw
    assert ("rawInput" in log.live[0]) == (raw is not None)


@pytest.mark.rule("foreign-calls-use-presenters")
def test_the_result_of_an_unknown_call_shows_its_raw_content() -> None:
    log = Log()
    log.add(
        "assistant/message",
        SurfaceIntent("append"),
        **STEP,
        content=[{"type": "tool-call", "id": "c", "name": "t", "arguments": "{}"}],
        provenance={"provider": "p", "model": "m"},
    )
    log.call()
    log.card({"type": "terminal-result", "output": "x"})
    log.result(TEXT)
    card = folded(log.live)
    assert card["content"] == content(TEXT)
    assert folded(log.replayed()) == card


IMAGE = {"type": "image", "data": "AA==", "mimeType": "image/png"}
AUDIO = {"type": "audio", "data": "AA==", "mimeType": "audio/wav"}
RESOURCE = {"type": "resource", "resource": {"uri": "x:y", "text": "t"}}
LINK = {"type": "resource_link", "uri": "x:y", "name": "n"}


@pytest.mark.rule("result-blocks-become-acp-blocks")
@pytest.mark.case("B83")
@pytest.mark.parametrize(
    ("block", "wire"),
    [
        *((block, block) for block in (TEXT, IMAGE, AUDIO, RESOURCE, LINK)),
        ({"type": "foo", "x": 1}, text("[foo content]")),
        ({**TEXT, "annotations": None, "other": 1}, TEXT),
    ],
)
def test_blocks_pass_and_what_acp_does_not_know_becomes_text(block: Any, wire: Any) -> None:
    log = shown({"type": "generic-call", "title": "t"}, None, block)
    assert log.live[-1]["content"] == content(wire)


@pytest.mark.rule("result-blocks-become-acp-blocks")
@pytest.mark.case("B83")
def test_an_empty_result_has_no_content_key() -> None:
    log = shown({"type": "generic-call", "title": "t"})
    assert log.live[-1] == {
        "sessionUpdate": "tool_call_update",
        "toolCallId": "c",
        "status": "completed",
    }


@pytest.mark.rule("generic-card-has-its-fields")
def test_raw_output_is_shown_beside_the_content() -> None:
    view = {"type": "generic-result", "rawOutput": {"hits": None}}
    log = shown({"type": "generic-call", "title": "t"}, view, TEXT)
    assert log.live[-1]["rawOutput"] == {"hits": None}
    assert log.live[-1]["content"] == content(TEXT)
    assert folded(log.replayed()) == folded(log.live)


@pytest.mark.rule("views-have-fixed-types")
def test_an_unknown_kind_in_a_log_is_other() -> None:
    log = shown({"type": "generic-call", "title": "t", "kind": "dance"})
    assert log.live[0]["kind"] == "other"


# -- terminal cards -------------------------------------------------------------------------

SHELL = {"type": "terminal-call", "title": "make", "description": "Build", "cwd": "sub"}
DONE = {"type": "terminal-result", "output": "ok\n\n", "exitCode": 0}


@pytest.mark.rule("terminal-card-needs-capability")
def test_a_terminal_card_has_its_description_then_its_terminal() -> None:
    log = shown(SHELL, DONE, TEXT, terminal_cards=True)
    assert log.live[0] == {
        "sessionUpdate": "tool_call",
        "toolCallId": "c",
        "status": "pending",
        "title": "make",
        "kind": "execute",
        "content": [*content(text("Build")), {"type": "terminal", "terminalId": "c"}],
        "_meta": {"terminal_info": {"terminal_id": "c", "cwd": "/w/sub"}},
    }
    assert "content" not in log.live[-1]


@pytest.mark.rule("terminal-card-needs-capability")
@pytest.mark.parametrize(
    ("end", "exit_meta"),
    [
        ({"signal": "SIGTERM", "exitCode": 3}, {"terminal_id": "c", "signal": "SIGTERM"}),
        ({"exitCode": 3}, {"terminal_id": "c", "exit_code": 3}),
        ({}, None),
    ],
)
def test_a_terminal_result_says_how_the_command_ended(end: Any, exit_meta: Any) -> None:
    log = shown(SHELL, {"type": "terminal-result", **end}, terminal_cards=True)
    meta = {"terminal_output": {"terminal_id": "c", "data": ""}}
    if exit_meta is not None:
        meta["terminal_exit"] = exit_meta
    assert log.live[-1]["_meta"] == meta


@pytest.mark.rule("terminal-card-needs-capability")
def test_without_terminal_cards_the_output_is_fenced() -> None:
    log = shown(SHELL, DONE, TEXT)
    assert log.live[0]["content"] == content(text("Build"))
    assert "_meta" not in log.live[0]
    assert log.live[-1]["content"] == content(text("```console\nok\n```"))


@pytest.mark.rule("terminal-card-needs-capability")
def test_without_a_description_there_is_no_content_key() -> None:
    assert "content" not in shown({"type": "terminal-call", "title": "make"}).live[0]


@pytest.mark.rule("terminal-card-needs-capability")
@pytest.mark.parametrize(
    ("tool_cwd", "cwd", "where"),
    [("sub", "/w", "/w/sub"), ("/x", "/w", "/x"), (None, "/w", "/w"), ("a/../b", "/w", "/w/b")],
)
def test_the_cwd_of_a_terminal_is_resolved(tool_cwd: Any, cwd: Any, where: str) -> None:
    view = {"type": "terminal-call", "title": "t"} | ({} if tool_cwd is None else {"cwd": tool_cwd})
    log = shown(view, cwd=cwd, terminal_cards=True)
    assert log.live[0]["_meta"]["terminal_info"]["cwd"] == where


@pytest.mark.rule("finished-terminal-replays-as-text")
@pytest.mark.parametrize("terminal_cards", [True, False])
@pytest.mark.parametrize("more", [{}, {"terminalId": "term-1"}])
def test_a_finished_command_is_replayed_as_text(terminal_cards: bool, more: Any) -> None:
    log = shown({**SHELL, **more}, DONE, TEXT, terminal_cards=terminal_cards)
    (card,) = log.replayed()
    assert card == {
        "sessionUpdate": "tool_call",
        "toolCallId": "c",
        "title": "make",
        "kind": "execute",
        "status": "completed",
        "content": content(text("```console\nok\n```")),
    }


@pytest.mark.rule("finished-terminal-replays-as-text")
def test_a_command_that_never_ended_is_replayed_without_its_terminal() -> None:
    log = Log(terminal_cards=True)
    log.card({**SHELL, "terminalId": "term-1"})
    log.add("step/end", **STEP)
    (card,) = log.replayed()
    assert (card["status"], card["content"]) == ("failed", content(text("Build")))
    assert "_meta" not in card


@pytest.mark.rule("client-terminal-keeps-its-id")
def test_a_terminal_of_the_client_is_shown_by_its_own_id_and_keeps_its_output() -> None:
    log = shown({**SHELL, "terminalId": "term-1"}, DONE, TEXT)
    assert log.live[0]["content"][1] == {"type": "terminal", "terminalId": "term-1"}
    assert "content" not in log.live[-1]


def test_a_command_that_fails_keeps_its_terminal() -> None:
    log = shown(SHELL, DONE, TEXT, error=True, terminal_cards=True)
    assert log.live[-1]["status"] == "failed"
    assert "content" not in log.live[-1]
    assert log.live[-1]["_meta"]["terminal_output"]["data"] == "ok\n\n"


# -- diff cards -----------------------------------------------------------------------------


def diff(path: str, old: str | None = None, new: str = "n") -> dict[str, Any]:
    return {"path": path, "oldText": old, "newText": new}


@pytest.mark.rule("diff-card-shows-old-and-new")
def test_a_diff_card_without_diffs_has_no_content() -> None:
    log = shown({"type": "diff-call", "title": "t", "diffs": []})
    assert log.live[0] == {
        "sessionUpdate": "tool_call",
        "toolCallId": "c",
        "title": "t",
        "kind": "edit",
        "status": "pending",
    }


@pytest.mark.rule("titles-show-relative-paths", "diff-card-shows-old-and-new")
@pytest.mark.parametrize(
    ("path", "cwd", "title"),
    [
        ("/w/a/b.txt", "/w", "Edit a/b.txt and a/b.txt"),
        ("/w/..cache/x", "/w", "Edit ..cache/x and ..cache/x"),
        ("/x/b.txt", "/w", "Edit /x/b.txt and /x/b.txt"),
        ("/w2/b", "/w", "Edit /w2/b and /w2/b"),
        ("/w", "/w", "Edit /w and /w"),
        ("/w/a", None, "Edit /w/a and /w/a"),
    ],
)
def test_titles_are_relative_and_places_absolute(path: str, cwd: Any, title: str) -> None:
    view = {
        "type": "diff-call",
        "title": f"Edit {path} and {path}",
        "diffs": [diff(path)],
        "locations": [{"path": path, "line": 0}],
    }
    result = {"type": "diff-result", "title": f"Edit {path} and {path}", "diffs": [diff(path, "o")]}
    log = shown(view, result, cwd=cwd)
    assert log.live[0]["title"] == title
    assert log.live[0]["locations"] == [{"path": path}]
    assert log.live[0]["content"] == [{"type": "diff", **diff(path)}]
    assert log.live[-1]["content"] == [{"type": "diff", **diff(path, "o")}]
    assert folded(log.replayed()) == folded(log.live)
    assert folded(log.live)["title"] == title


@pytest.mark.rule("diff-card-shows-old-and-new")
def test_a_failing_edit_shows_raw_text() -> None:
    view = {"type": "diff-call", "title": "t", "diffs": [diff("/w/a")]}
    log = shown(view, None, text("no such file"), error=True)
    assert log.live[-1]["status"] == "failed"
    assert log.live[-1]["content"] == content(text("no such file"))


@pytest.mark.rule("diff-card-shows-old-and-new")
def test_a_succeeding_edit_keeps_its_diff() -> None:
    view = {"type": "diff-call", "title": "t", "diffs": [diff("/w/a")]}
    assert "content" not in shown(view, None, TEXT).live[-1]


# -- presenters -----------------------------------------------------------------------------


def presented(name: str, arguments: str, *blocks: Mapping[str, Any], **options: Any) -> Log:
    log = Log(**options)
    log.call(name, arguments)
    log.result(*blocks)
    return log


@pytest.mark.rule("foreign-calls-use-presenters")
@pytest.mark.parametrize(
    ("name", "arguments", "card"),
    [
        (
            "read",
            '{"path": "/w/a"}',
            {"title": "Read a", "kind": "read", "locations": [{"path": "/w/a", "line": 1}]},
        ),
        ("write", '{"path": "/w/a", "content": "x"}', {"title": "Write a", "kind": "edit"}),
        (
            "edit",
            '{"file_path": "/w/a", "old_string": "o", "new_string": "n"}',
            {"title": "Edit a", "content": [{"type": "diff", **diff("/w/a", "o")}]},
        ),
        ("bash", '{"command": "ls"}', {"kind": "execute", "title": "ls"}),
        (
            "todo_write",
            '{"todos": []}',
            {"title": "Update todo list", "rawInput": {"todos": []}},
        ),
    ],
)
def test_calls_without_cards_are_shown_by_the_presenter_of_their_tool(
    name: str, arguments: str, card: dict[str, Any]
) -> None:
    log = presented(name, arguments, TEXT)
    seen = folded(log.live)
    assert {key: seen.get(key) for key in card} == card
    assert folded(log.replayed()) == seen


def test_the_result_of_a_presented_command_is_its_output() -> None:
    log = presented("bash", '{"command": "ls"}', text("a\n"))
    assert folded(log.live)["content"] == content(text("```console\na\n```"))


def _raising(_given: Any) -> Any:
    raise ZeroDivisionError


@pytest.mark.rule("foreign-calls-use-presenters")
def test_a_raising_presenter_gives_the_generic_card_and_the_raw_content() -> None:
    presenters = Presenters({"t": Presenter(_raising), "u": Presenter(_generic, _raising)})
    assert folded(presented("t", '{"a": 1}', TEXT, presenters=presenters).live) == {
        "toolCallId": "c",
        "title": "t",
        "kind": "other",
        "rawInput": {"a": 1},
        "status": "completed",
        "content": content(TEXT),
    }
    assert folded(presented("u", "{}", TEXT, presenters=presenters).live)["content"] == content(
        TEXT
    )


def _generic(_arguments: Any) -> Any:
    return {"type": "generic-call", "title": "mine"}


@pytest.mark.rule("foreign-calls-use-presenters")
def test_a_registered_presenter_goes_before_the_generic_card() -> None:
    presenters = REFERENCE_PRESENTERS.register("mine", Presenter(_generic))
    assert presented("mine", "{}", presenters=presenters).live[0]["title"] == "mine"


@pytest.mark.rule("views-have-fixed-types")
def test_a_view_of_no_kind_is_a_mistake_of_the_presenter() -> None:
    presenters = Presenters({"t": Presenter(lambda _arguments: {"type": "hologram"})})
    with pytest.raises(CardError):
        presented("t", "{}", presenters=presenters)


@pytest.mark.rule("views-have-fixed-types")
@pytest.mark.parametrize("view", [{"type": "hologram"}, {"type": "generic-call"}])
def test_a_view_in_a_log_that_cannot_be_shown_gives_the_generic_card(view: Any) -> None:
    log = shown(view, None, TEXT)
    assert [update["status"] for update in log.live] == ["pending", "in_progress", "completed"]
    assert log.live[0]["title"] == "tool"
    assert folded(log.replayed()) == folded(log.live)


# -- what is left open ----------------------------------------------------------------------


@pytest.mark.case("B32")
def test_a_call_without_a_result_fails_with_its_step() -> None:
    log = Log()
    log.card({"type": "generic-call", "title": "t"})
    log.call()
    log.card({"type": "generic-call", "title": "u"}, call_id="d")
    log.add("step/end", **STEP)
    assert [(u["toolCallId"], u["status"]) for u in log.live[-2:]] == [
        ("c", "failed"),
        ("d", "failed"),
    ]
    assert [(u["toolCallId"], u["status"]) for u in log.replayed()] == [
        ("c", "failed"),
        ("d", "failed"),
    ]


# -- usage ----------------------------------------------------------------------------------


@pytest.mark.rule("usage-is-last-known-state")
def test_a_usage_report_is_shown_at_once_and_not_replayed() -> None:
    log = Log()
    log.add("usage/report", used=7, size=100)
    assert log.live == [{"sessionUpdate": "usage_update", "used": 7, "size": 100}]
    assert log.replayed() == []


@pytest.mark.rule("usage-is-last-known-state")
def test_the_last_known_usage_is_found_in_the_log() -> None:
    log = Log()
    assert usage_update_from(log.session.events, 1000) is None
    log.add("usage/report", used=7, size=100)
    log.add(
        "assistant/message",
        SurfaceIntent("append"),
        **STEP,
        content=[TEXT],
        provenance={"provider": "p", "model": "m"},
        usage={"inputTokens": 10, "outputTokens": 5, "cacheReadTokens": 20, "reasoningTokens": 3},
    )
    reported = {"sessionUpdate": "usage_update", "used": 7, "size": 100}
    counted = {"sessionUpdate": "usage_update", "used": 35, "size": 1000}
    assert usage_update_from(log.session.events) == reported
    assert usage_update_from(log.session.events, 1000) == counted
    log.add("usage/report", used=9, size=100)
    assert usage_update_from(log.session.events, 1000) == {**reported, "used": 9}


@pytest.mark.rule("title-update-has-event-time")
def test_a_title_carries_the_iso_time_of_its_event() -> None:
    log = Log()
    log.add("session/title", title="T", messageSeqs=[], source={"kind": "agent"})
    update = {
        "sessionUpdate": "session_info_update",
        "title": "T",
        "updatedAt": "2023-11-14T22:13:20.123Z",
    }
    assert log.live == log.replayed() == [update]


@pytest.mark.rule("plan-shows-whole-list")
@pytest.mark.case("B82")
def test_a_plan_is_the_whole_list_in_order_with_medium_priority() -> None:
    log = Log()
    todos = [
        {"content": "", "status": "completed"},
        {"content": "b", "status": "in_progress"},
        {"content": "a", "status": "in_progress"},
    ]
    log.add("todo/write", todos=todos)
    log.add("todo/write", todos=[])
    plans = [
        {
            "sessionUpdate": "plan",
            "entries": [{**todo, "priority": "medium"} for todo in todos],
        },
        {"sessionUpdate": "plan", "entries": []},
    ]
    assert log.live == log.replayed() == plans


# -- logs that others wrote -----------------------------------------------------------------


@pytest.mark.rule("results-are-bounded")
@pytest.mark.case("B77")
def test_cards_of_a_foreign_log_are_bounded_like_our_own() -> None:
    huge = "x" * 3_000_000
    log = Log()
    for number, (name, arguments) in enumerate(
        [
            ("unknown", {"content": huge}),
            ("write", {"path": "/w/a", "content": huge}),
            ("edit", {"path": "/w/a", "old_string": huge, "new_string": "y"}),
            ("bash", {"command": "ls"}),
        ]
    ):
        log.call(name, orjson.dumps(arguments).decode(), call_id=f"c{number}")
        log.result(text(huge), call_id=f"c{number}")
    log.card({"type": "terminal-call", "title": "t"}, call_id="t")
    log.call(call_id="t")
    log.card({"type": "terminal-result", "output": huge}, call_id="t")
    log.result(call_id="t")
    for updates in (log.live, log.replayed()):
        assert max(len(orjson.dumps(update)) for update in updates) < 1 << 18

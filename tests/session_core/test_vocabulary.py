from typing import Any

import pytest

from session_core import (
    APPEND,
    CORE_VOCABULARY,
    EventLogBuilder,
    LoadedFieldError,
    PayloadError,
    Problem,
    Session,
    SurfaceError,
    VocabularyError,
)

USER = {"kind": "user"}
STEP = {"turn": 1, "step": 1}
FAILURE = {"message": "m", "code": "c", "status": 500}
BLOCKS = [
    {"type": "text", "text": "t", "annotations": {"later": 1}},
    {"type": "image", "data": "", "mimeType": "image/png"},
    {"type": "audio", "data": "", "mimeType": "audio/wav"},
    {"type": "resource_link", "uri": "file:///a", "name": "a"},
    {"type": "resource", "resource": {"uri": "file:///a", "text": "t"}},
    {"type": "tool-result", "toolCallId": "c", "content": [{"type": "text", "text": "t"}]},
    {"type": "of-a-plugin", "anything": [1]},
]

LEGAL: list[tuple[str, dict[str, Any]]] = [
    ("turn/start", {"turn": 1, "trigger": {"kind": "message", "source": USER}}),
    ("turn/start", {"turn": 1, "trigger": {"kind": "of-a-plugin", "x": 1}}),
    ("turn/end", {"turn": 1, "reason": {"kind": "error", "step": 0, "failure": FAILURE}}),
    ("turn/end", {"turn": 1, "reason": {"kind": "error", "step": 1, "message": "m", "code": "c"}}),
    ("turn/end", {"turn": 1, "reason": {"kind": "refusal"}}),
    ("turn/end", {"turn": 1, "reason": {"kind": "max_turn_requests"}}),
    ("turn/end", {"turn": 1, "reason": {"kind": "of-a-plugin"}}),
    ("prompt/blocked", {"content": BLOCKS, "source": {"kind": "goal"}, "reason": "r"}),
    (
        "assistant/chunk",
        {**STEP, "chunk": {"type": "usage", "usage": {"inputTokens": 1, "outputTokens": 2}}},
    ),
    ("assistant/chunk", {**STEP, "chunk": {"type": "finish", "reason": {"kind": "refusal"}}}),
    (
        "assistant/chunk",
        {**STEP, "chunk": {"type": "finish", "reason": {"kind": "error", "failure": FAILURE}}},
    ),
    ("assistant/chunk", {**STEP, "chunk": {"type": "of-a-plugin"}}),
    ("tool/card", {**STEP, "callId": "c", "view": {"type": "generic-call", "title": "t"}}),
    ("compact/start", {"turn": 1}),
    ("compact/end", {"turn": 1, "error": "x"}),
    ("hook/invoked", {"turn": 1, "point": "Stop", "dialect": "claude", "handlerId": "h"}),
    (
        "hook/result",
        {"turn": 1, "point": "Stop", "handlerId": "h", "decision": "pass", "durationMs": 1.5},
    ),
    ("llm/retry", {**STEP, "retry": 1, "maxRetries": 2, "delayMs": 3, "failure": FAILURE}),
    ("approval/asked", {"id": "a", "toolName": "t", "callId": "c"}),
    ("approval/decided", {"id": "a", "outcome": "allowed-once"}),
    ("approval/policy", {"policy": "p"}),
    ("sandbox/mode", {"mode": "m"}),
    ("plan/mode", {"active": True}),
    (
        "tool/code-dispatch",
        {
            "parentCallId": "p",
            "subCallId": "s",
            "name": "n",
            "arguments": {"x": 1},
            "isError": False,
            "resultSummary": "r",
        },
    ),
]

WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("turn/start", {"turn": 0, "trigger": {"kind": "x"}}, "turn"),
    ("turn/start", {"turn": 1, "trigger": {}}, "trigger.kind"),
    ("turn/start", {"turn": 1, "trigger": {"kind": "message"}}, "trigger.source"),
    ("turn/end", {"turn": 1, "reason": {"kind": "error", "step": 1}}, "reason.message"),
    (
        "turn/end",
        {"turn": 1, "reason": {"kind": "error", "step": 1, "message": "m", "failure": FAILURE}},
        "reason.message",
    ),
    (
        "turn/end",
        {"turn": 1, "reason": {"kind": "error", "step": 1, "code": "c", "failure": FAILURE}},
        "reason.code",
    ),
    ("turn/end", {"turn": 1, "reason": {"kind": "rejected"}}, "reason.reason"),
    ("turn/end", {"turn": 1, "reason": {"kind": "aborted", "why": 1}}, "reason.why"),
    ("step/start", {"turn": 1, "step": 1.0}, "step"),
    (
        "prompt/blocked",
        {"content": [{"type": "text"}], "source": USER, "reason": ""},
        "content.0.text",
    ),
    (
        "prompt/blocked",
        {"content": [], "source": {"kind": "plugin"}, "reason": ""},
        "source.plugin",
    ),
    (
        "assistant/chunk",
        {**STEP, "chunk": {"type": "usage", "usage": {"inputTokens": 1.5, "outputTokens": 1}}},
        "chunk.usage.inputTokens",
    ),
    (
        "assistant/chunk",
        {**STEP, "chunk": {"type": "finish", "reason": {"kind": "error"}}},
        "chunk.reason.failure",
    ),
    ("assistant/chunk", {**STEP, "chunk": {"type": "text-delta", "index": 0}}, "chunk.text"),
    ("tool/call", {**STEP, "callId": "c", "name": "n", "arguments": {}}, "arguments"),
    ("todo/write", {"todos": [{"content": "x", "status": "paused"}]}, "todos.0.status"),
    ("todo/write", {"todos": {}}, "todos"),
    ("todo/write", {"todos": [{"content": "x", "status": "pending", "id": 1}]}, "todos.0.id"),
    ("hook/invoked", {"turn": 1, "point": "Now", "dialect": "d", "handlerId": "h"}, "point"),
    ("plan/mode", {"active": 1}, "active"),
    ("approval/grant", {"toolName": "t", "key": "k", "effect": "maybe"}, "effect"),
    ("step/end", {}, "turn"),
]


@pytest.mark.rule(
    "event-types-have-fixed-payloads", "further-event-types-are-log-only", "kinds-are-open-sums"
)
@pytest.mark.parametrize(("event_type", "data"), LEGAL)
def test_legal_payloads_pass(session: Session, event_type: str, data: dict[str, Any]) -> None:
    assert session.append(event_type, data).data == data


@pytest.mark.rule(
    "payload-types-have-fixed-shapes", "payloads-are-checked-at-append", "token-counts-are-disjoint"
)
@pytest.mark.parametrize(("event_type", "data", "field"), WRONG)
def test_wrong_payloads_are_refused_by_field(
    session: Session, event_type: str, data: dict[str, Any], field: str
) -> None:
    with pytest.raises(PayloadError) as info:
        session.append(event_type, data)
    assert (info.value.event_type, info.value.field) == (event_type, field)
    assert session.seq == 0


@pytest.mark.rule("payloads-are-checked-at-append", "open-prompts-end-cancelled")
def test_a_string_envelope_belongs_to_context_messages_only(session: Session) -> None:
    data = {"content": [], "source": USER, "envelope": "raw"}
    for event_type, more in (("user/message", {}), ("steering/message", {"turn": 1})):
        with pytest.raises(PayloadError) as info:
            session.append(event_type, {**data, **more}, APPEND)
        assert info.value.field == "envelope"
    session.append("context/message", data, APPEND)
    with pytest.raises(PayloadError):
        session.append("context/message", {**data, "envelope": "other"}, APPEND)


@pytest.mark.rule("payloads-are-checked-at-append")
def test_a_known_payload_is_an_object(session: Session) -> None:
    wrong: Any = []
    with pytest.raises(PayloadError):
        session.append("todo/write", wrong)


def has_count(value: Any) -> Problem | None:
    return None if type(value.get("count")) is int else Problem("count", "an integer")


def counted(count: Any) -> list[tuple[str, dict[str, Any]]]:
    return [
        ("me/count", {"count": count}),
        ("turn/start", {"turn": 1, "trigger": {"kind": "me", "count": count}}),
        ("turn/end", {"turn": 1, "reason": {"kind": "me-done", "count": count}}),
    ]


@pytest.mark.rule("kinds-are-open-sums", "authors-register-log-only-types")
def test_a_plugin_adds_its_own_words_without_touching_the_core() -> None:
    vocabulary = (
        CORE_VOCABULARY.register("me/count", has_count, load_check=has_count, out_of_band=True)
        .register("me/free")
        .register_trigger("me", has_count)
        .register_end_reason("me-done", has_count)
    )
    session = Session("s", vocabulary=vocabulary)
    assert session.vocabulary is vocabulary
    for good, bad in ((1, "1"), (2, None)):
        for event_type, data in counted(bad):
            with pytest.raises(PayloadError) as info:
                session.append(event_type, data)
            assert info.value.field.endswith("count")
        for event_type, data in counted(good):
            session.append(event_type, data)
    session.append("me/free", {"anything": None})
    with pytest.raises(SurfaceError):
        session.append("me/free", {}, APPEND)
    with pytest.raises(LoadedFieldError):
        EventLogBuilder(vocabulary).add({"type": "me/count", "seq": 0, "time": 0, "data": {}})
    assert vocabulary.is_out_of_band("me/count")
    assert not vocabulary.is_out_of_band("me/free")
    Session("plain").append("me/count", {"count": "unknown here, so free"})
    assert "me/count" not in CORE_VOCABULARY.append_checks


@pytest.mark.rule("authors-register-log-only-types")
@pytest.mark.parametrize("event_type", ["user/message", "turn/start", "mode/set", "tool/card"])
def test_words_that_are_taken_cannot_be_registered(event_type: str) -> None:
    with pytest.raises(VocabularyError):
        CORE_VOCABULARY.register(event_type)


def test_kinds_that_are_taken_cannot_be_registered() -> None:
    with pytest.raises(VocabularyError):
        CORE_VOCABULARY.register_trigger("message")
    with pytest.raises(VocabularyError):
        CORE_VOCABULARY.register_end_reason("completed")


def test_what_the_core_allows_out_of_band() -> None:
    eligible = {"session/title", "permission/preset", "config/set"}
    assert {
        t for t in CORE_VOCABULARY.append_checks if CORE_VOCABULARY.is_out_of_band(t)
    } == eligible

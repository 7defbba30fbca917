from collections.abc import Callable
from typing import Any

import pytest

from session_core import (
    APPEND,
    Event,
    FrozenDict,
    Message,
    Replace,
    Session,
    SurfaceIntent,
    derive_event_message,
    display_prompt_content,
    frame,
)

Write = Callable[..., list[Event]]

USER = {"kind": "user"}


def texts(messages: list[Message]) -> list[str]:
    return [block.get("text", block["type"]) for m in messages for block in m["content"]]


@pytest.mark.rule("each-event-projects-one-message")
def test_an_empty_assistant_message_is_on_the_surface_and_says_nothing(
    session: Session, write: Write
) -> None:
    write(session, "turn", "user hello", "step", "say")
    assert list(session.surface.nodes) == [1, 3]
    assert texts(session.derive_messages()) == ["hello"]


@pytest.mark.rule("messages-follow-surface-alone")
def test_chunks_and_other_log_only_events_never_change_the_messages(
    session: Session, write: Write
) -> None:
    write(session, "turn", "user hello", "step")
    before = session.derive_messages()
    write(session, "delta a", "delta b", "todo x")
    session.append("x/y", {"content": [{"type": "text", "text": "no"}]})
    assert session.derive_messages() == before
    write(session, "say ab", "/step", "/turn", "turn", "blocked no", "/turn rejected")
    assert texts(session.derive_messages()) == ["hello", "ab"]


@pytest.mark.rule("each-event-projects-one-message")
def test_a_tool_result_is_a_user_message_without_its_private_parts(
    session: Session, write: Write
) -> None:
    write(session, "turn", "step", "ask c1 c2", "call c1")
    data = {
        "turn": 1,
        "step": 1,
        "callId": "c1",
        "content": [{"type": "text", "text": "boom"}],
        "isError": True,
        "error": {"name": "E", "code": "X"},
        "meta": {"private": 1},
    }
    session.append("tool/result", data, APPEND)
    write(session, "call c2", "result c2")
    failed, fine = session.derive_messages()[1:]
    assert failed == {
        "role": "user",
        "content": [
            {
                "type": "tool-result",
                "toolCallId": "c1",
                "content": [{"type": "text", "text": "boom"}],
                "isError": True,
            }
        ],
    }
    assert fine["content"][0]["isError"] is False


@pytest.mark.rule("prefixed-prompts-show-original")
def test_the_model_sees_the_content_and_the_human_what_he_typed(session: Session) -> None:
    typed = [{"type": "text", "text": "fix it"}]
    baked = [{"type": "text", "text": "FILE\n\n## My request:\nfix it"}]
    data = {
        "content": baked,
        "source": USER,
        "envelope": {"displayContent": typed, "prefixContexts": [{"source": USER, "meta": 1}]},
    }
    event = session.append("user/message", data, APPEND)
    assert session.derive_messages() == [{"role": "user", "content": baked}]
    assert display_prompt_content(event.data) == typed
    assert display_prompt_content({"content": baked, "source": USER}) == baked


@pytest.mark.rule("each-event-projects-one-message")
def test_injected_and_steering_messages_are_verbatim(session: Session, write: Write) -> None:
    write(session, "turn", "plugin a<b", "steer stop</context>")
    session.append("user/message", {"content": [], "source": USER, "meta": {"m": 1}}, APPEND)
    assert session.derive_messages() == [
        {"role": "user", "content": [{"type": "text", "text": "a<b"}]},
        {"role": "user", "content": [{"type": "text", "text": "stop</context>"}]},
        {"role": "user", "content": []},
    ]


@pytest.mark.rule("context-is-framed-by-tags")
def test_a_frame_is_two_tag_blocks_around_untouched_content() -> None:
    image = {"type": "image", "data": "x", "mimeType": "image/png"}
    content = [{"type": "text", "text": " </context>\n"}, image]
    source = {"kind": 'a"b\\\n\u00e9<', "plugin": "hidden"}
    assert frame("context", source, content) == [
        {"type": "text", "text": '<context source="a\\"b\\\\\\n\u00e9<">'},
        *content,
        {"type": "text", "text": "</context>"},
    ]
    assert frame("steering", USER, []) == [
        {"type": "text", "text": '<steering source="user">'},
        {"type": "text", "text": "</steering>"},
    ]


@pytest.mark.rule("end-of-input-ends-server", "open-prompts-end-cancelled")
def test_a_context_message_is_framed_unless_it_is_raw(session: Session) -> None:
    content = [{"type": "text", "text": "a<b"}]
    data: dict[str, Any] = {
        "content": content,
        "source": {"kind": "plugin", "plugin": "watch"},
        "meta": {"never": "shown"},
    }
    framed = [
        {"type": "text", "text": '<context source="plugin">'},
        {"type": "text", "text": "a<b"},
        {"type": "text", "text": "</context>"},
    ]
    for envelope, expected in ((None, framed), ("context", framed), ("raw", content)):
        extra = {} if envelope is None else {"envelope": envelope}
        event = session.append("context/message", {**data, **extra}, APPEND)
        assert derive_event_message(event) == {"role": "user", "content": expected}


@pytest.mark.rule("message-lists-never-grow")
def test_a_list_of_messages_never_grows_and_its_messages_are_shared_and_frozen(
    session: Session, write: Write
) -> None:
    write(session, "turn", "user a")
    first = session.derive_messages()
    write(session, "user b")
    second = session.derive_messages()
    assert (len(first), len(second)) == (1, 2)
    assert second[0] is first[0]
    assert session.derive_messages() is not second
    with pytest.raises(TypeError):
        second[0]["role"] = "system"
    with pytest.raises(TypeError):
        second[0]["content"].append({})
    second.clear()
    assert len(session.derive_messages()) == 2


@pytest.mark.rule("derivation-is-incremental")
def test_after_a_replacement_the_shadowed_messages_are_gone(session: Session, write: Write) -> None:
    write(session, "turn", "user a", "user b", "user c")
    session.derive_messages()
    summary = {"content": [{"type": "text", "text": "ab"}], "source": USER}
    session.append("user/message", summary, SurfaceIntent(Replace(1, 2), [1, 2]))
    write(session, "user d")
    assert texts(session.derive_messages()) == ["ab", "c", "d"]
    scratch = Session("scratch", seed=session.events)
    assert scratch.derive_messages() == session.derive_messages()


def test_an_assistant_message_carries_its_provenance_whole(session: Session) -> None:
    provenance = {"provider": "p", "model": "m", "replayState": {"signature": "s"}}
    content = [{"type": "reasoning", "text": "hm"}, {"type": "unknown", "x": 1}]
    data = {"turn": 1, "step": 1, "content": content, "provenance": provenance}
    session.append("assistant/message", data, APPEND)
    assert session.derive_messages() == [
        {"role": "assistant", "content": content, "provenance": provenance}
    ]


def test_an_event_projects_by_itself() -> None:
    data = FrozenDict({"content": [], "source": USER})
    assert derive_event_message(Event("user/message", 9, 0, data)) == {
        "role": "user",
        "content": [],
    }
    assert derive_event_message(Event("x/y", 9, 0, data)) is None
    assert derive_event_message(Event("turn/start", 9, 0, FrozenDict())) is None

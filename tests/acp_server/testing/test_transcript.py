from typing import Any

import pytest

from acp_server.testing import (
    Card,
    Message,
    Plan,
    Title,
    Transcript,
    TranscriptFold,
    fold_transcript,
)

ENTRIES = [{"content": "x", "priority": "medium", "status": "pending"}]


def text(words: str, message_id: str | None = None, kind: str = "agent_message") -> dict[str, Any]:
    tag: dict[str, Any] = {} if message_id is None else {"messageId": message_id}
    content = {"type": "text", "text": words}
    return {"sessionUpdate": f"{kind}_chunk", "content": content, **tag}


def thought(words: str, message_id: str | None = None) -> dict[str, Any]:
    return text(words, message_id, "agent_thought")


def call(variant: str = "tool_call", **members: object) -> dict[str, Any]:
    return {"sessionUpdate": variant, "toolCallId": "c", **members}


def change(**members: object) -> dict[str, Any]:
    return call("tool_call_update", **members)


def plan(*entries: object) -> dict[str, Any]:
    return {"sessionUpdate": "plan", "entries": list(entries)}


def title(words: str) -> dict[str, Any]:
    return {"sessionUpdate": "session_info_update", "title": words}


def card(**members: Any) -> Card:
    fields: dict[str, Any] = {
        "title": "T",
        "kind": "other",
        "status": "pending",
        "locations": (),
        "raw_input": None,
        "content": (),
    }
    return Card(call_id="c", **{**fields, **members})


LIVE = [
    thought("so ", "t1"),
    text("he", "a1"),
    thought("what", "t1"),
    text("llo", "a1"),
    plan(*ENTRIES),
    call(title="T", kind="read", status="pending", rawInput={"a": 1}),
    change(status="in_progress", locations=[{"path": "/a"}]),
    plan(),
    change(status="completed", content=[{"type": "content"}]),
    title("named"),
    text("bye", "a9"),
]
REPLAYED = [
    text("hi", "u0", "user_message"),
    thought("so what", "t1"),
    text("hel", "a1"),
    text("lo", "a1"),
    plan(*ENTRIES),
    call(
        title="T",
        kind="read",
        status="completed",
        rawInput={"a": 1},
        locations=[{"path": "/a"}],
        content=[{"type": "content"}],
    ),
    plan(),
    title("named"),
    text("bye", "a9"),
]


@pytest.mark.rule("updates-are-what-was-stored")
def test_live_and_replayed_updates_fold_to_one_transcript() -> None:
    assert fold_transcript(LIVE) == fold_transcript(REPLAYED)
    assert fold_transcript(LIVE).difference(fold_transcript(REPLAYED)) == ""


def test_entries_stand_in_the_order_of_their_first_appearance() -> None:
    assert fold_transcript(REPLAYED) == Transcript(
        (
            Message("reasoning", "t1", "so what"),
            Message("text", "a1", "hello"),
            Plan(tuple(ENTRIES)),
            card(
                kind="read",
                status="completed",
                locations=({"path": "/a"},),
                raw_input={"a": 1},
                content=({"type": "content"},),
            ),
            Plan(()),
            Title("named"),
            Message("text", "a9", "bye"),
        )
    )


@pytest.mark.parametrize("position", range(len(LIVE)))
def test_every_update_of_the_live_turn_counts(position: int) -> None:
    rest = LIVE[:position] + LIVE[position + 1 :]
    assert fold_transcript(rest) != fold_transcript(LIVE)


@pytest.mark.parametrize(
    "update",
    [
        text("hi", "u0", "user_message"),
        {"sessionUpdate": "current_mode_update", "currentModeId": "m"},
        {"sessionUpdate": "config_option_update", "configOptions": []},
        {"sessionUpdate": "available_commands_update", "availableCommands": []},
        {"sessionUpdate": "usage_update", "used": 1, "size": 2},
        {"sessionUpdate": "notice", "severity": "info", "title": "N"},
        {"sessionUpdate": "session_info_update", "updatedAt": "2025-01-01T00:00:00Z"},
        {"sessionUpdate": "of_the_future"},
        text("\n\n[Interrupted: the server stopped before this turn ended]\n\n", "m7"),
    ],
)
def test_what_is_not_compared_leaves_no_entry(update: dict[str, Any]) -> None:
    assert fold_transcript([*LIVE, update]) == fold_transcript(LIVE)


def test_the_user_is_kept_aside() -> None:
    transcript = fold_transcript(REPLAYED)
    assert transcript.user == ({"type": "text", "text": "hi"},)
    assert transcript.user_text == "hi"


def test_a_transcript_can_be_read_by_kind() -> None:
    transcript = fold_transcript(LIVE)
    assert transcript.text == "hellobye"
    assert transcript.reasoning == "so what"
    assert [entry.status for entry in transcript.cards] == ["completed"]
    assert [entry.entries for entry in transcript.plans] == [tuple(ENTRIES), ()]
    assert transcript.titles == ("named",)


def test_chunks_without_id_join_until_something_comes_between() -> None:
    updates = [text("a"), text("b"), thought("c"), text("d"), plan(), text("e"), text("f")]
    assert [(entry.kind, entry.text) for entry in fold_transcript(updates).messages] == [
        ("text", "ab"),
        ("reasoning", "c"),
        ("text", "d"),
        ("text", "ef"),
    ]


def test_a_user_chunk_ends_a_message_without_id() -> None:
    updates = [text("a"), text("hi", kind="user_message"), text("b")]
    assert [entry.text for entry in fold_transcript(updates).messages] == ["a", "b"]


def test_blocks_that_are_no_text_are_kept() -> None:
    image = {"type": "image", "data": "", "mimeType": "image/png"}
    update = {"sessionUpdate": "agent_message_chunk", "content": image, "messageId": "a1"}
    assert fold_transcript([text("a", "a1"), update]).entries == (
        Message("text", "a1", "a", (image,)),
    )


def test_a_change_replaces_lists_and_keeps_the_rest() -> None:
    updates = [
        call(title="T", content=[{"type": "diff"}], locations=[{"path": "/a"}]),
        change(content=[], status="failed"),
        change(title="U"),
    ]
    assert fold_transcript(updates).cards == (
        card(title="U", status="failed", locations=({"path": "/a"},)),
    )


def test_a_second_announcement_begins_the_card_anew_in_its_place() -> None:
    updates = [
        call(title="T", status="completed", content=[{"type": "diff"}]),
        text("a", "a1"),
        call(title="T"),
    ]
    assert fold_transcript(updates).entries == (card(), Message("text", "a1", "a"))


def test_a_fold_can_be_looked_at_on_the_way() -> None:
    fold = TranscriptFold()
    fold.add(text("a", "a1"))
    early = fold.transcript()
    fold.add(text("b", "a1"))
    assert (early.text, fold.transcript().text) == ("a", "ab")


def test_a_difference_shows_what_changed() -> None:
    shown = fold_transcript([text("a", "a1")]).difference(fold_transcript([text("b", "a1")]))
    assert '- "text": "a",' in shown
    assert '+ "text": "b",' in shown

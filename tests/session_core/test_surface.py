from collections.abc import Callable
from typing import Any

import pytest

from session_core import (
    APPEND,
    Event,
    FrozenDict,
    NotJsonError,
    Replace,
    Replacement,
    SeedError,
    Session,
    SurfaceError,
    SurfaceIntent,
    fold_surface,
    is_surface_eligible_type,
    is_surface_event,
)

Write = Callable[..., list[Event]]

USER = {"kind": "user"}
PROMPT = {"content": [{"type": "text", "text": "summary"}], "source": USER}
PROVENANCE = {"provider": "p", "model": "m"}


def replace(session: Session, start: Any, end: Any, sources: Any) -> Event:
    return session.append("user/message", PROMPT, SurfaceIntent(Replace(start, end), sources))


@pytest.fixture
def talk(session: Session, write: Write) -> Session:
    """Surface 1, 4, 6: a prompt, a call asked for, its result."""
    write(session, "turn", "user hello", "step", "delta a", "ask c1", "call c1", "result c1")
    return session


@pytest.mark.rule("placement-follows-event-type")
def test_a_surface_type_says_how_it_joins(session: Session) -> None:
    with pytest.raises(SurfaceError, match="needs a surfaceOp"):
        session.append("user/message", PROMPT)
    with pytest.raises(SurfaceError, match="needs a surfaceOp"):
        session.append("user/message", PROMPT, SurfaceIntent(None))  # type: ignore[arg-type]
    with pytest.raises(SurfaceError):
        fold_surface([Event("user/message", 0, 0, FrozenDict(PROMPT))])
    assert session.seq == 0


@pytest.mark.rule("placement-follows-event-type")
def test_a_log_only_type_has_no_place_on_the_surface(session: Session) -> None:
    data = {"turn": 1, "trigger": {"kind": "message", "source": USER}}
    for intent in (APPEND, SurfaceIntent(None, [])):  # type: ignore[arg-type]
        with pytest.raises(SurfaceError, match="log-only"):
            session.append("turn/start", data, intent)
    assert session.seq == 0


@pytest.mark.rule("surface-op-has-two-forms", "booleans-are-not-integers")
@pytest.mark.parametrize(
    "op",
    [
        {"op": "replace", "start": 1, "end": 1, "why": "x"},
        {"op": "replace", "start": 1},
        {"op": "replace", "start": "1", "end": 1},
        {"op": "replace", "start": True, "end": 1},
        {"op": "replace", "start": 1.0, "end": 1},
        {"op": "replace", "start": -1, "end": 1},
        {"op": "insert", "start": 1, "end": 1},
        Replace(True, 1),
        "prepend",
        ["append"],
        7,
    ],
)
def test_a_malformed_op_is_refused(talk: Session, op: Any) -> None:
    before = talk.events
    with pytest.raises(SurfaceError):
        talk.append("user/message", PROMPT, SurfaceIntent(op, [1]))
    assert talk.events is before


def test_an_op_that_is_no_json_is_refused(talk: Session) -> None:
    with pytest.raises(NotJsonError, match="surfaceOp"):
        talk.append("user/message", PROMPT, SurfaceIntent({"op": {1}}, [1]))


@pytest.mark.rule("sources-name-earlier-events")
def test_only_an_assistant_message_may_have_empty_sources(session: Session) -> None:
    with pytest.raises(SurfaceError, match="empty"):
        session.append("user/message", PROMPT, SurfaceIntent("append", []))
    data = {"turn": 1, "step": 1, "content": [], "provenance": PROVENANCE}
    known_empty = session.append("assistant/message", data, SurfaceIntent("append", []))
    unrecorded = session.append("assistant/message", data, APPEND)
    assert known_empty.source_event_seqs == ()
    assert known_empty.to_json()["sourceEventSeqs"] == []
    assert unrecorded.source_event_seqs is None
    assert "sourceEventSeqs" not in unrecorded.to_json()


@pytest.mark.rule("sources-name-earlier-events")
def test_sources_are_earlier_events_each_named_once(talk: Session) -> None:
    wrong: list[Any] = [
        [1, 1],
        [7],
        [8],
        [True],
        [1.0],
        [-1],
        ["1"],
        [None],
        "12",
        {1},
        5,
        {"0": 1},
        range(5, 9),
    ]
    before = talk.events
    for sources in wrong:
        with pytest.raises(SurfaceError):
            talk.append("user/message", PROMPT, SurfaceIntent("append", sources))
    assert talk.events is before
    event = talk.append("user/message", PROMPT, SurfaceIntent("append", [3, 0, 5]))
    assert event.source_event_seqs == (3, 0, 5)


def test_sources_may_be_given_as_any_sequence(talk: Session) -> None:
    for sources in ([0, 1, 2, 3], (0, 1, 2, 3), range(4)):
        event = talk.append("user/message", PROMPT, SurfaceIntent("append", sources))
        assert event.source_event_seqs == (0, 1, 2, 3)
        assert event.to_json()["sourceEventSeqs"] == [0, 1, 2, 3]


@pytest.mark.rule("replacement-cites-what-it-shadows")
def test_a_replacement_cites_all_that_it_shadows(talk: Session) -> None:
    with pytest.raises(SurfaceError, match=r"\[4\]"):
        replace(talk, 1, 6, [1, 6])
    with pytest.raises(SurfaceError, match=r"\[1, 4, 6\]"):
        replace(talk, 1, 6, None)
    assert list(talk.surface.nodes) == [1, 4, 6]
    replace(talk, 1, 6, [6, 4, 1, 0, 3])
    assert list(talk.surface.nodes) == [7]


@pytest.mark.rule("replacement-swaps-one-slice")
def test_replacing_one_node_keeps_their_number(talk: Session) -> None:
    replace(talk, 4, 4, [4])
    assert list(talk.surface.nodes) == [1, 7, 6]
    assert talk.surface.replace_generation == 1
    assert len(talk.events) == 8


@pytest.mark.rule("replaced-range-is-positional")
def test_a_replacement_starts_and_ends_on_the_surface(talk: Session) -> None:
    replace(talk, 1, 4, [1, 4])
    for start, end in ((1, 7), (7, 4), (0, 6), (7, 99), (3, 3)):
        with pytest.raises(SurfaceError, match="not on the surface"):
            replace(talk, start, end, [1, 4, 6, 7])
    assert list(talk.surface.nodes) == [7, 6]


@pytest.mark.rule("replaced-range-is-positional")
def test_a_range_is_by_position_not_by_number(talk: Session) -> None:
    replace(talk, 1, 4, [1, 4])
    assert list(talk.surface.nodes) == [7, 6]
    with pytest.raises(SurfaceError, match="behind"):
        replace(talk, 6, 7, [6, 7])
    replace(talk, 7, 6, [6, 7])
    assert list(talk.surface.nodes) == [8]


def result(session: Session, **changes: Any) -> dict[str, Any]:
    data = dict(next(event for event in session.events if event.type == "tool/result").data)
    return {key: value for key, value in {**data, **changes}.items() if value is not ...}


@pytest.mark.rule("replaced-results-change-content-only")
def test_a_tool_result_is_rewritten_alone_and_in_its_content_only(
    session: Session, write: Write
) -> None:
    write(session, "turn", "user hello", "step", "ask c1 c2", "call c1", "call c2")
    meta = {"lines": [1, {"a": [True]}]}
    data = {
        "turn": 1,
        "step": 1,
        "callId": "c1",
        "content": [{"type": "text", "text": "long"}],
        "isError": False,
        "meta": meta,
    }
    session.append("tool/result", data, APPEND)
    write(session, "result c2")
    before = session.surface.nodes
    assert before == (1, 3, 6, 7)

    def rewrite(start: int, end: int, sources: list[int], **changes: Any) -> Event:
        changed = result(session, **changes)
        return session.append("tool/result", changed, SurfaceIntent(Replace(start, end), sources))

    refused: list[tuple[int, int, list[int], dict[str, Any]]] = [
        (6, 7, [6, 7], {}),
        (1, 1, [1], {}),
        (3, 3, [3], {}),
        (6, 6, [6], {"isError": True}),
        (6, 6, [6], {"meta": {"lines": [1, {"a": [1]}]}}),
        (6, 6, [6], {"meta": ...}),
        (6, 6, [6], {"callId": "c2"}),
        (6, 6, [6], {"step": 2}),
        (6, 6, [6], {"error": {"name": "E", "code": "E"}}),
        (7, 7, [7], {}),
    ]
    for start, end, sources, changes in refused:
        with pytest.raises(SurfaceError):
            rewrite(start, end, sources, **changes)
        assert session.surface.nodes == before
    short = [{"type": "text", "text": "short"}]
    event = rewrite(6, 6, [6], content=short, meta={"lines": [1, {"a": [True]}]})
    assert list(session.surface.nodes) == [1, 3, event.seq, 7]


@pytest.mark.rule("replaced-results-change-content-only")
def test_a_user_message_may_replace_calls_and_results(talk: Session) -> None:
    replace(talk, 4, 6, [4, 6])
    assert list(talk.surface.nodes) == [1, 7]
    assert [message["role"] for message in talk.derive_messages()] == ["user", "user"]


def test_an_empty_assistant_message_may_take_a_refused_turn_off_the_surface(
    talk: Session,
) -> None:
    data = {"turn": 1, "step": 1, "content": [], "provenance": PROVENANCE}
    talk.append("assistant/message", data, SurfaceIntent(Replace(1, 6), [1, 4, 6]))
    assert talk.derive_messages() == []
    assert [event.type for event in talk.events if is_surface_event(event)][:2] == [
        "user/message",
        "assistant/message",
    ]


@pytest.mark.rule("replacement-swaps-one-slice")
def test_a_refused_candidate_leaves_the_surface_alone(talk: Session) -> None:
    nodes, generation = talk.surface.nodes, talk.surface.replace_generation
    for start, end, sources in ((1, 6, [1]), (6, 1, [1, 4, 6]), (2, 2, [2])):
        with pytest.raises(SurfaceError):
            replace(talk, start, end, sources)
    assert (talk.surface.nodes, talk.surface.replace_generation) == (nodes, generation)
    assert talk.append("user/message", PROMPT, APPEND).seq == 7


@pytest.mark.rule("fold-equals-live-surface")
def test_the_fold_of_a_log_is_the_live_surface(session: Session, write: Write) -> None:
    seen: list[tuple[int, ...]] = [()]

    def note(*_events: Any) -> None:
        seen.extend([session.surface.nodes] * (session.seq + 1 - len(seen)))

    for word in ("turn", "user a", "step", "delta x", "say x", "user b", "user c"):
        write(session, word)
        note()
    replace(session, 4, 5, [5, 4])
    note()
    replace(session, 1, 7, [1, 7])
    note()
    write(session, "user d")
    note()
    events = list(session.events)
    for length, nodes in enumerate(seen):
        assert fold_surface(events[:length]).nodes == nodes
        assert fold_surface(session.events.prefix(length)).nodes == nodes
    assert fold_surface(session.events).replacements == (
        Replacement(7, 4, 5, (4, 5)),
        Replacement(8, 1, 7, (1, 7)),
    )


@pytest.mark.rule("fold-equals-live-surface")
def test_the_fold_raises_what_append_raises(talk: Session) -> None:
    good = list(talk.events)
    bad: list[tuple[Any, Any]] = [
        (None, None),
        ("append", ()),
        ("append", (1, 1)),
        ("append", (7,)),
        (Replace(1, 6), (1, 6)),
        (Replace(6, 1), (1, 4, 6)),
        (Replace(2, 2), (2,)),
        ({"op": "replace"}, (1,)),
    ]
    for op, sources in bad:
        with pytest.raises(SurfaceError) as live:
            talk.append("user/message", PROMPT, SurfaceIntent(op, sources))
        with pytest.raises(SurfaceError) as folded:
            fold_surface([*good, Event("user/message", 7, 0, FrozenDict(PROMPT), sources, op)])
        assert str(live.value) == str(folded.value)
    with pytest.raises(SurfaceError, match="index 0"):
        fold_surface(good[1:])
    with pytest.raises(SurfaceError, match="log-only"):
        fold_surface([Event("x/y", 0, 0, FrozenDict(), None, "append")])


@pytest.mark.parametrize("sources", [5, "12", {"0": 1}, True])
def test_stored_sources_are_an_array(sources: Any) -> None:
    stored = {"type": "user/message", "seq": 0, "time": 0, "data": PROMPT, "surfaceOp": "append"}
    with pytest.raises(SeedError, match="index 0: user/message: sourceEventSeqs"):
        Session("s", seed=[{**stored, "sourceEventSeqs": sources}])
    event = Event("user/message", 0, 0, FrozenDict(PROMPT), sources, "append")
    with pytest.raises(SeedError, match="sourceEventSeqs"):
        Session("s", seed=[event])


@pytest.mark.rule("committed-events-are-frozen")
def test_the_logged_op_is_a_copy(talk: Session) -> None:
    op = {"op": "replace", "start": 4, "end": 4}
    sources = [4]
    event = talk.append("user/message", PROMPT, SurfaceIntent(op, sources))
    op["start"] = 1
    sources.append(1)
    assert event.surface_op == Replace(4, 4)
    assert event.source_event_seqs == (4,)
    assert event.to_json()["surfaceOp"] == {"op": "replace", "start": 4, "end": 4}
    assert talk.events[7] == event


def test_five_types_are_eligible(talk: Session) -> None:
    types = ("user/message", "assistant/message", "tool/result", "context/message")
    assert all(map(is_surface_eligible_type, (*types, "steering/message")))
    assert not is_surface_eligible_type("tool/call")
    assert not is_surface_event(Event("user/message", 0, 0, FrozenDict()))
    assert not is_surface_event(talk.events[0])
    assert is_surface_event(talk.events[1])


@pytest.mark.rule("end-of-input-ends-server")
def test_a_context_message_is_a_surface_type(session: Session, write: Write) -> None:
    write(session, "turn", "context notice")
    assert list(session.surface.nodes) == [1]
    with pytest.raises(SurfaceError):
        session.append("context/message", PROMPT)


def test_a_reader_of_the_surface_cannot_change_it(talk: Session) -> None:
    surface = talk.surface
    assert surface is talk.surface
    with pytest.raises(AttributeError):
        surface.nodes = ()  # type: ignore[misc]
    public = {name for name in dir(surface) if not name.startswith("_")}
    assert public == {"nodes", "replace_generation"}

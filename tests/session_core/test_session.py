import logging
from collections.abc import Callable
from typing import Any

import pytest

from session_core import (
    APPEND,
    Clock,
    Event,
    EventLog,
    EventLogBuilder,
    FrozenDict,
    LegacyVocabularyError,
    LoadedFieldError,
    NotJsonError,
    PayloadError,
    ReentrantAppendError,
    Replace,
    SeedError,
    Session,
    SessionHeader,
    SessionHeaderError,
    SessionId,
    SessionStore,
    StoreListener,
    SurfaceError,
    SurfaceIntent,
    compute_closers,
)

Write = Callable[..., list[Event]]

USER = {"kind": "user"}


def prompt(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "source": USER}


def stored(event_type: str, seq: int, data: Any, **more: Any) -> dict[str, Any]:
    return {"type": event_type, "seq": seq, "time": 5, "data": data, **more}


@pytest.mark.rule("committed-events-are-frozen")
def test_a_committed_event_is_out_of_everybodys_reach(session: Session) -> None:
    data = prompt("hello")
    event = session.append("user/message", data, APPEND)
    data["content"][0]["text"] = "changed"
    data["more"] = 1
    assert session.events[0].data == prompt("hello")
    with pytest.raises(TypeError):
        event.data["source"] = None
    with pytest.raises(TypeError):
        event.data["content"].append({})
    with pytest.raises(TypeError):
        event.data["content"][0]["text"] = "changed"
    with pytest.raises(AttributeError):
        event.seq = 7  # type: ignore[misc]
    session.append_delta(1, 1, "text-delta", 0, "a")
    with pytest.raises(TypeError):
        session.events[1].data["chunk"]["text"] = "b"
    assert session.events[0] == event
    assert session.derive_messages()[0]["content"] == prompt("hello")["content"]


@pytest.mark.rule("events-view-never-grows")
def test_events_is_one_object_until_the_next_append_and_never_grows(session: Session) -> None:
    session.append("x/y", {})
    before = session.events
    assert session.events is before
    session.append_delta(1, 1, "text-delta", 0, "a")
    during = session.events
    assert during is not before
    session.append_delta(1, 1, "text-delta", 0, "b")
    session.append("x/y", {})
    assert (len(before), len(during), len(session.events)) == (1, 2, 4)
    assert [event.type for event in during] == ["x/y", "assistant/chunk"]
    assert list(before) == [session.events[0]]
    with pytest.raises(IndexError):
        during[2]


@pytest.mark.rule("observers-may-not-append")
def test_an_observer_may_not_append_to_the_session_it_hears(
    store: SessionStore, live: Session, write: Write
) -> None:
    heard: list[tuple[str, int]] = []
    refused: list[ReentrantAppendError] = []

    def appending(event: Event) -> None:
        heard.append(("appending", event.seq))
        try:
            live.append("todo/write", {"todos": []})
        except ReentrantAppendError as error:
            refused.append(error)
            raise

    store.observe(live, appending)
    store.observe(live, lambda event: heard.append(("later", event.seq)))
    write(live, "turn", "step", "delta a", "delta b")
    assert [event.type for event in live.events] == [
        "turn/start",
        "step/start",
        "assistant/chunk",
        "assistant/chunk",
    ]
    assert heard == [(who, seq) for seq in range(4) for who in ("appending", "later")]
    assert len(refused) == 4


@pytest.mark.rule("append-checks-before-commit")
def test_data_is_looked_at_before_reentrancy(
    store: SessionStore, live: Session, write: Write
) -> None:
    raised: list[Exception] = []

    def appending(_event: Event) -> None:
        for data, intent in (({"n": -0.0}, None), ({}, SurfaceIntent("append", {1}))):  # type: ignore[arg-type]
            try:
                live.append("x/y", data, intent)
            except (NotJsonError, SurfaceError) as error:
                raised.append(error)

    store.observe(live, appending)
    write(live, "turn")
    assert [type(error) for error in raised] == [NotJsonError, SurfaceError]


@pytest.mark.rule("failing-observers-are-contained")
def test_a_failing_observer_touches_nobody(
    store: SessionStore, live: Session, write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[int] = []

    def failing(_event: Event) -> None:
        raise ZeroDivisionError

    async def rejecting(_event: Event) -> None:
        raise ZeroDivisionError

    store.observe(live, failing)
    store.observe(live, rejecting)
    store.observe(live, lambda event: heard.append(event.seq))
    with caplog.at_level(logging.ERROR):
        write(live, "turn", "step", "delta a")
    assert heard == [0, 1, 2]
    assert len(caplog.records) == 6


class Veto(StoreListener):
    """Vetoes the event types that it is told to."""

    def __init__(self, *types: str) -> None:
        self.types = set(types)

    def before_append(self, session: Session, event: Event) -> None:
        if event.type in self.types:
            raise PermissionError(event.type)


@pytest.mark.rule("refused-append-changes-nothing")
def test_a_veto_before_the_commit_leaves_no_trace(store: SessionStore, write: Write) -> None:
    veto = Veto("user/message", "step/start", "assistant/chunk")
    store.subscribe(veto)
    session = store.create("s")
    write(session, "turn")
    events, nodes = session.events, session.surface.nodes
    for word in ("user hello", "step"):
        with pytest.raises(PermissionError):
            write(session, word)
    assert session.events is events
    assert session.surface.nodes == nodes == ()
    assert session.derive_messages() == []
    veto.types.clear()
    assert [event.seq for event in write(session, "user hello", "step")] == [1, 2]
    veto.types.add("assistant/chunk")
    for _ in range(2):
        with pytest.raises(PermissionError):
            write(session, "delta a")
    veto.types.clear()
    write(session, "delta a")
    veto.types.add("assistant/chunk")
    with pytest.raises(PermissionError):
        write(session, "delta b")
    veto.types.clear()
    assert [event.seq for event in write(session, "delta b", "/step", "/turn")] == [4, 5, 6]


@pytest.mark.rule("seq-counts-from-zero", "seed-is-checked-like-appends")
@pytest.mark.parametrize(("seqs", "index", "found"), [((0, 2), 1, 2), ((1, 2), 0, 1)])
def test_a_seed_counts_from_zero_without_a_gap(
    seqs: tuple[int, ...], index: int, found: int
) -> None:
    with pytest.raises(
        SeedError, match=f"index {index}: seq must be {index}, found {found}"
    ) as info:
        Session("s", seed=[stored("x/y", seq, {}) for seq in seqs])
    assert info.value.index == index


@pytest.mark.rule("event-has-fixed-envelope")
@pytest.mark.parametrize(
    "entry",
    [
        stored("x/y", 0, {}, extra=1),
        stored("x/y", 0, {}) | {"time": -1},
        stored("x/y", 0, {}) | {"seq": 0.0},
        stored("x/y", 0, {}) | {"type": None},
        stored("x/y", 0, {}) | {"ignorable": 1},
        {"type": "x/y", "seq": 0, "time": 0},
        stored("x/y", 0, {}, surfaceOp=None),
        [],
        "x/y",
        None,
        Event("x/y", 0, -1, FrozenDict()),
        Event("x/y", 0.0, 0, FrozenDict()),  # type: ignore[arg-type]
        Event(1, 0, 0, FrozenDict()),  # type: ignore[arg-type]
        Event("x/y", 0, 0, {"n": -0.0}),  # type: ignore[arg-type]
    ],
)
def test_what_has_not_the_envelope_of_an_event_is_refused(entry: Any) -> None:
    with pytest.raises(SeedError, match="invalid envelope") as info:
        Session("s", seed=[entry])
    assert info.value.index == 0


@pytest.mark.rule("source-format-logs-load")
def test_an_ignorable_mark_is_tolerated() -> None:
    session = Session("s", seed=[stored("x/y", 0, {}, ignorable=True)])
    assert session.events[0] == Event("x/y", 0, 5, FrozenDict())


@pytest.mark.rule("turn-ends-name-their-reason", "removed-forms-are-refused")
def test_an_aborted_end_carries_nothing_but_its_kind(session: Session, write: Write) -> None:
    start = stored("turn/start", 0, {"turn": 1, "trigger": {"kind": "message", "source": USER}})
    bare = stored("turn/end", 1, {"turn": 1, "reason": {"kind": "aborted"}})
    assert len(Session("s", seed=[start, bare]).events) == 2
    loaded = {"turn": 1, "reason": {"kind": "aborted", "reason": "user"}}
    with pytest.raises(SeedError, match="index 1"):
        Session("s", seed=[start, stored("turn/end", 1, loaded)])
    write(session, "turn")
    with pytest.raises(PayloadError):
        session.append("turn/end", loaded)


@pytest.mark.rule("removed-forms-are-refused")
@pytest.mark.parametrize(
    "provenance",
    [None, {}, {"provider": "", "model": "m"}, {"provider": "p"}, {"provider": "p", "model": 1}],
)
def test_an_assistant_message_says_who_made_it(session: Session, provenance: Any) -> None:
    data = {"turn": 1, "step": 1, "content": []}
    if provenance is not None:
        data["provenance"] = provenance
    with pytest.raises(LoadedFieldError, match="provenance") as info:
        Session("s", seed=[stored("assistant/message", 0, data, surfaceOp="append")])
    assert (info.value.seq, info.value.event_type) == (0, "assistant/message")
    with pytest.raises(PayloadError):
        session.append("assistant/message", data, APPEND)
    header = {"header": {"config": provenance or {}}, "reason": "initial"}
    with pytest.raises(LoadedFieldError, match="config"):
        Session("s", seed=[stored("request/header", 0, header)])


@pytest.mark.rule("seed-may-have-open-turn")
def test_a_seed_may_end_in_an_open_turn(session: Session, write: Write) -> None:
    write(session, "turn", "user hello", "step", "delta a")
    again = Session("again", seed=session.events)
    assert again.events == session.events
    write(again, "delta b", "say ab")
    assert len(again.events) == 6


@pytest.mark.rule("unknown-types-are-kept-silent")
def test_an_unknown_type_is_kept_and_says_nothing_to_the_model(session: Session) -> None:
    data = {"anything": [1, None, {"deep": True}]}
    event = session.append("x/y", data)
    assert event.data == data
    assert session.derive_messages() == []
    listed: Any = session.append("x/list", [1]).data  # type: ignore[arg-type]
    assert listed == [1]
    for intent in (APPEND, SurfaceIntent(None, [0])):  # type: ignore[arg-type]
        with pytest.raises(SurfaceError):
            session.append("x/y", data, intent)
    with pytest.raises(SeedError, match="index 0"):
        Session("s", seed=[stored("x/y", 0, data, surfaceOp="append")])
    with pytest.raises(SeedError, match="index 1"):
        Session("s", seed=[event, stored("x/y", 1, data, sourceEventSeqs=[0])])


@pytest.mark.rule("removed-forms-are-refused")
def test_removed_forms_are_refused_by_name(session: Session) -> None:
    header = {"config": {"provider": "p", "model": "m"}}
    forms: list[tuple[str, dict[str, Any]]] = [
        ("request/header-delta", {"set": {}}),
        ("request/header", {"header": header, "reason": "fallback"}),
    ]
    for event_type, data in forms:
        with pytest.raises(LegacyVocabularyError) as refusal:
            session.append(event_type, data)
        assert refusal.value.event_type == event_type
        with pytest.raises(SeedError, match=event_type) as info:
            Session("s", seed=[stored(event_type, 0, data)])
        assert isinstance(info.value.__cause__, LegacyVocabularyError)
    session.append("request/header", {"header": header, "reason": "initial"})
    assert session.seq == 1


@pytest.mark.rule("seed-is-checked-like-appends")
def test_a_seed_entry_of_a_class_of_its_own_is_refused() -> None:
    class Stored(dict[str, Any]):
        pass

    with pytest.raises(SeedError):
        Session("s", seed=[Stored(stored("x/y", 0, {}))])
    with pytest.raises(SeedError):
        Session("s", seed=[object()])  # type: ignore[list-item]


@pytest.mark.rule("bad-seed-makes-no-session")
def test_a_refused_seed_leaves_no_session_behind(store: SessionStore) -> None:
    with pytest.raises(SeedError):
        store.create("s", seed=[stored("x/y", 1, {})])
    assert store.get("s") is None
    assert store.list() == []


@pytest.mark.rule("bare-sessions-work-alone")
def test_a_bare_session_works_alone() -> None:
    session = Session("alone", clock=lambda: 77)
    assert session.header == SessionHeader(SessionId("alone"), 77)
    assert session.header.version == 0
    event = session.append("user/message", prompt("hello"), APPEND)
    assert (event.seq, event.time, session.seq, session.id) == (0, 77, 1, "alone")
    assert len(session.derive_messages()) == 1


def test_the_header_must_name_the_session() -> None:
    with pytest.raises(SessionHeaderError):
        Session("s", header=SessionHeader(SessionId("other"), 1))


@pytest.mark.rule("append-checks-before-commit")
def test_a_refused_append_changes_nothing_and_the_next_one_works(
    session: Session, write: Write
) -> None:
    write(session, "turn", "user one")
    events, nodes, messages = session.events, session.surface.nodes, session.derive_messages()
    refused: list[tuple[str, Any, SurfaceIntent | None]] = [
        ("user/message", prompt("x"), None),
        ("user/message", prompt("x"), SurfaceIntent(Replace(9, 9), [9])),
        ("user/message", {"content": "x"}, APPEND),
        ("todo/write", {"todos": [{"content": "x", "status": "soon"}]}, None),
        ("x/y", {"x": {1}}, None),
        ("todo/write", {"todos": []}, APPEND),
    ]
    for event_type, data, intent in refused:
        with pytest.raises((SurfaceError, PayloadError, NotJsonError)):
            session.append(event_type, data, intent)
        assert session.events is events
        assert session.surface.nodes == nodes
        assert session.derive_messages() == messages
    assert write(session, "user two")[0].seq == 2


def test_a_known_payload_has_no_fields_of_its_own_making(session: Session) -> None:
    with pytest.raises(PayloadError, match="sourc") as info:
        session.append("user/message", {**prompt("x"), "sourc": 1}, APPEND)
    assert info.value.field == "sourc"


def test_a_delta_is_the_same_by_either_door(clock: Clock) -> None:
    texts = ["a", "", "é😀", "b"]
    fast, plain = Session("s", clock=lambda: 1), Session("s", clock=lambda: 1)
    for text in texts:
        one = fast.append_delta(1, 2, "tool-call-delta", 3, text, "c1", "read")
        chunk = {
            "type": "tool-call-delta",
            "index": 3,
            "id": "c1",
            "name": "read",
            "argumentsDelta": text,
        }
        other = plain.append("assistant/chunk", {"turn": 1, "step": 2, "chunk": chunk})
        assert one == other
        assert one.to_json() == other.to_json()
    assert fast.events == plain.events
    assert len(list(fast.events.records())) == len(list(plain.events.records())) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        (0, 1, "text-delta", 0, "a"),
        (1, 0, "text-delta", 0, "a"),
        (1, 1.0, "text-delta", 0, "a"),
        (1, 1, "text-delta", None, "a"),
        (1, 1, "text-delta", 0, None),
        (1, 1, "text-delta", 0, 5),
        (1, 1, "text-delta", 0, "a", "c1"),
        (1, 1, "reasoning-delta", 0, "a", None, "read"),
        (1, 1, "tool-call-delta", 0, "a"),
        (1, 1, "tool-call-delta", 0, "a", "c1", 5),
        (1, 1, "sound-delta", 0, "a"),
        (1, 1, None, 0, "a"),
    ],
)
def test_a_wrong_delta_is_refused_whether_or_not_a_run_is_open(arguments: Any) -> None:
    for opening in ((), ((1, 1, "text-delta", 0, "x"),)):
        session = Session("s")
        for legal in opening:
            session.append_delta(*legal)
        with pytest.raises(PayloadError):
            session.append_delta(*arguments)
        assert session.seq == len(opening)


@pytest.mark.rule("log-in-memory-stays-packed")
def test_a_seed_that_is_a_log_is_taken_over_packed(session: Session, write: Write) -> None:
    write(session, "turn", "step", *["delta a"] * 10, "say aaa", "/step", "/turn")
    builder = EventLogBuilder()
    builder.extend(session.events)
    log = builder.build()
    assert len(builder) == 0
    again = Session("again", seed=log)
    assert again.events == session.events
    assert again.surface.nodes == session.surface.nodes
    assert len(list(again.events.records())) == 6
    again.append_delta(1, 1, "text-delta", 0, "b")
    assert len(log) == len(session.events) == 15
    assert len(again.events) == 16


def test_surface_rules_hold_for_a_seed_that_is_a_log() -> None:
    builder = EventLogBuilder()
    builder.add(stored("user/message", 0, prompt("x")))
    with pytest.raises(SeedError, match="index 0"):
        Session("s", seed=builder.build())


def rebuilt(session: Session) -> EventLog:
    builder = EventLogBuilder()
    builder.extend(session.events)
    return builder.build()


def test_a_session_goes_on_with_a_longer_log_in_place(
    store: SessionStore, live: Session, write: Write
) -> None:
    write(live, "turn", "user a", "step", "delta x", "say x", "/step", "/turn")
    elsewhere = SessionStore(lambda: 2000).create("live", seed=rebuilt(live), header=live.header)
    write(elsewhere, "turn", "user b", "step", "say y", "/step", "/turn")
    surface, before, heard = live.surface, live.events, list[Event]()
    store.observe(live, heard.append)
    assert len(live.derive_messages()) == 2
    live.read_on(rebuilt(elsewhere))
    assert len(before) == 7
    assert heard == []
    assert live.events == elsewhere.events
    assert live.surface is surface
    assert surface.nodes == elsewhere.surface.nodes
    assert live.derive_messages() == elsewhere.derive_messages()
    write(live, "turn", "user c", "/turn")
    assert live.events[-3].data["turn"] == 3
    assert len(heard) == 3


def test_a_log_that_breaks_a_surface_rule_is_not_gone_on_with(live: Session, write: Write) -> None:
    write(live, "turn", "user a", "/turn")
    builder = EventLogBuilder()
    builder.extend(live.events)
    builder.add(stored("user/message", 3, prompt("x")))
    with pytest.raises(SeedError, match="index 3"):
        live.read_on(builder.build())
    assert live.seq == 3
    assert len(live.derive_messages()) == 1


def test_a_builder_goes_on_behind_a_log_and_leaves_it_alone(session: Session, write: Write) -> None:
    write(session, "turn", "user a", "step", "ask c1", "call c1")
    log = rebuilt(session)
    builder = EventLogBuilder(start=log)
    builder.extend(compute_closers(log))
    whole = builder.build()
    assert len(log) == 5
    assert len(compute_closers(log)) == 3
    assert compute_closers(whole) == []
    assert Session("again", seed=whole).events == list(whole)

from collections.abc import Callable
from typing import Any

import pytest

from session_core import (
    ChunkRun,
    DeltaKey,
    Event,
    EventLog,
    EventLogBuilder,
    EventView,
    FrozenDict,
    LegacyVocabularyError,
    LoadedFieldError,
    Record,
    SeedError,
    Session,
    events_of,
    records_of,
    refuse_stored_legacy,
)
from session_core.log import GrowingLog

Write = Callable[..., list[Event]]

KEY = DeltaKey("text-delta", 1, 1, 0)


def shape(records: Any) -> list[int | str]:
    """Return the length of each run and the type of each event."""
    return [r.type if isinstance(r, Event) else len(r) for r in records]


@pytest.mark.rule("log-in-memory-stays-packed")
def test_deltas_are_packed_from_the_moment_they_come_in(session: Session, write: Write) -> None:
    write(session, "turn", "step")
    for k in range(5):
        session.append_delta(1, 1, "text-delta", 0, str(k))
        assert shape(session.events.records()) == ["turn/start", "step/start", k + 1]
    session.append_delta(1, 1, "text-delta", 1, "other block")
    session.append_delta(1, 1, "reasoning-delta", 1, "other kind")
    session.append_delta(1, 1, "tool-call-delta", 1, "other call", "c1")
    session.append_delta(1, 1, "tool-call-delta", 1, "named now", "c1", "read")
    write(session, "/step")
    assert shape(session.events.records(2)) == [5, 1, 1, 1, 1, "step/end"]


def test_records_are_cut_at_the_bounds(session: Session, write: Write) -> None:
    write(session, "turn", "step", *["delta a"] * 6, "/step", "step", *["delta b"] * 4)
    events = session.events
    for log in (events, events.prefix()):
        assert shape(log.records(3, 6)) == [3]
        assert shape(log.records(1, 3)) == ["step/start", 1]
        assert shape(log.records(7, 12)) == [1, "step/end", "step/start", 2]
        assert shape(log.records(12)) == [2]
        assert shape(log.records(14)) == shape(log.records(5, 5)) == []
        assert shape(log.records(13, 99)) == [1]
        for start in range(15):
            for stop in range(15):
                unpacked = [
                    event
                    for record in log.records(start, stop)
                    for event in ([record] if isinstance(record, Event) else record)
                ]
                assert unpacked == list(events[start:stop])


def test_a_record_that_was_handed_out_never_changes(session: Session, write: Write) -> None:
    write(session, "turn", "step", "delta a")
    [*_, run] = session.events.records()
    walk = session.events.records(1)
    assert next(walk) == session.events[1]
    write(session, "delta b", "/step")
    assert shape(walk) == [1]
    assert isinstance(run, ChunkRun)
    assert (len(run), run.texts) == (1, ("a",))
    for name in ("key", "seq0", "time0", "texts", "gaps", "new"):
        with pytest.raises((AttributeError, TypeError)):
            setattr(run, name, 9)


def test_a_view_reads_like_a_sequence(session: Session, write: Write) -> None:
    write(session, "turn", "step", "delta a", "delta b", "delta c", "/step")
    view = session.events
    events = list(view)
    assert [view[k] for k in range(len(view))] == events
    assert [view[-k] for k in range(1, 7)] == events[::-1]
    assert view[1:4] == tuple(events[1:4])
    assert view[::-2] == tuple(events[::-2])
    assert list(reversed(view)) == events[::-1]
    assert events[3] in view
    assert view == events == list(view.prefix())
    assert view == tuple(events)
    assert view != events[1:]
    assert view != "events"
    assert view.index(events[4]) == 4
    assert view.event_at(3) == events[3]
    for outside in (6, -7):
        with pytest.raises(IndexError):
            view[outside]
    assert len(Session("empty").events) == 0
    assert not Session("empty").events


@pytest.mark.rule("log-only-ever-grows")
def test_an_old_view_reads_the_same_after_the_log_has_grown(write: Write) -> None:
    session = Session("s", clock=lambda: 5)
    write(session, "turn", "step")
    views: list[tuple[EventView, list[Event]]] = []
    for k in range(1200):
        session.append_delta(1, 1, "text-delta", 0, str(k))
        if k % 100 == 50 or 505 < k < 520:
            views.append((session.events, list(session.events)))
    write(session, "/step")
    for view, events in views:
        assert list(view) == events
        assert view[-1] == events[-1]
        assert view[len(view) // 2] == events[len(view) // 2]
        assert view.last_of(["step/end"]) is None
    assert len(list(session.events.records())) < 10


def test_the_last_of_some_types_is_found_backwards(session: Session, write: Write) -> None:
    write(session, "turn", "user a", "step", "delta x", "user b", "delta y")
    assert session.events.last_of(["user/message", "turn/start"]) == session.events[4]
    assert session.events.prefix(3).last_of(["user/message"]) == session.events[1]
    assert session.events.last_of(["x/y"]) is None
    assert EventLog().last_of(["x/y"]) is None


@pytest.mark.rule("log-in-memory-stays-packed")
def test_folds_walk_logs_packed_and_lists_as_they_are(session: Session, write: Write) -> None:
    write(session, "turn", "step", "delta a", "delta b", "/step")
    assert shape(records_of(session.events)) == ["turn/start", "step/start", 2, "step/end"]
    assert shape(records_of(list(session.events)))[2:4] == ["assistant/chunk"] * 2
    assert shape(events_of(session.events)) == ["turn/start", "step/start", "step/end"]
    assert list(session.events.prefix()) == list(session.events)
    assert len(session.events.prefix(3)) == 3


@pytest.mark.rule("log-in-memory-stays-packed")
def test_a_builder_packs_deltas_however_they_come(session: Session, write: Write) -> None:
    write(session, "turn", "step", "delta a", "delta b", "delta c", "say abc")
    as_json = [event.to_json() for event in session.events]
    packed = list(session.events.records())
    logs = []
    for entries in (list(session.events), as_json, packed):
        builder = EventLogBuilder()
        builder.extend(entries)
        assert len(builder) == 6
        logs.append(builder.build())
    for log in logs:
        assert list(log) == list(session.events)
        assert shape(log.records()) == ["turn/start", "step/start", 3, "assistant/message"]


@pytest.mark.parametrize(
    "run",
    [
        ChunkRun(KEY, 1, 0, ("a",), (0,)),
        ChunkRun(KEY, 0, -1, ("a",), (0,)),
        ChunkRun(KEY, 0, 5, ("a", "b"), (0, -6)),
    ],
)
def test_a_builder_refuses_a_run_that_does_not_follow(run: ChunkRun) -> None:
    builder = EventLogBuilder()
    with pytest.raises(SeedError) as info:
        builder.add(run)
    assert info.value.index == 0
    assert len(builder) == 0
    builder.add(ChunkRun(KEY, 0, 5, ("a", "b"), (0, -5)))
    assert [event.time for event in builder.build()] == [5, 0]


@pytest.mark.parametrize(
    ("texts", "gaps", "key"),
    [
        ((), (), KEY),
        (("a",), (), KEY),
        (("a",), (1,), KEY),
        (("a", 5), (0, 0), KEY),
        (("\ud800",), (0,), KEY),
        (("a",), (0.0,), KEY),
        (("a",), (0,), DeltaKey("text-delta", "1", 1, 0)),  # type: ignore[arg-type]
        (("a",), (0,), KEY._replace(call_id="c")),
        (("a",), (0,), DeltaKey("tool-call-delta", 1, 1, 0)),
    ],
)
def test_a_run_is_sound_from_its_construction(texts: Any, gaps: Any, key: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        ChunkRun(key, 0, 0, texts, gaps)


LACKING: list[tuple[str, dict[str, Any], str]] = [
    ("turn/start", {"trigger": {"kind": "x"}}, "turn"),
    ("turn/start", {"turn": 1}, "trigger"),
    ("turn/end", {"turn": 1, "reason": {}}, "reason.kind"),
    ("step/start", {"turn": 1, "step": "1"}, "step"),
    ("user/message", {"source": {"kind": "user"}}, "content"),
    ("user/message", {"content": [{"text": "x"}], "source": {"kind": "u"}}, "content.0.type"),
    ("user/message", {"content": [{"type": "text"}], "source": {"kind": "u"}}, "content.0.text"),
    ("context/message", {"content": [], "source": "plugin"}, "source"),
    ("tool/call", {"turn": 1, "step": 1, "callId": "c", "arguments": ""}, "name"),
    ("tool/result", {"turn": 1, "step": 1, "callId": "c", "content": []}, "isError"),
    ("assistant/chunk", {"turn": 1, "step": 1}, "chunk"),
    ("todo/write", {"todos": [{"content": "x"}]}, "todos.0.status"),
    ("session/title", {}, "title"),
    ("tool/card", {"callId": "c", "view": {}}, "view.type"),
    ("config/set", {"configId": "x"}, "value"),
]


@pytest.mark.rule("stored-payloads-are-checked-for-use")
@pytest.mark.parametrize(("event_type", "data", "field"), LACKING)
def test_a_stored_event_that_lacks_what_is_read_is_named(
    event_type: str, data: dict[str, Any], field: str
) -> None:
    builder = EventLogBuilder()
    builder.add({"type": "x/y", "seq": 0, "time": 0, "data": None})
    with pytest.raises(LoadedFieldError) as info:
        builder.add({"type": event_type, "seq": 1, "time": 0, "data": data})
    assert (info.value.seq, info.value.event_type, info.value.field) == (1, event_type, field)
    with pytest.raises(LoadedFieldError):
        builder.add(Event(event_type, 1, 0, FrozenDict(data)))
    with pytest.raises(LoadedFieldError, match="an object"):
        builder.add({"type": event_type, "seq": 1, "time": 0, "data": []})
    assert len(builder) == 1


@pytest.mark.rule("stored-payloads-are-checked-for-use")
def test_a_stored_payload_is_looked_at_no_further_than_it_is_read() -> None:
    header = {"config": {"provider": "p", "model": "m"}, "tools": "{{tools}}"}
    entries: list[tuple[str, Any]] = [
        ("turn/start", {"turn": 1, "trigger": {"kind": "message"}, "later": 1}),
        ("request/header", {"header": header, "reason": "whatever"}),
        ("hook/invoked", None),
        ("todo/write", {"todos": [{"content": "x", "status": "paused", "id": 7}]}),
        ("mode/set", {"mode": "x"}),
    ]
    builder = EventLogBuilder()
    for seq, (event_type, data) in enumerate(entries):
        builder.add({"type": event_type, "seq": seq, "time": 0, "data": data})
    assert [event.data for event in builder.build()] == [data for _, data in entries]


def test_stores_refuse_one_removed_type_more() -> None:
    for event_type in ("mode/set", "request/header-delta"):
        with pytest.raises(LegacyVocabularyError):
            refuse_stored_legacy(event_type, FrozenDict())
    refuse_stored_legacy("x/y", FrozenDict())


def test_a_record_is_an_event_or_a_run(session: Session, write: Write) -> None:
    write(session, "turn", "step", "delta a")
    records: list[Record] = list(session.events.records())
    assert [type(record) for record in records] == [Event, Event, ChunkRun]


@pytest.mark.parametrize(
    "change",
    [{"seq": True}, {"seq": 1.0}, {"seq": 2}, {"time": -1}, {"time": 5.0}, {"surfaceOp": "append"}],
)
def test_a_delta_is_checked_like_any_stored_event(change: dict[str, Any]) -> None:
    chunk = {"type": "text-delta", "index": 0, "text": "a"}
    data = {"turn": 1, "step": 1, "chunk": chunk}
    first = {"type": "assistant/chunk", "seq": 0, "time": 5, "data": data}
    with pytest.raises(SeedError) as info:
        Session("s", seed=[first, {**first, "seq": 1, **change}])
    assert info.value.index == 1
    assert Session("s", seed=[first, {**first, "seq": 1}]).seq == 2


def test_a_delta_of_an_odd_shape_is_kept_as_it_is() -> None:
    chunks: list[dict[str, Any]] = [
        {"type": "text-delta", "index": 0, "text": "a", "later": [1]},
        {"type": "text-delta", "index": 1.5, "text": "a"},
        {"type": "sound-delta", "index": 0},
    ]
    builder = EventLogBuilder()
    for seq, chunk in enumerate(chunks):
        data = {"turn": 1, "step": 1, "chunk": chunk}
        builder.add({"type": "assistant/chunk", "seq": seq, "time": 5, "data": data})
    log = builder.build()
    assert [event.data["chunk"] for event in log] == chunks
    assert shape(log.records()) == ["assistant/chunk", 1, "assistant/chunk"]


@pytest.mark.rule("log-in-memory-stays-packed")
def test_a_log_cut_anywhere_is_found_in_like_a_list(session: Session, write: Write) -> None:
    write(session, "turn", "user", "step")
    for k in range(3):
        session.append_delta(1, 1, "text-delta", 0, str(k))
    write(session, "/step", "/turn", "turn", "user", "step")
    for k in range(3):
        session.append_delta(2, 1, "text-delta", 0, str(k))
    everything = list(session.events)
    types = {event.type for event in everything} - {"assistant/chunk"}
    for stop in range(len(everything) + 1):
        log = session.events.prefix(stop)
        expected = everything[:stop]
        assert list(log) == expected
        assert list(GrowingLog(log)) == expected
        for wanted in (types, {"user/message"}, {"x/y"}, set[str]()):
            found = [event for event in expected if event.type in wanted]
            assert list(log.of_types(wanted)) == found
            assert list(session.events.prefix().of_types(wanted, stop)) == found
            assert log.last_of(wanted) == (found[-1] if found else None)
            assert session.events.last_of(wanted, stop) == log.last_of(wanted)


@pytest.mark.rule("derivation-is-incremental")
def test_a_history_is_derived_in_parts(session: Session, write: Write) -> None:
    write(session, "turn", "user", "user", "user", "user", "user")
    assert not session.prepare_messages(2)
    assert not session.prepare_messages(2)
    assert session.prepare_messages(2)
    assert session.prepare_messages(2)
    assert session.derive_messages() == Session("x", seed=session.events.prefix()).derive_messages()

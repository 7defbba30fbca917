import logging
from collections.abc import Callable
from typing import Any

import pytest

from session_core import (
    APPEND,
    Event,
    EventLogBuilder,
    FrozenDict,
    InvariantTrace,
    InvariantViolationError,
    Replace,
    SeedError,
    Session,
    SessionStore,
    StoreListener,
    SurfaceIntent,
    compute_closers,
    state_of,
    trace_of,
)

Write = Callable[..., list[Event]]

RESULT: dict[str, Any] = {"turn": 1, "step": 1, "callId": "c1", "content": [], "isError": True}
NOT_STARTED = {"name": "ToolNotStartedError", "code": "TOOL_NOT_STARTED"}


def assert_vetoed(session: Session, append: Callable[[], object]) -> None:
    before = session.events
    with pytest.raises(InvariantViolationError) as info:
        append()
    assert info.value.seq == len(before)
    assert session.events is before


@pytest.mark.rule("turns-and-steps-nest")
@pytest.mark.parametrize(
    "word", ["user a", "steer a", "todo a", "context a", "plugin a", "blocked a"]
)
def test_every_event_is_inside_a_turn(live: Session, write: Write, word: str) -> None:
    assert_vetoed(live, lambda: write(live, word))
    assert_vetoed(live, lambda: live.append("x/unknown", {}))
    write(live, "turn", word, "/turn")
    assert_vetoed(live, lambda: write(live, word))


@pytest.mark.rule("turns-and-steps-nest")
def test_turns_do_not_nest_and_count_up(live: Session, write: Write) -> None:
    def start(turn: int) -> Event:
        return live.append("turn/start", {"turn": turn, "trigger": {"kind": "x"}})

    assert_vetoed(live, lambda: start(2))
    start(1)
    assert_vetoed(live, lambda: start(1))
    assert_vetoed(live, lambda: start(2))
    reason = {"kind": "completed"}
    assert_vetoed(live, lambda: live.append("turn/end", {"turn": 2, "reason": reason}))
    write(live, "/turn")
    assert_vetoed(live, lambda: live.append("turn/end", {"turn": 1, "reason": reason}))
    assert_vetoed(live, lambda: start(1))
    assert_vetoed(live, lambda: start(3))
    start(2)


@pytest.mark.rule("turns-and-steps-nest")
def test_a_turn_does_not_end_inside_a_step(live: Session, write: Write) -> None:
    write(live, "turn", "step")
    assert_vetoed(live, lambda: write(live, "/turn"))
    write(live, "/step", "/turn")


@pytest.mark.rule("turns-and-steps-nest")
def test_steps_count_up_and_start_anew_in_each_turn(live: Session, write: Write) -> None:
    def start(step: int, turn: int = 1) -> Event:
        return live.append("step/start", {"turn": turn, "step": step})

    assert_vetoed(live, lambda: start(1))
    write(live, "turn")
    assert_vetoed(live, lambda: start(2))
    assert_vetoed(live, lambda: start(1, turn=2))
    start(1)
    assert_vetoed(live, lambda: start(2))
    write(live, "/step")
    assert_vetoed(live, lambda: start(1))
    start(2)
    assert_vetoed(live, lambda: live.append("step/end", {"turn": 1, "step": 1}))
    write(live, "/step", "/turn", "turn")
    assert_vetoed(live, lambda: start(3, turn=2))
    start(1, turn=2)


@pytest.mark.rule("turns-and-steps-nest")
def test_chunks_messages_and_calls_name_the_open_step(live: Session, write: Write) -> None:
    write(live, "turn")
    for word in ("delta a", "say a", "call c1"):
        assert_vetoed(live, lambda word=word: write(live, word))  # type: ignore[misc]
    write(live, "step", "delta a")
    assert_vetoed(live, lambda: live.append_delta(1, 2, "text-delta", 0, "a"))
    assert_vetoed(live, lambda: live.append_delta(2, 1, "text-delta", 0, "a"))
    write(live, "delta b", "/step")
    assert_vetoed(live, lambda: live.append_delta(1, 1, "text-delta", 0, "a"))
    write(live, "step")
    assert_vetoed(live, lambda: live.append_delta(1, 1, "text-delta", 0, "a"))
    live.append_delta(1, 2, "text-delta", 0, "a")


@pytest.mark.rule("results-answer-calls-in-step")
def test_a_result_answers_a_call_of_its_step(live: Session, write: Write) -> None:
    write(live, "turn", "step", "ask c1")
    assert_vetoed(live, lambda: write(live, "result c1"))
    fine = {**RESULT, "error": NOT_STARTED, "isError": False}
    assert_vetoed(live, lambda: live.append("tool/result", fine, APPEND))
    other = {**RESULT, "error": {"name": "E", "code": "E"}}
    assert_vetoed(live, lambda: live.append("tool/result", other, APPEND))
    live.append("tool/result", {**RESULT, "error": NOT_STARTED}, APPEND)
    write(live, "call c1", "result c1")
    assert_vetoed(live, lambda: write(live, "result c1"))


@pytest.mark.rule("results-answer-calls-in-step")
def test_a_step_may_leave_calls_which_the_next_cannot_answer(live: Session, write: Write) -> None:
    write(live, "turn", "step", "ask c1", "call c1", "/step", "step")
    assert_vetoed(live, lambda: live.append("tool/result", {**RESULT, "step": 2}, APPEND))
    assert_vetoed(live, lambda: live.append("tool/result", RESULT, APPEND))


@pytest.mark.rule("results-answer-calls-in-step")
def test_a_result_is_rewritten_in_any_open_turn(live: Session, write: Write) -> None:
    write(live, "turn", "step", "ask c1", "call c1")
    original = write(live, "result c1")[0]
    write(live, "/step", "/turn")
    short = {**original.data, "content": []}
    intent = SurfaceIntent(Replace(original.seq, original.seq), [original.seq])
    assert_vetoed(live, lambda: live.append("tool/result", short, intent))
    write(live, "turn injection")
    live.append("tool/result", short, intent)


@pytest.mark.rule("vetoed-candidates-leave-no-trace", "refused-append-changes-nothing")
def test_a_candidate_that_another_vetoes_does_not_move_the_trace(
    store: SessionStore, write: Write
) -> None:
    class Veto(StoreListener):
        active = True

        def before_append(self, session: Session, event: Event) -> None:
            if self.active:
                raise PermissionError

    veto = Veto()
    store.subscribe(veto)
    session = store.create("s")
    for _ in range(2):
        with pytest.raises(PermissionError):
            write(session, "turn")
    veto.active = False
    write(session, "turn", "step")
    veto.active = True
    for word in ("call c1", "/step", "delta a"):
        with pytest.raises(PermissionError):
            write(session, word)
    veto.active = False
    assert_vetoed(session, lambda: write(session, "result c1"))
    write(session, "call c1", "result c1", "/step")


@pytest.mark.rule("repaired-logs-keep-invariants")
def test_a_seed_that_breaks_the_order_makes_no_session(
    store: SessionStore, session: Session, write: Write
) -> None:
    write(session, "user outside")
    with pytest.raises(InvariantViolationError):
        store.create("s", seed=list(session.events))
    assert store.get("s") is None
    with pytest.raises(InvariantViolationError):
        store.enter(session)
    assert store.get("bare") is None
    assert session.publication is None
    unguarded = SessionStore(invariants=False)
    unguarded.create("s", seed=list(session.events)).append("x/y", {})


@pytest.mark.rule("stored-violations-are-reported")
def test_a_log_read_back_may_break_the_order_and_goes_on(
    store: SessionStore, session: Session, write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    write(session, "user outside", "turn", "step", "delta a", "/turn", "delta b", "delta c")
    builder = EventLogBuilder()
    builder.extend(session.events)
    with caplog.at_level(logging.WARNING):
        loaded = store.create("s", seed=builder.build())
    assert len(caplog.records) == 3
    write(loaded, "turn", "user again", "/turn")
    assert_vetoed(loaded, lambda: write(loaded, "user outside"))
    state = state_of(session.events)
    trace, violations = state.trace, state.violations
    assert [(v.seq, v.event_type) for v in violations] == [
        (0, "user/message"),
        (4, "turn/end"),
        (5, "assistant/chunk"),
    ]
    assert trace.next_turn == 2


@pytest.mark.rule("repaired-logs-keep-invariants")
def test_a_repaired_log_keeps_the_order(session: Session, write: Write) -> None:
    write(session, "turn", "user a", "step", "ask c1 c2 c3", "call c2", "result c2", "call c3")
    repaired = [*session.events, *compute_closers(session.events)]
    assert trace_of(repaired).turn is None
    assert [event.type for event in repaired[-4:]] == [
        "tool/result",
        "tool/result",
        "step/end",
        "turn/end",
    ]


@pytest.mark.rule("seq-counts-from-zero")
def test_seqs_go_up() -> None:
    trace = InvariantTrace()
    start = Event("turn/start", 3, 0, FrozenDict({"turn": 1, "trigger": {"kind": "x"}}))
    trace.check(start)
    trace.advance(start)
    with pytest.raises(InvariantViolationError, match="seq"):
        trace.check(start._replace(type="x/y"))
    trace.check(start._replace(type="x/y", seq=9))


def test_a_packed_run_is_checked_as_its_members_are(session: Session, write: Write) -> None:
    write(session, "turn", "step", *["delta a"] * 5)
    assert trace_of(session.events).last_seq == 6
    assert trace_of(list(session.events)).last_seq == 6
    write(session, "/step", *["delta a"] * 3)
    for events in (session.events, list(session.events)):
        with pytest.raises(InvariantViolationError) as info:
            trace_of(events)
        assert info.value.seq == 8
    run = list(session.events.records())[2]
    assert not isinstance(run, Event)
    trace = trace_of(session.events.prefix(7))
    with pytest.raises(InvariantViolationError, match="seq"):
        trace.check_run(run)


def test_a_seed_error_is_not_an_order_error(store: SessionStore) -> None:
    with pytest.raises(SeedError):
        store.create("s", seed=[{"type": "x/y", "seq": 5, "time": 0, "data": {}}])

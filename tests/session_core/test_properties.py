"""Properties over random legal logs: whatever was appended, the derived things agree."""

import json
from collections import Counter
from collections.abc import Callable
from itertools import count, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from session_core import (
    APPEND,
    DeltaKind,
    Event,
    EventLogBuilder,
    FrozenDict,
    Message,
    Replace,
    Session,
    SessionStore,
    SurfaceError,
    SurfaceIntent,
    compute_closers,
    decode_storage_record,
    decode_storage_run,
    fold_request_header,
    fold_surface,
    pack_records,
    snapshot_json_value,
    trace_of,
)

# Examples are small and many run side by side; what is asserted does not depend on their speed.
quick = settings(deadline=None, max_examples=60)

USER = {"kind": "user"}
PROVENANCE = {"provider": "p", "model": "m"}

Op = tuple[str, int]
"""What to append, and a number that settles the details."""


class Writer:
    """Plays operations on a live session with the invariants on; leaves out what is not legal."""

    def __init__(self) -> None:
        times = count(1000)
        self.session = SessionStore(lambda: next(times)).create("s")
        self.turn = 0
        self.step = 0
        self.in_turn = False
        self.in_step = False
        self.asked: list[str] = []
        self.called: list[str] = []
        self.ids = count()

    def play(self, op: Op) -> None:
        verb, number = op
        getattr(self, verb)(number)

    def begin_turn(self, _n: int) -> None:
        if not self.in_turn:
            self.turn, self.step, self.in_turn = self.turn + 1, 0, True
            trigger = {"kind": "message", "source": USER}
            self.session.append("turn/start", {"turn": self.turn, "trigger": trigger})

    def end_turn(self, _n: int) -> None:
        if self.in_turn and not self.in_step:
            self.in_turn = False
            reason = {"kind": "completed"}
            self.session.append("turn/end", {"turn": self.turn, "reason": reason})

    def begin_step(self, _n: int) -> None:
        if self.in_turn and not self.in_step:
            self.step, self.in_step = self.step + 1, True
            self.session.append("step/start", self.here())

    def end_step(self, _n: int) -> None:
        if self.in_step and not self.asked and not self.called:
            self.in_step = False
            self.session.append("step/end", self.here())

    def user(self, n: int) -> None:
        if self.in_turn:
            types = ("user/message", "context/message")
            data = {"content": text(f"user {n}"), "source": USER}
            self.session.append(types[n % 2], data, APPEND)

    def delta(self, n: int) -> None:
        if self.in_step:
            kinds: tuple[DeltaKind, ...] = ("text-delta", "text-delta", "reasoning-delta")
            for _ in range(n % 7):
                self.session.append_delta(self.turn, self.step, kinds[n % 3], n % 2, f"t{n}")

    def say(self, n: int) -> None:
        if self.in_step:
            sources = list(range(max(0, self.session.seq - n % 40), self.session.seq))
            content = text("say") if n % 3 else []
            self.assistant(content, sources if n % 2 else None)

    def ask(self, n: int) -> None:
        if self.in_step:
            asked = [f"c{next(self.ids)}" for _ in range(n % 3 + 1)]
            self.assistant(
                [{"type": "tool-call", "id": i, "name": "t", "arguments": ""} for i in asked],
                None,
            )
            self.asked += asked

    def call(self, n: int) -> None:
        if self.asked:
            call_id = self.asked.pop(n % len(self.asked))
            data = {**self.here(), "callId": call_id, "name": "t", "arguments": ""}
            self.session.append("tool/call", data)
            self.called.append(call_id)

    def result(self, n: int) -> None:
        if self.called:
            call_id = self.called.pop(n % len(self.called))
            data = {**self.here(), "callId": call_id, "content": text("r"), "isError": n % 2 == 0}
            self.session.append("tool/result", data, APPEND)

    def replace(self, n: int) -> None:
        nodes = self.session.surface.nodes
        if self.in_turn and nodes:
            first = n % len(nodes)
            last = min(first + n % 4, len(nodes) - 1)
            sources = list(nodes[first : last + 1])[:: -1 if n % 2 else 1]
            data = {"content": text("summary"), "source": USER}
            intent = SurfaceIntent(Replace(nodes[first], nodes[last]), sources)
            self.session.append("user/message", data, intent)

    def prune(self, n: int) -> None:
        results = [
            seq
            for seq in self.session.surface.nodes
            if self.session.events[seq].type == "tool/result"
        ]
        if self.in_turn and results:
            seq = results[n % len(results)]
            data = {**self.session.events[seq].data, "content": text(f"pruned {n}")}
            self.session.append("tool/result", data, SurfaceIntent(Replace(seq, seq), [seq]))

    def other(self, n: int) -> None:
        if self.in_turn:
            header = {"config": PROVENANCE, "system": f"s{n % 3}"}
            others: list[tuple[str, dict[str, Any]]] = [
                ("todo/write", {"todos": []}),
                ("x/unknown", {"n": n}),
                ("request/header", {"header": header, "reason": "change"}),
            ]
            self.session.append(*others[n % 3])

    def here(self) -> dict[str, int]:
        return {"turn": self.turn, "step": self.step}

    def assistant(self, content: list[Any], sources: list[int] | None) -> None:
        data = {**self.here(), "content": content, "provenance": PROVENANCE}
        self.session.append("assistant/message", data, SurfaceIntent("append", sources))


def text(value: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": value}]


GROWING = (
    *("begin_turn", "end_turn", "begin_step", "end_step", "user", "delta", "delta"),
    *("say", "ask", "call", "call", "result", "result", "other"),
)


def operations(*more: str) -> st.SearchStrategy[list[Op]]:
    op = st.tuples(st.sampled_from((*GROWING, *more)), st.integers(0, 10_000))
    # A turn and a step to begin with, as most operations need one.
    return st.lists(op, max_size=60).map(
        lambda ops: [("begin_turn", 0), ("user", 0), ("begin_step", 0), *ops]
    )


@pytest.mark.rule("fold-equals-live-surface", "derivation-is-incremental")
@quick
@given(operations("replace", "prune"), st.integers(1, 7))
def test_live_surface_messages_and_header_are_those_of_a_fold_at_every_prefix(
    ops: list[Op], every: int
) -> None:
    writer = Writer()
    session = writer.session
    for number, op in enumerate(ops):
        writer.play(op)
        if number % every == 0:
            session.derive_messages()
            session.request_header()
    live = Session("replayed")
    for event in session.events:
        if event.surface_op is None:
            live.append(event.type, event.data)
        else:
            live.append(
                event.type, event.data, SurfaceIntent(event.surface_op, event.source_event_seqs)
            )
        prefix = session.events.prefix(live.seq)
        scratch = Session("scratch", seed=prefix)
        assert live.surface.nodes == scratch.surface.nodes == fold_surface(prefix).nodes
        assert live.derive_messages() == scratch.derive_messages()
        assert live.request_header() == fold_request_header(prefix)
    assert session.surface.nodes == live.surface.nodes
    assert session.derive_messages() == live.derive_messages()
    assert session.request_header() == live.request_header()
    assert fold_surface(list(session.events)) == fold_surface(session.events)


Illegal = tuple[str, dict[str, Any], SurfaceIntent | None]


def prompt(intent: SurfaceIntent | None) -> Illegal:
    return "user/message", {"content": [], "source": USER}, intent


def replacing(start: Any, end: Any, sources: Any) -> Illegal:
    return prompt(SurfaceIntent(Replace(start, end), sources))


def off_surface(session: Session) -> int:
    return next(seq for seq in range(session.seq + 1) if seq not in session.surface.nodes)


def reversed_range(session: Session) -> Illegal | None:
    nodes = session.surface.nodes
    return replacing(nodes[-1], nodes[0], nodes) if len(nodes) > 1 else None


def uncited(session: Session) -> Illegal | None:
    nodes = session.surface.nodes
    return replacing(nodes[0], nodes[-1], nodes[1:]) if len(nodes) > 1 else None


def two_results(session: Session) -> Illegal | None:
    nodes = session.surface.nodes
    for first, second in pairwise(nodes):
        event = session.events[second]
        if event.type == "tool/result":
            intent = SurfaceIntent(Replace(first, second), [first, second])
            return event.type, dict(event.data), intent
    return None


def rewritten_result(session: Session) -> Illegal | None:
    for seq in session.surface.nodes:
        event = session.events[seq]
        if event.type == "tool/result":
            data = {**event.data, "isError": not event.data["isError"]}
            return event.type, data, SurfaceIntent(Replace(seq, seq), [seq])
    return None


def result_for_message(session: Session) -> Illegal | None:
    for seq in session.surface.nodes:
        if session.events[seq].type != "tool/result":
            data = {"turn": 1, "step": 1, "callId": "c", "content": [], "isError": False}
            return "tool/result", data, SurfaceIntent(Replace(seq, seq), [seq])
    return None


KINDS: dict[str, Callable[[Session], Illegal | None]] = {
    "log-only with op": lambda s: ("todo/write", {"todos": []}, APPEND),
    "log-only with sources": lambda s: ("todo/write", {"todos": []}, SurfaceIntent(None, [0])),  # type: ignore[arg-type]
    "unknown with op": lambda s: ("x/y", {}, APPEND),
    "surface type without op": lambda s: prompt(None),
    "op of another kind": lambda s: prompt(SurfaceIntent({"op": "insert"})),
    "op with more keys": lambda s: prompt(
        SurfaceIntent({"op": "replace", "start": 1, "end": 1, "x": 1}, [1])
    ),
    "op with a bool": lambda s: replacing(True, True, [1]),
    "sources no array": lambda s: prompt(SurfaceIntent("append", "0")),  # type: ignore[arg-type]
    "source no seq": lambda s: prompt(SurfaceIntent("append", [-1])),
    "source a float": lambda s: prompt(SurfaceIntent("append", [0.0])),  # type: ignore[list-item]
    "empty sources": lambda s: prompt(SurfaceIntent("append", [])),
    "source twice": lambda s: prompt(SurfaceIntent("append", [0, 0])),
    "source itself": lambda s: prompt(SurfaceIntent("append", [s.seq])),
    "source later": lambda s: prompt(SurfaceIntent("append", range(s.seq - 1, s.seq + 40))),
    "start off the surface": lambda s: replacing(off_surface(s), 1, [1]),
    "end off the surface": lambda s: (
        replacing(s.surface.nodes[0], off_surface(s), s.surface.nodes) if s.surface.nodes else None
    ),
    "range reversed": reversed_range,
    "shadowed uncited": uncited,
    "replace without sources": lambda s: (
        replacing(s.surface.nodes[0], s.surface.nodes[0], None) if s.surface.nodes else None
    ),
    "result replacing two": two_results,
    "result replacing a message": result_for_message,
    "result changed": rewritten_result,
}


@pytest.mark.rule(
    "replacement-swaps-one-slice",
    "surface-op-has-two-forms",
    "sources-name-earlier-events",
    "replacement-cites-what-it-shadows",
    "replaced-range-is-positional",
    "replaced-results-change-content-only",
)
def test_no_illegal_operation_of_any_kind_changes_anything() -> None:
    tried: Counter[str] = Counter()

    @quick
    @given(operations("replace", "prune"))
    def check(ops: list[Op]) -> None:
        writer = Writer()
        for op in ops:
            writer.play(op)
        # Whatever came before, the surface now ends in two messages and a result.
        for verb in ("begin_turn", "begin_step", "user", "ask", "call", "result"):
            writer.play((verb, 0))
        session = writer.session
        events, surface = session.events, session.surface
        before = (surface.nodes, surface.replace_generation, session.derive_messages())
        for kind, make in KINDS.items():
            illegal = make(session)
            if illegal is None:
                continue
            tried[kind] += 1
            with pytest.raises(SurfaceError):
                session.append(*illegal)
            assert session.events is events
            assert (surface.nodes, surface.replace_generation) == before[:2]
            assert session.derive_messages() == before[2]
        writer.user(0)
        assert session.seq == len(events) + 1

    check()
    assert set(tried) == set(KINDS)


scalars = st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text()
numbers = st.floats(allow_nan=False, allow_infinity=False).filter(lambda f: str(f) != "-0.0")
json_values = st.recursive(
    scalars | numbers,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@pytest.mark.rule("json-values-are-lossless")
@quick
@given(json_values)
def test_a_snapshot_is_the_same_json(value: Any) -> None:
    snapshot = snapshot_json_value(value)
    assert json.dumps(snapshot) == json.dumps(value)
    assert snapshot == value


indexes = st.sampled_from([0, 1, 1.0, True, "0", None])
few_texts = st.text(max_size=3)
chunks = st.one_of(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["text-delta", "reasoning-delta"]), "text": few_texts},
        optional={"index": indexes},
    ),
    st.fixed_dictionaries(
        {"type": st.just("text-delta"), "index": st.just(0), "text": few_texts},
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("tool-call-delta"),
            "index": st.just(0),
            "id": st.sampled_from(["a", "b"]),
            "argumentsDelta": few_texts,
        },
        optional={"name": st.sampled_from(["n", "m", None])},
    ),
    st.fixed_dictionaries({"type": st.just("block-start"), "index": st.just(0)}),
)
payloads = st.fixed_dictionaries(
    {"turn": st.sampled_from([1, 1, 1, 2, 1.0]), "step": st.just(1), "chunk": chunks},
    optional={"extra": st.just(1)},
)


@st.composite
def batches(draw: st.DrawFn) -> list[Event]:
    """Events as an append may get them: mostly runs of deltas, with gaps, odd shapes and times."""
    events: list[Event] = []
    seq, time = draw(st.integers(0, 5)), draw(st.integers(0, 5))
    for _ in range(draw(st.integers(0, 12))):
        data = FrozenDict(draw(payloads))
        for _ in range(draw(st.integers(1, 6))):
            events.append(Event("assistant/chunk", seq, time, data))
            seq += draw(st.sampled_from([1, 1, 1, 1, 1, 2]))
            time = max(0, time + draw(st.integers(-3, 30)))
    return events


def exactly(events: list[Any]) -> str:
    """Return a text that differs where Python's equality does not: 1, 1.0 and True."""
    return json.dumps([event.to_json() for event in events], sort_keys=True)


@pytest.mark.rule("token-borders-are-kept", "run-breaks-where-members-differ")
@quick
@given(batches())
def test_what_is_packed_is_read_back_exactly(events: list[Event]) -> None:
    stored = json.loads(json.dumps(pack_records(events)))
    decoded = [event for record in stored for event in decode_storage_record(record)]
    assert exactly(decoded) == exactly(events)
    runs = [decode_storage_run(record) for record in stored]
    assert json.loads(json.dumps(pack_records(runs))) == stored


@quick
@given(operations("replace", "prune"), st.data())
def test_a_log_read_back_is_the_log_that_was_written(ops: list[Op], data: st.DataObject) -> None:
    writer = Writer()
    for op in ops:
        writer.play(op)
    events = writer.session.events
    cut = data.draw(st.integers(0, len(events)))
    stored = pack_records(events.records(0, cut)) + pack_records(events.records(cut))
    builder = EventLogBuilder()
    for record in json.loads(json.dumps(stored)):
        builder.add(decode_storage_run(record))
    log = builder.build()
    assert events == list(log)
    assert Session("s", seed=log).derive_messages() == writer.session.derive_messages()
    start, stop = sorted((cut, data.draw(st.integers(0, len(events)))))
    unpacked = [
        event
        for record in log.records(start, stop)
        for event in ([record] if isinstance(record, Event) else record)
    ]
    assert unpacked == list(events[start:stop])


def unanswered(messages: list[Message]) -> set[str]:
    blocks = [block for message in messages for block in message["content"]]
    asked = {block["id"] for block in blocks if block["type"] == "tool-call"}
    answered = {block["toolCallId"] for block in blocks if block["type"] == "tool-result"}
    return asked - answered


@pytest.mark.rule(
    "repair-happens-once", "repaired-history-is-paired", "repaired-logs-keep-invariants"
)
@quick
@given(operations())
def test_every_prefix_of_a_log_can_be_repaired(ops: list[Op]) -> None:
    writer = Writer()
    for op in ops:
        writer.play(op)
    events = writer.session.events
    for length in range(len(events) + 1):
        closers = compute_closers(events.prefix(length))
        repaired = [*events[:length], *closers]
        trace = trace_of(repaired)
        assert trace.turn is None
        builder = EventLogBuilder()
        builder.extend(repaired)
        log = builder.build()
        assert compute_closers(log) == []
        resumed = Session("resumed", seed=log)
        assert unanswered(resumed.derive_messages()) == set()
        if length:
            assert {closer.time for closer in closers} <= {events[length - 1].time}


deltas = st.one_of(
    st.tuples(
        st.integers(1, 2),
        st.integers(1, 2),
        st.sampled_from(["text-delta", "reasoning-delta"]),
        st.integers(-1, 1),
        few_texts,
    ),
    st.tuples(
        st.just(1),
        st.just(1),
        st.just("tool-call-delta"),
        st.just(0),
        few_texts,
        st.sampled_from(["", "c1", "c2"]),
        st.sampled_from([None, "", "read"]),
    ),
)


def payload_of(delta: Any) -> dict[str, Any]:
    turn, step, kind, index, value, *call = delta
    chunk: dict[str, Any] = {"type": kind, "index": index}
    if call:
        call_id, name = call
        named = {} if name is None else {"name": name}
        chunk |= {"id": call_id, **named, "argumentsDelta": value}
    else:
        chunk["text"] = value
    return {"turn": turn, "step": step, "chunk": chunk}


@quick
@given(st.lists(deltas.flatmap(lambda d: st.integers(1, 4).map(lambda n: [d] * n)), max_size=12))
def test_a_delta_by_either_door_is_the_same_event(groups: list[list[Any]]) -> None:
    fast, plain = (Session("s", clock=count().__next__) for _ in range(2))
    seeds: list[dict[str, Any]] = []
    for delta in (delta for group in groups for delta in group):
        one = fast.append_delta(*delta)
        other = plain.append("assistant/chunk", payload_of(delta))
        assert one == other
        assert one.to_json() == other.to_json()
        seeds.append(one.to_json())
    assert fast.events == plain.events == Session("seeded", seed=seeds).events
    assert list(fast.events.records()) == list(plain.events.records())
    assert pack_records(fast.events.records()) == pack_records(list(plain.events))

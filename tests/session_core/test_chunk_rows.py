import json
from collections.abc import Sequence
from typing import Any

import pytest

from session_core import (
    ChunkRun,
    Event,
    EventLogBuilder,
    FrozenDict,
    MalformedRowError,
    Record,
    decode_storage_record,
    decode_storage_run,
    event_from_json,
    pack_records,
)

MAX = 2**53 - 1


def chunk(seq: int, chunk: dict[str, Any], *, time: int = 5, turn: Any = 1, step: Any = 1) -> Event:
    data = FrozenDict({"turn": turn, "step": step, "chunk": chunk})
    return Event("assistant/chunk", seq, time, data)


def text(seq: int, text: str = "x", *, index: Any = 0, **more: Any) -> Event:
    return chunk(seq, {"type": "text-delta", "index": index, "text": text}, **more)


def reasoning(seq: int, text: str = "x", *, index: int = 0) -> Event:
    return chunk(seq, {"type": "reasoning-delta", "index": index, "text": text})


def call(seq: int, arguments: str, *, time: int = 5, name: str | None = None) -> Event:
    named = {} if name is None else {"name": name}
    delta = {
        "type": "tool-call-delta",
        "index": 1,
        "id": "c9",
        **named,
        "argumentsDelta": arguments,
    }
    return chunk(seq, delta, time=time, step=2)


def types(stored: Sequence[dict[str, Any]]) -> list[str]:
    return [record["type"] for record in stored]


def decoded(stored: Sequence[dict[str, Any]]) -> list[Event]:
    """Return the events after a way through JSON text."""
    return [event for s in stored for event in decode_storage_record(json.loads(json.dumps(s)))]


def assert_verbatim(events: list[Event]) -> None:
    stored = pack_records(events)
    assert stored == [event.to_json() for event in events]
    assert decoded(stored) == events


@pytest.mark.rule("delta-runs-are-packed")
def test_two_are_stored_as_they_are_and_three_as_a_row() -> None:
    assert_verbatim([text(0), text(1)])
    assert types(pack_records([text(0), text(1), text(2)])) == ["text-chunks"]
    assert pack_records([]) == []


@pytest.mark.rule("delta-runs-are-packed", "token-borders-are-kept")
def test_example_a_four_text_deltas() -> None:
    events = [
        text(10, "Hel", time=1000, turn=2),
        text(11, "lo", time=1003, turn=2),
        text(12, "", time=1003, turn=2),
        text(13, " w", time=1001, turn=2),
    ]
    stored = pack_records(events)
    assert json.dumps(stored[0], separators=(",", ":")) == (
        '{"type":"text-chunks","seq0":10,"time0":1000,"data":{"turn":2,"step":1,"index":0,'
        '"dt":[3,0,-2],"texts":["Hel","lo",""," w"]}}'
    )
    assert len(stored) == 1
    assert decoded(stored) == events


@pytest.mark.rule("delta-runs-are-packed", "run-breaks-where-members-differ")
def test_example_b_the_name_is_part_of_what_a_row_repeats() -> None:
    rest = [call(21, '{"p', time=5000), call(22, 'ath":', time=5005), call(23, '"a"}', time=5010)]
    first = call(20, "", time=4990, name="read")
    stored = pack_records([first, *rest])
    assert stored[0] == first.to_json()
    assert json.dumps(stored[1], separators=(",", ":")) == (
        '{"type":"tool-call-chunks","seq0":21,"time0":5000,"data":{"turn":1,"step":2,"index":1,'
        '"dt":[5,5],"id":"c9","args":["{\\"p","ath\\":","\\"a\\"}"]}}'
    )
    assert decoded(stored) == [first, *rest]
    named = [call(seq, "x", name="read") for seq in range(20, 24)]
    [row] = pack_records(named)
    assert list(row["data"]) == ["turn", "step", "index", "dt", "id", "name", "args"]
    assert decoded([row]) == named
    mixed = [call(seq, "x", name=name) for seq, name in enumerate(["a", "a", "b", "b", None, None])]
    assert_verbatim(mixed)


@pytest.mark.rule("delta-runs-are-packed")
def test_example_c_blocks_and_kinds_part_runs() -> None:
    events = [
        chunk(0, {"type": "block-start", "index": 0, "blockType": "reasoning"}),
        *(reasoning(seq) for seq in (1, 2, 3)),
        chunk(4, {"type": "block-end", "index": 0, "block": {"type": "reasoning", "text": "xxx"}}),
        chunk(5, {"type": "block-start", "index": 1, "blockType": "text"}),
        text(6, index=1),
        text(7, index=1),
        chunk(8, {"type": "finish", "reason": {"kind": "stop"}}),
    ]
    stored = pack_records(events)
    assert len(stored) == 7
    assert types(stored)[1] == "reasoning-chunks"
    assert decoded(stored) == events


@pytest.mark.rule("delta-runs-are-packed")
def test_example_d_how_a_stream_is_split_is_lost_on_reading() -> None:
    events = [text(seq, str(seq), time=seq * 10) for seq in range(5)]
    whole = pack_records(events)
    split = pack_records(events[:3]) + pack_records(events[3:])
    assert types(whole) == ["text-chunks"]
    assert types(split) == ["text-chunks", "assistant/chunk", "assistant/chunk"]
    assert decoded(whole) == decoded(split) == events


@pytest.mark.rule("delta-runs-are-packed", "only-plain-deltas-are-packed")
@pytest.mark.parametrize(
    "odd",
    [
        text(30),
        text(3, step=2),
        text(3, turn=2),
        text(3, index=1),
        reasoning(3),
        chunk(3, {"type": "text-delta", "index": 0, "text": "x", "extra": 1}),
        chunk(3, {"type": "text-delta", "index": 0}),
        chunk(3, {"type": "text-delta", "index": 0, "text": 5}),
        chunk(3, {"type": "text-delta", "index": "0", "text": "x"}),
        chunk(3, {"type": "tool-call-delta", "index": 0, "id": "c", "argumentsDelta": None}),
        chunk(3, {"type": "tool-call-delta", "index": 0, "id": "c", "text": "x"}),
        chunk(
            3,
            {
                "type": "tool-call-delta",
                "index": 0,
                "id": "c",
                "name": None,
                "argumentsDelta": "x",
            },
        ),
        chunk(3, {"type": "sound-delta", "index": 0, "text": "x"}),
        Event("x/y", 3, 5, text(3).data),
        text(3)._replace(source_event_seqs=(0,)),
        text(3)._replace(time=5.5),  # type: ignore[arg-type]
        text(3)._replace(data=FrozenDict({**text(3).data, "extra": 1})),
        text(3)._replace(data=FrozenDict({"turn": 1, "step": 1})),
        text(3)._replace(data=FrozenDict({"turn": 1, "step": 1, "chunk": "x"})),
    ],
)
def test_example_e_what_breaks_a_run(odd: Event) -> None:
    before, after = [text(0), text(1), text(2)], [text(5), text(6), text(7)]
    stored = pack_records([*before, odd, *after])
    assert types(stored) == ["text-chunks", odd.type, "text-chunks"]
    assert stored[1] == odd.to_json()


@pytest.mark.rule("only-plain-deltas-are-packed")
def test_a_gap_in_time_beyond_the_safe_integers_breaks_a_run() -> None:
    early, late = [text(seq, time=-MAX) for seq in range(3)], [text(3, time=MAX)]
    assert types(pack_records([*early, *late])) == ["text-chunks", "assistant/chunk"]


@pytest.mark.rule("token-borders-are-kept")
def test_token_borders_are_kept() -> None:
    events = [text(seq, part) for seq, part in enumerate(["", "", "ab", "", "c"])]
    [row] = pack_records(events)
    assert row["data"]["texts"] == ["", "", "ab", "", "c"]
    assert decoded([row]) == events


def row(**changes: Any) -> dict[str, Any]:
    good: dict[str, Any] = {
        "type": "text-chunks",
        "seq0": 4,
        "time0": 100,
        "data": {"turn": 1, "step": 1, "index": 0, "dt": [1, 2], "texts": ["a", "b", "c"]},
    }
    data = {**good["data"], **changes.pop("data", {})}
    whole = {**good, "data": data, **changes}
    whole["data"] = {key: value for key, value in whole["data"].items() if value is not ...}
    return {key: value for key, value in whole.items() if value is not ...}


def call_row(**data: Any) -> dict[str, Any]:
    call = {"texts": ..., "args": ["a", "b", "c"], "id": "c9"}
    return row(type="tool-call-chunks", data={**call, **data})


@pytest.mark.rule("malformed-rows-raise")
@pytest.mark.parametrize("members", [1, 2])
def test_short_rows_are_read(members: int) -> None:
    texts = ["a", "b"][:members]
    events = decode_storage_record(row(data={"texts": texts, "dt": [7] * (members - 1)}))
    assert [(e.seq, e.time, e.data["chunk"]["text"]) for e in events] == [
        (4, 100, "a"),
        (5, 107, "b"),
    ][:members]


@pytest.mark.rule("delta-runs-are-packed", "malformed-rows-raise")
@pytest.mark.parametrize(
    "bad",
    [
        row(data={"dt": [1, 2, 3]}),
        row(data={"dt": []}),
        row(data={"dt": [1, 1.5]}),
        row(data={"dt": [1, True]}),
        row(data={"dt": [MAX + 1, 0]}),
        row(data={"dt": [-MAX - 1, 0]}),
        row(data={"dt": [MAX, -MAX]}),
        row(data={"dt": None}),
        row(data={"texts": [], "dt": []}),
        row(data={"texts": ["a", 5, "c"]}),
        row(data={"texts": ["a", "\ud800", "c"]}),
        row(data={"texts": "abc"}),
        row(data={"n": 3}),
        row(data={"name": "read"}),
        row(data={"turn": "1"}),
        row(data={"turn": True}),
        row(data={"step": None}),
        row(data={"index": -0.0}),
        row(data={"index": float("nan")}),
        row(data={"index": ...}),
        row(seq0=-1),
        row(seq0=1.0),
        row(seq0=MAX),
        row(seq0=MAX - 1),
        row(time0=1.5),
        row(time0=MAX),
        row(time0="100"),
        row(time0=...),
        row(more=1),
        {"type": "text-chunks"},
        {**row(), "data": None},
        call_row(id=...),
        call_row(id=5),
        call_row(name=5),
        call_row(name=None),
        call_row(args=...),
        call_row(texts=["a"]),
    ],
)
def test_a_malformed_row_is_named_and_refused(bad: Any) -> None:
    for decode in (decode_storage_record, decode_storage_run):
        with pytest.raises(MalformedRowError, match=f"malformed {bad['type']} storage row"):
            decode(bad)


@pytest.mark.rule("malformed-rows-raise")
@pytest.mark.parametrize(
    "value", [None, 5, "text", [], {}, {"type": 5}, {"type": []}, {"type": "x/y", "seq": "?"}]
)
def test_what_is_no_row_passes_through(value: Any) -> None:
    [same] = decode_storage_record(value)
    assert same is value


@pytest.mark.rule("malformed-rows-raise")
def test_an_event_passes_through_whatever_its_payload() -> None:
    stored = {"type": "user/message", "seq": 3, "time": 4, "data": {"broken": True}}
    assert decode_storage_record(stored) == [event_from_json(stored)]
    assert decode_storage_run(stored) == event_from_json(stored)


@pytest.mark.rule("run-breaks-where-members-differ")
def test_neighbours_that_are_equal_in_python_only_are_kept_apart() -> None:
    indexes: list[Any] = [1, 1, 1, 1.0, 1.0, 1.0, True, True, True, 1]
    events = [text(seq, index=index) for seq, index in enumerate(indexes)]
    stored = pack_records(events)
    assert types(stored) == ["text-chunks", "text-chunks", *["assistant/chunk"] * 4]
    read = [event.data["chunk"]["index"] for event in decoded(stored)]
    assert [(type(index), index) for index in read] == [(type(i), i) for i in indexes]
    steps: list[Any] = [1, 1, 1, 1.0]
    stored = pack_records([text(seq, step=step) for seq, step in enumerate(steps)])
    assert types(stored) == ["text-chunks", "assistant/chunk"]


def test_a_run_read_is_the_row_written() -> None:
    run = decode_storage_run(row())
    assert isinstance(run, ChunkRun)
    assert (len(run), run.seq0, run.stop, run.times, run.last_time) == (
        3,
        4,
        7,
        (100, 101, 103),
        103,
    )
    assert (run.kind, run.key.turn, run.key.step, run.index) == ("text-delta", 1, 1, 0)
    assert (run.key.call_id, run.key.name) == (None, None)
    assert [run.event(k) for k in range(3)] == list(run)
    assert pack_records([run]) == [row()]
    named = decode_storage_run(call_row(name="read"))
    assert isinstance(named, ChunkRun)
    assert (named.key.call_id, named.key.name) == ("c9", "read")


def test_packed_neighbours_are_joined_into_one_row() -> None:
    events = [text(seq, str(seq), time=seq * seq) for seq in range(10)]
    builder = EventLogBuilder()
    builder.extend(events)
    run = next(builder.build().records())
    assert isinstance(run, ChunkRun)
    pieces: list[Record] = [run.slice(0, 4), run.slice(4, 5), events[5], run.slice(6, 10)]
    assert pack_records(pieces) == pack_records(events) == pack_records([run])
    apart: list[Record] = [run.slice(0, 4), run.slice(5, 10)]
    assert types(pack_records(apart)) == ["text-chunks", "text-chunks"]
    assert decoded(pack_records([run.slice(0, 2), run.slice(4, 6)])) == events[:2] + events[4:6]

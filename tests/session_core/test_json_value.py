import copy
import dataclasses
import datetime
import decimal
import enum
import json
import math
import pickle
from collections import OrderedDict
from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import Any

import orjson
import pytest

from session_core import (
    APPEND,
    INVALID,
    MAX_DATA_DEPTH,
    Event,
    FrozenDict,
    FrozenList,
    NotJsonError,
    PayloadError,
    SeedError,
    Session,
    SurfaceIntent,
    clean_text,
    is_json_value,
    is_same_json,
    is_seq_int,
    snapshot_json_value,
)
from session_core.json_value import freeze_json


class Colour(enum.Enum):
    RED = "red"


class Text(str):
    __slots__ = ()


@dataclasses.dataclass
class Point:
    x: int = 1


def nested(depth: int) -> Any:
    value: Any = "leaf"
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.rule("json-values-are-lossless")
@pytest.mark.parametrize("data", [{"n": -0.0}, {"deep": [{"n": [-0.0]}]}])
def test_negative_zero_is_refused_and_nothing_is_appended(session: Session, data: Any) -> None:
    with pytest.raises(NotJsonError, match="x/y"):
        session.append("x/y", data)
    assert session.seq == 0
    assert session.append("x/y", {"n": 0.0}).data == {"n": 0.0}


@pytest.mark.rule("json-values-are-lossless")
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_cannot_carry_are_refused(session: Session, number: float) -> None:
    with pytest.raises(NotJsonError):
        session.append("x/y", {"list": [1, [2, number]]})
    assert session.seq == 0


@pytest.mark.rule("json-values-are-lossless")
def test_a_cycle_is_refused_and_a_shared_part_is_copied_twice() -> None:
    cycle: list[Any] = []
    cycle.append({"again": cycle})
    assert snapshot_json_value(cycle) is INVALID
    shared = {"k": [1]}
    copied = snapshot_json_value([shared, shared])
    assert copied == [{"k": [1]}, {"k": [1]}]
    assert copied[0] is not shared
    assert copied[0] is not copied[1]


@pytest.mark.rule("nesting-is-not-recursive")
def test_depth_is_not_limited_by_the_call_stack() -> None:
    copied = snapshot_json_value(nested(5_000))
    for _ in range(5_000):
        assert type(copied) is FrozenList
        copied = copied[0]
    assert copied == "leaf"
    assert is_json_value({"a": nested(5_000)})


def test_a_payload_too_deep_to_be_written_is_refused_at_append(session: Session) -> None:
    # A payload's own object is one level.
    deepest = {"v": nested(MAX_DATA_DEPTH - 1)}
    event = session.append("x/y", deepest)
    assert json.loads(orjson.dumps(event.to_json()))["data"] == deepest
    with pytest.raises(NotJsonError, match="too deep"):
        session.append("x/y", {"v": nested(MAX_DATA_DEPTH)})
    frozen = FrozenDict({"v": nested(MAX_DATA_DEPTH)})
    with pytest.raises(NotJsonError, match="too deep"):
        session.append("x/y", frozen)
    with pytest.raises(NotJsonError, match="too deep"):
        session.append("x/y", {"v": [[frozen]]})
    with pytest.raises(SeedError):
        Session("deep", seed=[Event("x/y", 0, 0, frozen)])
    assert session.seq == 1


@pytest.mark.rule("json-values-are-lossless")
@pytest.mark.parametrize(
    "value",
    [
        (1, 2),
        {1},
        frozenset(),
        b"bytes",
        bytearray(),
        datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
        Colour.RED,
        Point(),
        Text("text"),
        OrderedDict(a=1),
        MappingProxyType({"a": 1}),
        decimal.Decimal(1),
        1j,
        range(3),
        object(),
        {1: "int key"},
        {Text("key"): 1},
        {None: 1},
        INVALID,
    ],
    ids=lambda value: type(value).__name__,
)
def test_only_the_plain_types_are_json(session: Session, value: object) -> None:
    assert snapshot_json_value(value) is INVALID
    assert snapshot_json_value([value]) is INVALID
    with pytest.raises(NotJsonError):
        session.append("x/y", {"value": value})
    assert session.seq == 0


@pytest.mark.rule("json-values-are-lossless")
def test_keys_with_a_meaning_elsewhere_are_ordinary_keys(session: Session) -> None:
    data = {"__proto__": {"x": 1}, "__class__": "c", "constructor": None, "": 0}
    event = session.append("x/y", data)
    assert dict(event.data) == data
    assert json.loads(json.dumps(event.to_json()))["data"] == data


class Fickle(list[Any]):
    """A sequence that says something else on each read, and counts them."""

    def __init__(self) -> None:
        super().__init__([0])
        self.reads = 0

    def __iter__(self) -> Iterator[int]:
        self.reads += 1
        return iter([self.reads - 1])


@pytest.mark.rule("snapshot-copies-in-one-pass")
def test_what_changes_between_reads_is_read_once(session: Session) -> None:
    session.append("x/y", {})
    session.append("x/y", {})
    sources = Fickle()
    data = {"content": [], "source": {"kind": "user"}}
    event = session.append("user/message", data, SurfaceIntent("append", sources))
    assert sources.reads == 1
    assert event.source_event_seqs == (0,)

    reads: list[int] = []

    def fickle_seed() -> Iterator[dict[str, Any]]:
        for seq in range(3):
            reads.append(seq)
            yield {"type": "x/y", "seq": seq, "time": 0, "data": {"read": len(reads)}}

    seeded = Session("seeded", seed=fickle_seed())
    assert reads == [0, 1, 2]
    assert [event.data["read"] for event in seeded.events] == [1, 2, 3]


@pytest.mark.rule("snapshot-copies-in-one-pass", "json-values-are-lossless")
def test_a_container_with_code_of_its_own_is_refused_unread() -> None:
    fickle = Fickle()
    assert snapshot_json_value({"value": fickle}) is INVALID
    assert fickle.reads == 0


@pytest.mark.rule("snapshot-copies-in-one-pass")
def test_what_a_read_raises_comes_out_unchanged(session: Session) -> None:
    class Broken(list[int]):
        def __iter__(self) -> Iterator[int]:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        session.append(
            "user/message",
            {"content": [], "source": {"kind": "user"}},
            SurfaceIntent("append", Broken()),
        )
    assert session.seq == 0

    def broken_seed() -> Iterator[Event]:
        yield Event("x/y", 0, 0, FrozenDict())
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Session("seeded", seed=broken_seed())


def test_clean_text_has_no_lone_surrogate() -> None:
    assert clean_text("a\ud800b\udfff 😀") == "a\ufffdb\ufffd 😀"
    assert clean_text("é") == "é"


@pytest.mark.rule("json-values-are-lossless")
@pytest.mark.parametrize("value", ["\ud800", "a\udfffb", 2**53, -(2**53), 2**64])
def test_what_no_reader_keeps_exactly_is_refused(session: Session, value: Any) -> None:
    with pytest.raises(NotJsonError):
        session.append("x/y", {"value": [value]})
    if isinstance(value, str):
        with pytest.raises(NotJsonError):
            session.append("x/y", {value: 1})
        with pytest.raises(NotJsonError):
            session.append(value, {})
        with pytest.raises(NotJsonError):
            session.append_delta(1, 1, "text-delta", 0, value)
    assert session.seq == 0
    assert is_json_value(["😀", 2**53 - 1, -(2**53) + 1])


@pytest.mark.rule("booleans-are-not-integers")
def test_true_is_no_number(session: Session) -> None:
    trigger = {"kind": "message", "source": {"kind": "user"}}
    with pytest.raises(PayloadError):
        session.append("turn/start", {"turn": True, "trigger": trigger})
    with pytest.raises(PayloadError):
        session.append_delta(True, 1, "text-delta", 0, "a")
    session.append_delta(1, 1, "text-delta", 1, "a")
    with pytest.raises(PayloadError):
        session.append_delta(True, 1, "text-delta", 1, "b")
    with pytest.raises(PayloadError):
        session.append_delta(1, True, "text-delta", 1, "b")
    with pytest.raises(PayloadError):
        session.append_delta(1, 1, "text-delta", True, "b")
    with pytest.raises(SeedError):
        Session("x", seed=[{"type": "x/y", "seq": False, "time": 0, "data": {}}])
    assert not is_seq_int(True)
    assert session.seq == 1


def test_frozen_values_equal_plain_ones_and_never_change() -> None:
    plain = {"a": [1, {"b": [None, True, 1.5]}], "c": "d"}
    frozen = FrozenDict(plain)
    assert frozen == plain
    assert orjson.loads(orjson.dumps(frozen)) == plain
    inner: Any = frozen["a"]
    target: Any = frozen
    attempts: list[Callable[[], object]] = [
        lambda: target.update(x=1),
        lambda: target.__setitem__("a", 1),
        lambda: target.__delitem__("a"),
        lambda: target.pop("a"),
        target.popitem,
        target.clear,
        lambda: target.setdefault("x", 1),
        lambda: target.__ior__({"x": 1}),
        lambda: inner.append(1),
        lambda: inner.extend([1]),
        lambda: inner.insert(0, 1),
        inner.pop,
        lambda: inner.remove(1),
        inner.clear,
        inner.sort,
        inner.reverse,
        lambda: inner.__setitem__(0, 2),
        lambda: inner.__delitem__(0),
        lambda: inner.__iadd__([1]),
        lambda: inner.__imul__(2),
    ]
    for attempt in attempts:
        with pytest.raises(TypeError, match="immutable"):
            attempt()
    target.__init__({"x": 1})
    inner.__init__([9])
    assert frozen == plain


def test_frozen_values_are_their_own_copies_and_survive_pickling() -> None:
    frozen = FrozenDict({"a": [1]})
    assert copy.copy(frozen) is frozen
    assert copy.deepcopy(frozen) is frozen
    assert copy.deepcopy(frozen["a"]) is frozen["a"]
    assert copy.copy(frozen["a"]) is frozen["a"]
    thawed = pickle.loads(pickle.dumps(frozen))
    assert thawed == frozen
    assert type(thawed["a"]) is FrozenList
    assert type(frozen.copy()) is dict


def test_a_frozen_container_cannot_hold_what_is_not_json() -> None:
    with pytest.raises(NotJsonError):
        FrozenDict({"a": object()})
    with pytest.raises(NotJsonError):
        FrozenList([object()])
    not_an_object: Any = []
    with pytest.raises(NotJsonError):
        FrozenDict(not_an_object)
    assert FrozenList(FrozenList([1])) == [1]
    assert FrozenDict() == {}


@pytest.mark.parametrize("limit", [1, 2, 49, 50, 51, 52, 120])
def test_a_depth_limit_counts_containers(limit: int) -> None:
    assert freeze_json(nested(limit), max_depth=limit) == nested(limit)
    for value in (nested(limit + 1), FrozenList(nested(limit + 1)), [FrozenList(nested(limit))]):
        with pytest.raises(NotJsonError, match="too deep"):
            freeze_json(value, max_depth=limit)


def test_a_frozen_part_is_shared_not_copied() -> None:
    frozen = FrozenDict({"a": [1]})
    assert snapshot_json_value(frozen) is frozen
    assert snapshot_json_value([frozen])[0] is frozen


def test_json_equality_tells_true_from_one() -> None:
    assert is_same_json({"a": [1, "x"]}, {"a": [1.0, "x"]})
    assert not is_same_json({"a": [1]}, {"a": [True]})
    assert not is_same_json({"a": 1}, {"a": 1, "b": 2})
    assert not is_same_json([1], [1, 2])
    assert not is_same_json([], {})
    assert is_same_json(nested(5_000), nested(5_000))


def test_snapshot_keeps_scalars() -> None:
    for value in (None, True, 0, 1.5, "text", ""):
        assert snapshot_json_value(value) is value
    assert APPEND.source_event_seqs is None

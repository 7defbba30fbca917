"""Storage records: to bytes and back, exactly, whoever parses them."""

import gc
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persistence.records import (
    BadRecordError,
    LogDecoder,
    encode_records,
    gc_paused,
    parse_json,
    turn_boundary,
)
from persistence.testing.harness import turn_events
from session_core import FrozenDict, FrozenList, SessionStore

CHUNK = "assistant/chunk"


def decode(*lines: bytes) -> list[Any]:
    decoder = LogDecoder()
    for line in lines:
        decoder.feed(line)
    return list(decoder.finish())


def event_line(data: str, seq: int = 0) -> bytes:
    return f'{{"type":"x/y","seq":{seq},"time":1,"data":{data}}}'.encode()


@pytest.mark.rule("unsafe-integers-are-refused", "nesting-is-not-recursive")
@pytest.mark.parametrize(
    "data",
    [
        "18446744073709551616",
        "9223372036854775808",
        "9007199254740992",
        "-9007199254740992",
        "[1,[9007199254740993]]",
        "-0.0",
        "[-0.0]",
        '{"a":-0.0}',
        "-0e5",
        "1e999",
        "-1e999",
        "NaN",
        "Infinity",
        "[" * 220 + "]" * 220,
        "[" * 900 + "]" * 900,
        '{"a":' * 900 + "1" + "}" * 900,
        "[" * 1500 + "]" * 1500,
        "[" * 100_000 + "]" * 100_000,
        '"\xff',
    ],
)
def test_a_line_outside_the_domain_of_events_is_refused(data: str) -> None:
    with pytest.raises(BadRecordError):
        decode(event_line(data))


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("9007199254740991", 2**53 - 1),
        ("-9007199254740991", 1 - 2**53),
        ("1.5e300", 1.5e300),
        ("1000000000000000000000.0", 1e21),
        ("-0.5", -0.5),
        ("-0", 0),
        ('"12345678901234567890 -0.0 :-0.0"', "12345678901234567890 -0.0 :-0.0"),
        ('"\\ud83d\\ude00"', "😀"),
        ('["\\ud83d",{"\\ude00":1}]', ["\ufffd", {"\ufffd": 1}]),
        ("[" * 190 + "]" * 190, None),
        ('{"a":{"b":[[],{}]}}', {"a": {"b": [[], {}]}}),
        ("null", None),
    ],
)
def test_a_line_of_another_hand_is_read_exactly(data: str, value: object) -> None:
    (event,) = decode(event_line(data))
    if value is not None:
        assert event.data == value
        assert type(event.data) is type(value) or isinstance(event.data, FrozenDict | FrozenList)


def test_what_is_decoded_is_frozen_through_and_through() -> None:
    (event,) = decode(event_line('{"a":[{"b":[1,[2]]}]}'))
    pending = [event.data]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            assert type(value) is FrozenDict
            pending += value.values()
        elif isinstance(value, list):
            assert type(value) is FrozenList
            pending += value


def test_a_refused_line_leaves_the_log_as_it_was() -> None:
    decoder = LogDecoder()
    decoder.feed(event_line("1"))
    for bad in (b"", b"7", b"[]", b"{}", event_line("1", seq=5), event_line("NaN", seq=1)):
        with pytest.raises(BadRecordError):
            decoder.feed(bad)
    decoder.feed(event_line("2", seq=1))
    assert decoder.next_seq == 2


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(1 - 2**53, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False).filter(lambda x: str(x) != "-0.0")
    | st.text(st.characters(codec="utf-8")),
    lambda children: (
        st.lists(children, max_size=4)
        | st.dictionaries(st.text(st.characters(codec="utf-8")), children, max_size=4)
    ),
    max_leaves=10,
)


@given(json_values)
def test_whatever_an_event_holds_comes_back_the_same(value: object) -> None:
    line = event_line(json.dumps(value))
    (event,) = decode(line)
    again = encode_records([event])
    assert json.loads(again)["data"] == value
    (twice,) = decode(again)
    assert json.dumps(twice.data) == json.dumps(value)


@pytest.mark.rule("token-borders-are-kept")
@given(
    st.lists(
        st.tuples(st.sampled_from(["text-delta", "reasoning-delta"]), st.integers(0, 1), st.text()),
        max_size=30,
    ),
    st.booleans(),
)
def test_a_streamed_log_comes_back_packed_or_not(
    deltas: list[tuple[Any, int, str]], pack: Any
) -> None:
    session = SessionStore(invariants=False).create("s")
    for kind, index, text in deltas:
        if text.isascii():
            session.append_delta(1, 1, kind, index, text)
    data = encode_records(session.events.records(), pack=pack)
    assert decode(*data.splitlines()) == list(session.events)
    if not pack:
        assert len(data.splitlines()) == session.seq


def test_the_boundary_of_a_turn_is_known_by_its_line() -> None:
    lines = encode_records(turn_events(1, 7)).splitlines()
    assert list(map(turn_boundary, lines)) == ["turn/start", None, "turn/end"]
    assert turn_boundary(lines[2][:-1]) is None
    assert turn_boundary(b'{"type":"turn/end"}') is None


def test_json_text_that_is_no_record_is_parsed_exactly() -> None:
    assert parse_json(b'{"a":18446744073709551616}') == {"a": 2**64}
    with pytest.raises(BadRecordError):
        parse_json(b"{")


def test_the_collector_is_on_again_after_a_decode() -> None:
    with gc_paused():
        assert not gc.isenabled()
    with pytest.raises(BadRecordError), gc_paused():
        decode(b"")
    assert gc.isenabled()
    gc.disable()
    try:
        with gc_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()

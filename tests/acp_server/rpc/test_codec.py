import json
import math
import sys
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_server.rpc.codec import (
    MAX_DEPTH,
    ParseError,
    encode_value,
    has_unsafe_number,
    parse_frame,
)

JSON_VALUES: Final = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(value=JSON_VALUES)
def test_what_the_standard_library_writes_is_read_with_every_digit(value: Any) -> None:
    assert parse_frame(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")) == (
        json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    )


@given(
    data=st.binary(max_size=40)
    | st.text('[]{}",:\\ \ud800x0eE+-.truNn', max_size=40).map(
        lambda text: text.encode("utf-8", "surrogatepass")
    )
)
def test_any_bytes_are_read_strictly_or_refused(data: bytes) -> None:
    try:
        value = parse_frame(data)
    except ParseError:
        return
    assert parse_frame(encode_value(value)) == value
    data.decode()


@pytest.mark.rule("lone-surrogates-are-replaced")
def test_lone_surrogates_become_replacement_characters_in_values_and_keys() -> None:
    frame = rb'{"a\ud800":["\udfff x",{"b":"\ud83d\ude00"}],"plain":"\ud800"}'
    assert parse_frame(frame) == {"a\ufffd": ["\ufffd x", {"b": "\U0001f600"}], "plain": "\ufffd"}


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"{",
        b"\xff\xfe{}",
        b'"\xed\xa0\x80"',
        b"NaN",
        b"[Infinity]",
        b"[-Infinity]",
        b'{"a":"\\ud800","b":NaN}',
        b"[" * 100_000,
        b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1),
        b'{"a":"\\ud800","b":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'"' + b'\\"' * 50_000,
        b"\xef\xbb\xbf{}",
        b"'a'",
        b'"\t"',
        b"[1,]",
    ],
)
@pytest.mark.rule("non-finite-numbers-never-leave")
@pytest.mark.case("B10")
def test_what_is_not_acceptable_json_is_refused_without_its_text(frame: bytes) -> None:
    with pytest.raises(ParseError) as caught:
        parse_frame(frame)
    assert str(caught.value) == "not acceptable JSON"


def test_the_deepest_accepted_frame_is_read() -> None:
    value = parse_frame(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    depth = 0
    while value:
        value = value[0]
        depth += 1
    assert depth == MAX_DEPTH - 1


@pytest.mark.parametrize(("recursion_limit", "depth"), [(20_000, 5_000), (300, 500)])
def test_depth_is_bounded_whatever_recursion_the_interpreter_bears(
    recursion_limit: int, depth: int
) -> None:
    frame = b'["\\ud800",' + b"[" * depth + b"]" * depth + b"]"
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(recursion_limit)
    try:
        with pytest.raises(ParseError):
            parse_frame(frame)
    finally:
        sys.setrecursionlimit(usual)


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**30, 10**400])
@pytest.mark.rule("unsafe-integers-are-refused")
def test_an_integer_never_becomes_a_float(number: int) -> None:
    value = parse_frame(b'{"n":[%d],"f":1e300}' % number)
    assert value == {"n": [number], "f": 1e300}
    assert type(value["n"][0]) is int
    assert type(value["f"]) is float


@pytest.mark.parametrize(
    ("value", "unsafe"),
    [
        (2**53, False),
        (-(2**53), False),
        (2**53 + 1, True),
        (-(2**53) - 1, True),
        ([{"a": [1, 2**60]}], True),
        ({"a": [math.inf]}, True),
        ([1, -math.inf], True),
        ({"a": 1e300, "b": True, "c": "9" * 30}, False),
    ],
)
def test_numbers_that_doubles_do_not_hold_are_found(value: Any, unsafe: bool) -> None:
    assert has_unsafe_number(value) is unsafe


@pytest.mark.rule("numbers-beyond-doubles-are-refused")
def test_a_number_beyond_the_range_of_a_double_is_json() -> None:
    frame = b'{"a":"\\ud800","b":[1e999,-1E+400,%b],"c":1e-999}'
    assert parse_frame(frame % (b"9" * 5000)) == {
        "a": "\ufffd",
        "b": [math.inf, -math.inf, math.inf],
        "c": 0.0,
    }


@pytest.mark.rule("non-finite-numbers-never-leave")
@pytest.mark.case("B10")
def test_what_must_not_reach_the_wire_is_made_harmless() -> None:
    value = {"a\ud800": ["\udfff", math.nan, -math.inf, 1.5, (2**70, None, True)]}
    assert encode_value(value) == (
        '{"a\ufffd":["\ufffd",null,null,1.5,[1180591620717411303424,null,true]]}'.encode()
    )


def test_what_cannot_be_written_is_an_error() -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(ValueError, match="too deeply"):
        encode_value(circle)
    with pytest.raises(TypeError):
        encode_value({"a": object()})

"""Lines of the values in a JSON text."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_server.testing.kit.json_places import JsonFault, line_of, read_with_places

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


def test_each_value_has_the_line_on_which_it_begins() -> None:
    value, lines = read_with_places('{\n "a": [\n  1,\n  {"b": "]}\\""}\n ],\n "c": true }')
    assert value == {"a": [1, {"b": ']}"'}], "c": True}
    assert lines == {
        (): 1,
        ("a",): 2,
        ("a", 0): 3,
        ("a", 1): 4,
        ("a", 1, "b"): 4,
        ("c",): 6,
    }


def test_a_place_that_is_not_there_has_the_line_of_what_is_around_it() -> None:
    _, lines = read_with_places('{\n "a": {\n  "b": 1}}')
    assert line_of(lines, ("a", "missing", 3)) == 2
    assert line_of(lines, ("nothing",)) == 1


@pytest.mark.parametrize(
    ("text", "line"), [('{"a": 1,\n}', 2), ("", 1), ('{\n"a": 1,\n"a": 2}', 3)]
)
def test_what_is_no_json_is_named_with_its_line(text: str, line: int) -> None:
    with pytest.raises(JsonFault) as caught:
        read_with_places(text)
    assert caught.value.line == line


@given(value=values, indent=st.sampled_from([None, 0, 2]))
def test_any_json_is_read_as_the_standard_library_reads_it(
    value: object, indent: int | None
) -> None:
    text = json.dumps(value, indent=indent)
    found, lines = read_with_places(text)
    assert found == value
    assert lines[()] == 1

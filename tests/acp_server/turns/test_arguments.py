"""Tool arguments are read in one place: a lossless JSON object, or a readable error."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_server.turns.arguments import arguments_or_none, parse_arguments
from acp_server.turns.errors import ToolArgumentsError
from session_core import MAX_SAFE_INT, is_json_value

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-MAX_SAFE_INT, MAX_SAFE_INT)
    | st.floats(allow_nan=False, allow_infinity=False).map(lambda number: number + 0.0)
    | TEXTS
)
OBJECTS = st.dictionaries(
    TEXTS,
    st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
        max_leaves=8,
    ),
    max_size=4,
)


@given(OBJECTS, st.booleans())
def test_a_lossless_object_comes_out_as_it_is(value: dict[str, Any], ascii_only: bool) -> None:
    assert parse_arguments(json.dumps(value, ensure_ascii=ascii_only)) == value


@given(st.text() | st.text('{}[]":,\\ud8naN-Infity0123456789.eE'))
def test_any_text_is_an_object_or_a_readable_error(text: str) -> None:
    value = arguments_or_none(text)
    if value is None:
        with pytest.raises(ToolArgumentsError, match=r"^the arguments "):
            parse_arguments(text)
    else:
        assert is_json_value(value)
        assert parse_arguments(text) == value


def test_no_text_is_no_arguments() -> None:
    assert parse_arguments("") == {}


@pytest.mark.parametrize("text", ['{"a\\ud800": ["\\ud800b"]}', '{"a\ud800": ["\ud800b"]}'])
def test_half_a_character_is_replaced(text: str) -> None:
    assert parse_arguments(text) == {"a\ufffd": ["\ufffdb"]}

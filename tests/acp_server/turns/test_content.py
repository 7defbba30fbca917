"""What authors hand over becomes log content."""

from typing import Any

import pytest

from acp_server.turns.content import clean_text, result_content

TEXT = {"type": "text", "text": "a"}


@pytest.mark.rule("result-blocks-become-acp-blocks")
@pytest.mark.case("B83")
@pytest.mark.parametrize(
    ("value", "blocks"),
    [
        (None, []),
        ("", []),
        ("a", [TEXT]),
        ([None, "a", TEXT], [TEXT, TEXT]),
        ([{**TEXT, "annotations": None}], [TEXT]),
        ([{"type": "foo", "x": 1}], [{"type": "foo", "x": 1}]),
        ([{"type": "text"}], [{"type": "text", "text": "[malformed text content]"}]),
        ([{"type": "image", "data": 7}], [{"type": "text", "text": "[malformed image content]"}]),
        (
            [{"type": "resource", "resource": {"uri": "x:y"}}],
            [{"type": "text", "text": "[malformed resource content]"}],
        ),
        (
            [{"type": "resource", "resource": "x:y"}],
            [{"type": "text", "text": "[malformed resource content]"}],
        ),
        ([{"x": 1}], [{"type": "text", "text": "[malformed None content]"}]),
        (
            [{"type": "resource", "resource": {"uri": "x:y", "blob": "AA=="}}],
            [{"type": "resource", "resource": {"uri": "x:y", "blob": "AA=="}}],
        ),
    ],
)
def test_any_result_becomes_blocks_that_the_log_takes(value: Any, blocks: Any) -> None:
    assert result_content(value) == blocks


@pytest.mark.parametrize(("text", "clean"), [("é😀", "é😀"), ("\ud83d\ude00", "\ufffd\ufffd")])
def test_each_lone_surrogate_is_replaced_once(text: str, clean: str) -> None:
    assert clean_text(text) == clean


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(TypeError, match="must be a str, not bytes"):
        clean_text(b"a")  # type: ignore[arg-type]

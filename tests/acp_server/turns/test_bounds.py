"""What a call hands over is cut within bounds, and says so."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_server.turns.bounds import (
    MAX_BINARY_CHARS,
    MAX_INPUT_BYTES,
    MAX_TEXT_BYTES,
    MAX_TODO_BYTES,
    bounded_blocks,
    bounded_text,
    bounded_texts,
    shown_json,
    utf8_size,
)

MIB = 1 << 20


def frame_size(blocks: list[dict[str, Any]]) -> int:
    return len(json.dumps(blocks, ensure_ascii=False).encode())


def test_a_short_text_stays_as_it_is() -> None:
    assert bounded_text("häl\n") == "häl\n"


def test_a_text_of_just_the_limit_stays_as_it_is() -> None:
    text = "é" * (MAX_TEXT_BYTES // 2)
    assert bounded_text(text) == text


@pytest.mark.rule("results-are-bounded")
@pytest.mark.case("B77")
def test_a_long_text_keeps_head_and_tail_around_its_size() -> None:
    text = "a" * 100_000 + "z" * 100_000
    cut = bounded_text(text)
    half = (MAX_TEXT_BYTES - 80) // 2
    left_out = 200_000 - 2 * half
    note = f"\n[... {left_out} of 200000 bytes left out ...]\n"
    assert cut == "a" * half + note + "z" * half


@pytest.mark.rule("results-are-bounded")
@pytest.mark.case("B77")
@given(
    text=st.text(alphabet=st.characters(codec="utf-8"), max_size=300),
    limit=st.integers(0, 100),
)
def test_a_cut_falls_on_character_borders(text: str, limit: int) -> None:
    cut = bounded_text(text, limit)
    if utf8_size(text) <= limit:
        assert cut == text
        return
    head, rest = cut.split("\n[... ", 1) if "\n[... " not in text else (None, None)
    if head is None or rest is None:
        return
    note, tail = rest.split(" ...]\n", 1)
    left_out, size = (int(word) for word in note.split(" bytes")[0].split(" of "))
    assert text.startswith(head)
    assert text.endswith(tail)
    assert size == utf8_size(text)
    assert utf8_size(head) + utf8_size(tail) == size - left_out <= limit


@pytest.mark.rule("results-are-bounded")
@given(
    text=st.text(alphabet=st.characters(codec="utf-8"), max_size=900), limit=st.integers(80, 400)
)
def test_to_bound_twice_is_to_bound_once(text: str, limit: int) -> None:
    once = bounded_text(text, limit)
    assert utf8_size(once) <= max(limit, utf8_size(text) if utf8_size(text) <= limit else limit)
    assert bounded_text(once, limit) == once


@pytest.mark.rule("results-are-bounded")
@given(sizes=st.lists(st.integers(0, 40_000), max_size=6))
def test_to_bound_blocks_twice_is_to_bound_them_once(sizes: list[int]) -> None:
    once = bounded_blocks({"type": "text", "text": "é" * size} for size in sizes)
    assert bounded_blocks(once) == once


def test_a_long_todo_list_is_cut_evenly() -> None:
    texts = ["a" * 100_000, "b", "c" * 100_000]
    cut = bounded_texts(texts)
    assert sum(map(len, cut)) <= MAX_TODO_BYTES
    assert cut[1] == "b"
    assert bounded_texts(["a", "b"]) == ["a", "b"]


def test_lone_surrogates_come_out_replaced() -> None:
    assert bounded_text("a\ud800") == "a\ufffd"
    assert "\ufffd" in bounded_text("\ud800" * 100_000)


@pytest.mark.rule("results-are-bounded")
@pytest.mark.case("B77")
def test_no_result_can_make_a_frame_too_large() -> None:
    worst = "\x01" * (10 * MIB)
    image = {"type": "image", "mimeType": "image/png", "data": "A" * MAX_BINARY_CHARS}
    resource = {"type": "resource", "resource": {"uri": "x:y", "text": worst}}
    strange = {"type": "foo", "x": worst}
    blocks: list[dict[str, Any]] = [
        image,
        image,
        {"type": "text", "text": worst},
        resource,
        strange,
        image,
    ]
    assert frame_size(bounded_blocks(blocks)) < MIB - (1 << 16)


@pytest.mark.rule("results-are-bounded")
@pytest.mark.case("B77")
def test_a_million_small_blocks_are_bounded() -> None:
    bounded = bounded_blocks({"type": "text", "text": "x"} for _ in range(1_000_000))
    assert len(bounded) < 2000
    assert bounded[-1]["text"].endswith("more blocks left out ...]")


@pytest.mark.rule("results-are-bounded")
@pytest.mark.case("B77")
def test_an_image_that_is_too_large_is_named_with_its_size() -> None:
    image = {"type": "image", "mimeType": "image/png", "data": "A" * (8 * MIB)}
    assert bounded_blocks([image]) == [
        {"type": "text", "text": "[image of 8388608 base64 characters left out]"}
    ]


def test_small_blocks_of_every_type_pass() -> None:
    blocks: list[dict[str, Any]] = [
        {"type": "text", "text": "a"},
        {"type": "audio", "mimeType": "audio/wav", "data": "AA=="},
        {"type": "resource", "resource": {"uri": "x:y", "blob": "AA=="}},
        {"type": "foo", "x": 1},
    ]
    assert bounded_blocks(blocks) == blocks


@pytest.mark.rule("results-are-bounded")
def test_arguments_that_are_too_large_are_not_shown() -> None:
    assert shown_json({"a": ["\ud800"]}) == {"a": ["\ufffd"]}
    assert shown_json({"content": "x" * MAX_INPUT_BYTES}) is None

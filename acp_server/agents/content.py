"""Text and blocks at the edge of the agents' room: what authors hand over becomes log content."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

MAX_DELTA_CHARS = 65_536
"""A longer text becomes several deltas: at 4 bytes a character, or 6 when JSON must escape it,
a frame stays below 1 MiB (Z20)."""

_SURROGATE = re.compile("[\ud800-\udfff]")


def clean_text(text: str) -> str:
    """Return `text` with lone surrogates as U+FFFD, which is done once, where text comes in (Z35).

    Raises:
        TypeError: `text` is not a string.
    """
    if not isinstance(text, str):
        message = f"text must be a str, not {type(text).__name__}"
        raise TypeError(message)
    if text.isascii():
        return str(text)
    return _SURROGATE.sub("\ufffd", text) if _lone(text) else text


def pieces(text: str) -> Iterator[str]:
    """Yield `text` in pieces that each fit one frame."""
    for start in range(0, len(text), MAX_DELTA_CHARS):
        yield text[start : start + MAX_DELTA_CHARS]


def result_content(value: str | Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]]:
    """Return what a tool hands over as result blocks: a text, ready blocks, or nothing."""
    if value is None or value == "":
        return []
    if isinstance(value, str):
        return [{"type": "text", "text": clean_text(value)}]
    return [dict(block) for block in value]


def text_of(blocks: Iterable[Mapping[str, Any]]) -> str:
    """Return the text of the text blocks, joined as they stand."""
    return "".join(block["text"] for block in blocks if block["type"] == "text")


def _lone(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False

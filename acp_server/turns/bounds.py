"""Bounds on what one call may hand over: the client and the model see the same, cut, with a note.

A result keeps as much of its head as of its tail; between them stands how much was left out and
how large it was. The note counts, so that to bound twice is to bound once. With every character
escaped (6 bytes for one) and an image beside it, a frame of a call stays below 1 MiB
(results-are-bounded, B77).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from acp_server.turns.content import clean_text
from session_core import MAX_DATA_DEPTH, NotJsonError
from session_core.json_value import freeze_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Block = dict[str, Any]

MAX_TEXT_BYTES = 65_536
"""Text of one result, in UTF-8: more than a screen has and less than a model's context."""

MAX_BINARY_CHARS = 524_288
"""Base64 of all images, sounds and blobs of one result; half of the largest frame."""

MAX_DIFF_BYTES = 65_536
"""Old and new text of all diffs of one card, in UTF-8."""

MAX_INPUT_BYTES = 65_536
"""A call's arguments, or its raw output, as JSON: larger ones are not shown on the card."""

MAX_TITLE_BYTES = 4096
"""Title of a card or of a session."""

MAX_TODO_BYTES = 65_536
"""Texts of one todo list; longer ones are cut evenly."""

MAX_SHOWN_DEPTH = MAX_DATA_DEPTH - 10
"""Nesting of a call's arguments or raw output, which a card and a frame of ACP still go around."""

_NOTE_BYTES = 80
"""Room for the note: its words, and two numbers of any size that fits into memory."""

_BLOCK_OVERHEAD = 64
"""What a block costs beside its text, so that a million tiny blocks are bounded, too."""

_SLICE = 1 << 20


def bounded_text(text: str, limit: int = MAX_TEXT_BYTES) -> str:
    """Return `text`, or its head and tail around a note with the original size.

    Args:
        text: Any text; lone surrogates come out as U+FFFD.
        limit: Bytes of UTF-8 at most, the note included; with a limit smaller than a note, that
            note alone.
    """
    if len(text) * 4 <= limit:
        return clean_text(text)
    size = utf8_size(text)
    if size <= limit:
        return clean_text(text)
    half = max(0, limit - _NOTE_BYTES) // 2
    # Only the ends are ever encoded: the whole may be large. A cut character falls away.
    head = clean_text(text[:half]).encode()[:half].decode(errors="ignore")
    tail = ""
    if half:
        tail = clean_text(text[-half:]).encode()[-half:].decode(errors="ignore")
    left_out = size - len(head.encode()) - len(tail.encode())
    return f"{head}\n[... {left_out} of {size} bytes left out ...]\n{tail}"


def bounded_blocks(blocks: Iterable[Mapping[str, Any]]) -> list[Block]:
    """Return result blocks within the bounds; what does not fit is a text that says so."""
    budget = _Budget()
    bounded: list[Block] = []
    last: Mapping[str, Any] = {}
    left_out = 0
    for block in blocks:
        if budget.text > 0:
            bounded.append(budget.fit(block))
        else:
            left_out += 1
            last = block
    if left_out == 1 and _is_note(last):
        bounded.append(dict(last))
    elif left_out:
        bounded.append(_text(f"[... {left_out} more blocks left out ...]"))
    return bounded


def bounded_texts(texts: Sequence[str]) -> list[str]:
    """Return the texts of a list, each cut to its share if they are too long together."""
    if sum(map(utf8_size, texts)) <= MAX_TODO_BYTES:
        return [clean_text(text) for text in texts]
    share = MAX_TODO_BYTES // len(texts)
    return [bounded_text(text, share) for text in texts]


def shown_json(value: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a JSON object for a card, or None if it is too large to be shown.

    Raises:
        ValueError: It is not lossless JSON.
    """
    text = json.dumps(dict(value), ensure_ascii=False)
    if utf8_size(text) > MAX_INPUT_BYTES:
        return None
    # Read back, since surrogates may stand anywhere in it (lone-surrogates-are-replaced).
    plain: dict[str, Any] = json.loads(clean_text(text))
    try:
        freeze_json(plain, max_depth=MAX_SHOWN_DEPTH)
    except NotJsonError as error:
        raise ValueError(str(error)) from None
    return plain


def utf8_size(text: str) -> int:
    """Return how many bytes `text` has in UTF-8, without a copy of the whole."""
    if text.isascii():
        return len(text)
    slices = (text[start : start + _SLICE] for start in range(0, len(text), _SLICE))
    return sum(len(piece.encode("utf-8", "surrogatepass")) for piece in slices)


class _Budget:
    """What is left for the further blocks of one result."""

    def __init__(self) -> None:
        self.text = MAX_TEXT_BYTES
        self.binary = MAX_BINARY_CHARS

    def fit(self, block: Mapping[str, Any]) -> Block:
        match block.get("type"):
            case "text":
                return {**block, "text": self._take_text(str(block.get("text", "")))}
            case "image" | "audio" as kind:
                return self._binary(block, kind, block.get("data"))
            case "resource" if isinstance(block.get("resource"), dict):
                return self._resource(block)
            case kind:
                size = utf8_size(json.dumps(dict(block), ensure_ascii=False))
                if size > self.text:
                    return self._placeholder(f"[{kind} content of {size} bytes left out]")
                self.text -= size
                return dict(block)

    def _take_text(self, text: str) -> str:
        bounded = bounded_text(text, self.text)
        self.text -= utf8_size(bounded) + _BLOCK_OVERHEAD
        return bounded

    def _binary(self, block: Mapping[str, Any], kind: str, data: object) -> Block:
        size = len(data) if isinstance(data, str) else 0
        if size > self.binary:
            return self._placeholder(f"[{kind} of {size} base64 characters left out]")
        self.binary -= size
        self.text -= _BLOCK_OVERHEAD
        return dict(block)

    def _resource(self, block: Mapping[str, Any]) -> Block:
        resource = block["resource"]
        if isinstance(resource.get("text"), str):
            return {**block, "resource": {**resource, "text": self._take_text(resource["text"])}}
        return self._binary(block, "resource", resource.get("blob"))

    def _placeholder(self, text: str) -> Block:
        self.text -= len(text) + _BLOCK_OVERHEAD
        return _text(text)


def _is_note(block: Mapping[str, Any]) -> bool:
    """Return whether a block may be the note of an earlier cut: it costs nothing to keep it."""
    return block.get("type") == "text" and len(str(block.get("text"))) <= _NOTE_BYTES


def _text(text: str) -> Block:
    return {"type": "text", "text": text}

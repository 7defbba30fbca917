"""Text and blocks where they come in: what authors and models hand over becomes log content."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from session_core import clean_json, is_json_value
from session_core import clean_text as replace_surrogates

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

MAX_DELTA_CHARS = 65_536
"""A longer text becomes several deltas: at 4 bytes a character, or 6 when JSON must escape it,
a frame stays below 1 MiB (long-text-goes-in-pieces)."""

_NEEDED = {
    "text": ("text",),
    "image": ("data", "mimeType"),
    "audio": ("data", "mimeType"),
    "resource_link": ("uri", "name"),
    "resource": ("uri",),
}
"""Members that must be texts, by block type; of a `resource` those of what it embeds."""


def clean_text(text: str) -> str:
    """Return `text` with lone surrogates as U+FFFD, which is done once, where text comes in.

    Rule: lone-surrogates-are-replaced.

    Raises:
        TypeError: `text` is not a string.
    """
    if not isinstance(text, str):
        raise TypeError(f"text must be a str, not {type(text).__name__}")
    # A subclass of str comes out as a str, which is what a log takes.
    return replace_surrogates(str(text))


def pieces(text: str) -> Iterator[str]:
    """Yield `text` in pieces that each fit one frame."""
    for start in range(0, len(text), MAX_DELTA_CHARS):
        yield text[start : start + MAX_DELTA_CHARS]


def result_content(
    value: str | Iterable[Mapping[str, Any] | str | None] | None,
) -> list[dict[str, Any]]:
    """Return what a tool hands over as result blocks that the log takes.

    Args:
        value: A text, or blocks in the shapes of MCP and ACP; texts among them are text blocks,
            None is nothing, and a block that lacks what its type needs becomes a text that says so.
    """
    if value is None or value == "":
        return []
    if isinstance(value, str):
        return [{"type": "text", "text": clean_text(value)}]
    return [_result_block(item) for item in value if item is not None]


def _result_block(item: Mapping[str, Any] | str) -> dict[str, Any]:
    if isinstance(item, str):
        return {"type": "text", "text": clean_text(item)}
    block = clean_json({key: member for key, member in item.items() if member is not None})
    kind = block.get("type")
    if isinstance(kind, str) and _is_whole(block, kind) and is_json_value(block):
        return dict(block)
    return {"type": "text", "text": f"[malformed {kind} content]"}


def _is_whole(block: Mapping[str, Any], kind: str) -> bool:
    """Return whether a block has what its type needs; an unknown type needs nothing."""
    holder = block.get("resource") if kind == "resource" else block
    if not isinstance(holder, dict):
        return False
    embedded = [holder.get("text", holder.get("blob"))] if kind == "resource" else []
    members = [holder.get(key) for key in _NEEDED.get(kind, ())]
    return all(isinstance(member, str) for member in [*members, *embedded])


def text_of(blocks: Iterable[Mapping[str, Any]]) -> str:
    """Return the text of the text blocks, joined as they stand."""
    return "".join(block["text"] for block in blocks if block["type"] == "text")

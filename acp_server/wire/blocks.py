"""Builders of content that we send: content blocks, tool content, locations."""

from acp_server.wire.shapes import JsonMapping, JsonObject, without_absent


def text_block(text: str) -> JsonObject:
    """Build a text block."""
    return {"type": "text", "text": text}


def content_item(block: JsonMapping) -> JsonObject:
    """Wrap a content block as tool content."""
    return {"type": "content", "content": block}


def diff_item(path: str, old_text: str | None, new_text: str) -> JsonObject:
    """Build a diff; `old_text` None is a new file and the one null a frame may carry."""
    return {"type": "diff", "path": path, "oldText": old_text, "newText": new_text}


def terminal_item(terminal_id: str) -> JsonObject:
    """Build a reference to a terminal."""
    return {"type": "terminal", "terminalId": terminal_id}


def location(path: str, line: int | None = None) -> JsonObject:
    """Build a location; `line` counts from 1."""
    return without_absent(path=path, line=line)

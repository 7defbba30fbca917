"""Builders of content that we send: content blocks, tool content, locations."""

from typing import Literal

from acp_server.wire.shapes import JsonMapping, JsonObject, without_absent


def text_block(text: str) -> JsonObject:
    """Build a text block."""
    return {"type": "text", "text": text}


def image_block(data: str, mime_type: str, *, uri: str | None = None) -> JsonObject:
    """Build an image block; `data` is base64."""
    return without_absent(type="image", data=data, mimeType=mime_type, uri=uri)


def audio_block(data: str, mime_type: str) -> JsonObject:
    """Build an audio block; `data` is base64."""
    return {"type": "audio", "data": data, "mimeType": mime_type}


def resource_link_block(
    uri: str, name: str, *, mime_type: str | None = None, title: str | None = None
) -> JsonObject:
    """Build a link to a resource."""
    return without_absent(type="resource_link", uri=uri, name=name, mimeType=mime_type, title=title)


def resource_block(
    uri: str,
    content: str,
    *,
    encoding: Literal["text", "blob"] = "text",
    mime_type: str | None = None,
) -> JsonObject:
    """Build an embedded resource: text, or base64 if `encoding` is `blob`."""
    resource = without_absent(uri=uri, mimeType=mime_type)
    resource[encoding] = content
    return {"type": "resource", "resource": resource}


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

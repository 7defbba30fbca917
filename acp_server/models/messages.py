"""The model boundary: from the derived history to what a provider takes.

Rules: links-become-model-text, load-checks-before-opening, unadvertised-blocks-are-refused.

Pure functions. The history keeps the client's blocks and the order of the log; a provider wants
text, one message a role, and behind each call its result. An adapter calls `model_messages` on the
messages of a request and then writes them down in its provider's words.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Block = dict[str, Any]

NO_OUTPUT = "(no output)"
"""Text of a result without content: providers refuse an empty one (B73)."""

NO_RESULT = "(this call has no result)"
"""Text of the result that a call lacks, in a log that this server did not write."""


def model_messages(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return messages that any provider takes.

    Neighbouring messages of one role are one; each call is followed by its results, in the order of
    the calls, in the user message right behind it; links and embedded resources are text; blank
    text is dropped, and so is a message that has nothing left. A result without a call is dropped.

    Args:
        messages: As `derive_messages` gives them, a `messagePrefix` included; they stay untouched.
    """
    messages = list(messages)
    results = _results_of(messages)
    merged = _Merged()
    for message in messages:
        content = model_content(message["content"])
        role = message["role"]
        if role == "assistant":
            merged.add(role, content, message.get("provenance"))
            merged.expect(block["id"] for block in content if block["type"] == "tool-call")
        else:
            merged.add_results(results)
            merged.add(role, [block for block in content if block["type"] != "tool-result"])
    merged.add_results(results)
    return merged.messages


def model_content(content: Iterable[Mapping[str, Any]]) -> list[Block]:
    """Return blocks in the words of a model; neighbouring text is joined without a separator.

    `image`, `audio`, `reasoning`, `tool-call` and blocks of unknown types stay as they are: what a
    provider can take of them, its adapter knows.
    """
    joined: list[Block] = []
    for block in content:
        text = _text_of(block)
        if text is None:
            joined.append(_with_results_in_words(block))
        elif text and joined and joined[-1]["type"] == "text":
            joined[-1] = {"type": "text", "text": joined[-1]["text"] + text}
        elif text:
            joined.append({"type": "text", "text": text})
    return [block for block in joined if block["type"] != "text" or block["text"].strip()]


def _text_of(block: Mapping[str, Any]) -> str | None:
    """Return a block as text, or None if it is not text to a model."""
    match block["type"]:
        case "text":
            return str(block["text"])
        case "resource_link":
            name, uri = json_text(block["name"]), json_text(block["uri"])
            return f"\n[resource_link name={name} uri={uri}]\n"
        case "resource":
            resource = block["resource"]
            uri = json_text(resource["uri"])
            return f"\n[resource uri={uri}]\n{_resource_text(resource)}\n[/resource]\n"
        case _:
            return None


def _resource_text(resource: Mapping[str, Any]) -> str:
    if "text" in resource:
        return str(resource["text"])
    mime_type = str(resource.get("mimeType") or "unknown type")
    if mime_type.startswith("text/"):
        try:
            return base64.b64decode(resource["blob"], validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            pass  # no text after all
    return f"[{len(resource['blob'])} base64 characters of {mime_type}]"


def _with_results_in_words(block: Mapping[str, Any]) -> Block:
    if block["type"] != "tool-result":
        return dict(block)
    content = model_content(block["content"])
    return {**block, "content": content or [{"type": "text", "text": NO_OUTPUT}]}


def json_text(value: object) -> str:
    """Return a value as JSON text, non-ASCII characters as they are."""
    return json.dumps(value, ensure_ascii=False)


def _results_of(messages: Sequence[Mapping[str, Any]]) -> dict[str, Block]:
    return {
        block["toolCallId"]: _with_results_in_words(block)
        for message in messages
        for block in message["content"]
        if block["type"] == "tool-result"
    }


class _Merged:
    """The messages in the making, and the calls of the last one whose results are still to come."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self._expected: list[str] = []

    def add(self, role: str, content: Sequence[Block], provenance: Any = None) -> None:
        """Put content behind what is there, into the last message if that has the same role."""
        if not content:
            return
        if self.messages and self.messages[-1]["role"] == role:
            self.messages[-1]["content"].extend(content)
            return
        message: dict[str, Any] = {"role": role, "content": list(content)}
        if provenance is not None:
            message["provenance"] = provenance
        self.messages.append(message)

    def expect(self, call_ids: Iterable[str]) -> None:
        """Note calls of an assistant message."""
        self._expected.extend(call_ids)

    def add_results(self, results: Mapping[str, Block]) -> None:
        """Put the results of the noted calls behind them."""
        missing = [{"type": "text", "text": NO_RESULT}]
        call_ids, self._expected = self._expected, []
        added = [
            results.get(call_id)
            or {"type": "tool-result", "toolCallId": call_id, "content": missing, "isError": True}
            for call_id in call_ids
        ]
        self.add("user", added)

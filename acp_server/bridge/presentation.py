"""Neutral card views to the fields of ACP tool calls (contract 6.6).

A view says what a tool wants shown; this module alone knows how ACP shows it. Pure functions.
"""

from __future__ import annotations

import os.path
from typing import TYPE_CHECKING, Any

from acp_server.bridge.json_objects import object_or_none
from acp_server.wire import blocks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Fields = dict[str, Any]
"""Wire fields of a tool call without its id: title, kind, content, locations, rawInput, _meta."""

_CONTENT_TYPES = frozenset({"text", "image", "audio", "resource", "resource_link"})


def call_fields(
    view: Mapping[str, Any], *, call_id: str, cwd: str | None, terminal_cards: bool
) -> Fields:
    """Return the fields that a call view shows.

    Args:
        view: A `*-call` view.
        call_id: Also the id of a terminal card.
        cwd: The session's working directory: titles are shown relative to it.
        terminal_cards: Whether the client shows terminals from `_meta` (`terminal_output`).
    """
    match view["type"]:
        case "diff-call":
            return _diff_call(view, cwd)
        case "terminal-call":
            return _terminal_call(view, call_id, cwd, terminal_cards=terminal_cards)
        case _:
            return _generic_call(view, cwd)


def unknown_call_fields(name: str, arguments: str) -> Fields:
    """Return the card of a call that no view and no presenter describes."""
    fields: Fields = {"title": name or "tool", "kind": "other"}
    raw_input = object_or_none(arguments)
    if raw_input is not None:
        fields["rawInput"] = raw_input
    return fields


def result_fields(
    view: Mapping[str, Any] | None,
    content: Sequence[Mapping[str, Any]],
    *,
    failed: bool,
    call_id: str,
    call_type: str,
    terminal_cards: bool,
) -> Fields:
    """Return the fields that a result changes; a key that is absent stays as the call showed it.

    Args:
        view: The `*-result` view, if the tool stored one.
        content: Blocks of the `tool/result`.
        failed: Whether the result is an error: then its raw content is shown.
        call_id: Also the id of a terminal card.
        call_type: Type of the last call view: a diff stays shown when its call succeeds.
        terminal_cards: As for `call_fields`.
    """
    fields: Fields = {}
    if view is not None and "title" in view:
        fields["title"] = view["title"]
    if failed or view is None:
        shown = [] if call_type == "diff-call" and not failed else _wire_content(content)
    elif view["type"] == "diff-result":
        shown = [_diff(diff) for diff in view["diffs"]]
    elif view["type"] == "terminal-result" and call_type == "terminal-call":
        return fields | _terminal_result(view, call_id, terminal_cards=terminal_cards)
    else:
        shown = _wire_content(view.get("content", content))
    if shown:
        fields["content"] = shown
    return fields


def _generic_call(view: Mapping[str, Any], cwd: str | None) -> Fields:
    locations = list(view.get("locations", ()))
    fields: Fields = {
        "title": _relative_title(view["title"], locations, cwd),
        "kind": view.get("kind", "other"),
    }
    raw_input = view.get("rawInput")
    if isinstance(raw_input, dict):
        fields["rawInput"] = raw_input
    if locations:
        fields["locations"] = locations
    content = _wire_content(view.get("content", ()))
    if content:
        fields["content"] = content
    return fields


def _diff_call(view: Mapping[str, Any], cwd: str | None) -> Fields:
    locations = list(view.get("locations", ()))
    diffs = view["diffs"]
    fields: Fields = {
        "title": _relative_title(view["title"], locations or diffs, cwd),
        "kind": "edit",
    }
    if diffs:
        fields["content"] = [_diff(diff) for diff in diffs]
    if locations:
        fields["locations"] = locations
    return fields


def _terminal_call(
    view: Mapping[str, Any], call_id: str, cwd: str | None, *, terminal_cards: bool
) -> Fields:
    title = view["title"]
    fields: Fields = {"title": title, "kind": "execute"}
    content = []
    if view.get("description"):
        content.append(blocks.content_item(blocks.text_block(view["description"])))
    if terminal_cards:
        content.append(blocks.terminal_item(call_id))
        where = os.path.normpath(os.path.join(cwd or "/", view.get("cwd") or "."))  # noqa: PTH118 - text rule
        fields["_meta"] = {"terminal_info": {"terminal_id": call_id, "cwd": where}}
    if content:
        fields["content"] = content
    return fields


def _terminal_result(view: Mapping[str, Any], call_id: str, *, terminal_cards: bool) -> Fields:
    output = view.get("output", "")
    if not terminal_cards:
        fenced = f"```console\n{output.rstrip(chr(10))}\n```"
        return {"content": [blocks.content_item(blocks.text_block(fenced))]}
    meta: dict[str, Any] = {"terminal_output": {"terminal_id": call_id, "data": output}}
    if view.get("signal"):
        meta["terminal_exit"] = {"terminal_id": call_id, "signal": view["signal"]}
    elif view.get("exitCode") is not None:
        meta["terminal_exit"] = {"terminal_id": call_id, "exit_code": view["exitCode"]}
    return {"_meta": meta}


def _diff(diff: Mapping[str, Any]) -> dict[str, Any]:
    return blocks.diff_item(diff["path"], diff["oldText"], diff["newText"])


def _wire_content(content: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [blocks.content_item(_wire_block(block)) for block in content]


def _wire_block(block: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a block that ACP knows; one of an unknown type becomes a placeholder (Z13)."""
    kind = block.get("type")
    return block if kind in _CONTENT_TYPES else blocks.text_block(f"[{kind} content]")


def _relative_title(title: str, places: Sequence[Mapping[str, Any]], cwd: str | None) -> str:
    """Return the title with the first place's path made relative, if that lies inside `cwd`."""
    path = places[0]["path"] if places else ""
    if cwd is None or not os.path.isabs(path) or not os.path.isabs(cwd):  # noqa: PTH117 - text rule
        return title
    inside = os.path.relpath(path, cwd)
    if inside == "." or inside == ".." or inside.startswith("../"):
        return title
    return title.replace(path, inside)

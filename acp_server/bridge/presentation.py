"""Neutral card views to the fields of ACP tool calls (generic-card-has-its-fields).

A view says what a tool wants shown; this module alone knows how ACP shows it. Pure functions. What
our own agents store is bounded already; the same bounds hold here for logs that others wrote.
"""

from __future__ import annotations

import os.path
from typing import TYPE_CHECKING, Any, Final, Literal

from acp_server.agents.call_card import KINDS
from acp_server.turns.arguments import arguments_or_none
from acp_server.turns.bounds import (
    MAX_DIFF_BYTES,
    bounded_blocks,
    bounded_text,
    shown_json,
    utf8_size,
)
from acp_server.wire import blocks, content
from acp_server.wire.errors import WireError
from acp_server.wire.shapes import without_absent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Fields = dict[str, Any]
"""Wire fields of a tool call without its id: title, kind, content, locations, rawInput, _meta."""

Terminals = Literal["meta", "client", "none"]
"""How terminals may be shown: by `_meta` or by id, by id alone, or as text, once they are gone."""

_MAX_LINE: Final = 2**32 - 1  # of the schema


def call_fields(
    view: Mapping[str, Any], *, call_id: str, cwd: str | None, terminals: Terminals
) -> Fields:
    """Return the fields that a call view shows.

    Args:
        view: A `*-call` view.
        call_id: Also the id of a terminal card.
        cwd: The session's working directory: titles are shown relative to it.
        terminals: How terminals may be shown.
    """
    match view["type"]:
        case "diff-call":
            return _diff_call(view, cwd)
        case "terminal-call":
            return _terminal_call(view, call_id, cwd, terminals)
        case _:
            return _generic_call(view, cwd)


def unknown_call_fields(name: str, arguments: str) -> Fields:
    """Return the card of a call that no view and no presenter describes."""
    parsed = arguments_or_none(arguments)
    raw_input = None if parsed is None else shown_json(parsed)
    return without_absent(title=name or "tool", kind="other", rawInput=raw_input)


def result_fields(
    view: Mapping[str, Any] | None,
    content: Sequence[Mapping[str, Any]],
    *,
    failed: bool,
    call_id: str,
    call_view: Mapping[str, Any] | None,
    cwd: str | None,
    terminals: Terminals,
) -> Fields:
    """Return the fields that a result changes; a key that is absent stays as the call showed it.

    Args:
        view: The `*-result` view, if the tool stored one.
        content: Blocks of the `tool/result`.
        failed: Whether the result is an error: then its raw content is shown.
        call_id: Also the id of a terminal card.
        call_view: The last call view: a diff stays shown when its call succeeds.
        cwd: The session's working directory.
        terminals: How terminals may be shown.
    """
    call_type = "generic-call" if call_view is None else call_view["type"]
    view_type = None if view is None else view["type"]
    fields: Fields = {}
    if view is not None:
        if "title" in view:
            fields["title"] = _relative_title(view["title"], view.get("diffs", ()), cwd)
        if isinstance(view.get("rawOutput"), dict):
            fields["rawOutput"] = view["rawOutput"]
    if view is not None and view_type == "terminal-result" and call_type == "terminal-call":
        named = call_view is not None and "terminalId" in call_view
        return fields | _terminal_result(view, call_id, terminals, named=named)
    if view is None or failed:
        shown = [] if call_type == "diff-call" and not failed else _wire_content(content)
    elif view_type == "diff-result":
        shown = _diffs(view["diffs"], cwd)
    else:
        shown = _wire_content(view.get("content", content))
    if shown:
        fields["content"] = shown
    return fields


def _generic_call(view: Mapping[str, Any], cwd: str | None) -> Fields:
    locations = _locations(view, cwd)
    kind, raw_input = view.get("kind"), view.get("rawInput")
    return without_absent(
        title=_relative_title(view["title"], locations, cwd),
        kind=kind if kind in KINDS else "other",
        rawInput=raw_input if isinstance(raw_input, dict) else None,
        locations=locations or None,
        content=_wire_content(view.get("content", ())) or None,
    )


def _diff_call(view: Mapping[str, Any], cwd: str | None) -> Fields:
    locations = _locations(view, cwd)
    diffs = view["diffs"]
    return without_absent(
        title=_relative_title(view["title"], locations or diffs, cwd),
        kind="edit",
        content=_diffs(diffs, cwd) or None,
        locations=locations or None,
    )


def _terminal_call(
    view: Mapping[str, Any], call_id: str, cwd: str | None, terminals: Terminals
) -> Fields:
    title = view["title"]
    fields: Fields = {"title": title, "kind": "execute"}
    shown = []
    if view.get("description"):
        shown.append(blocks.content_item(blocks.text_block(view["description"])))
    if terminals != "none" and "terminalId" in view:
        shown.append(blocks.terminal_item(view["terminalId"]))
    elif terminals == "meta":
        shown.append(blocks.terminal_item(call_id))
        where = os.path.normpath(os.path.join(cwd or "/", view.get("cwd") or "."))  # noqa: PTH118 - text rule
        fields["_meta"] = {"terminal_info": {"terminal_id": call_id, "cwd": where}}
    if shown:
        fields["content"] = shown
    return fields


def _terminal_result(
    view: Mapping[str, Any], call_id: str, terminals: Terminals, *, named: bool
) -> Fields:
    """Return what the end of a command changes.

    Args:
        view: A `terminal-result`.
        call_id: Id of a terminal that is shown by `_meta`.
        terminals: How terminals may be shown.
        named: The call shows a terminal of the client, which has its output.
    """
    if named and terminals != "none":
        return {}
    output = bounded_text(view.get("output", ""))
    if terminals != "meta":
        fenced = f"```console\n{output.rstrip(chr(10))}\n```"
        return {"content": [blocks.content_item(blocks.text_block(fenced))]}
    meta: dict[str, Any] = {"terminal_output": {"terminal_id": call_id, "data": output}}
    if view.get("signal"):
        meta["terminal_exit"] = {"terminal_id": call_id, "signal": view["signal"]}
    elif view.get("exitCode") is not None:
        meta["terminal_exit"] = {"terminal_id": call_id, "exit_code": view["exitCode"]}
    return {"_meta": meta}


def _absolute(path: str, cwd: str | None) -> str:
    """Return `path` below `cwd`, as ACP wants it; logs that others wrote keep relative ones."""
    if cwd is None or os.path.isabs(path):  # noqa: PTH117 - text rule
        return path
    return os.path.normpath(os.path.join(cwd, path))  # noqa: PTH118 - text rule


def _locations(view: Mapping[str, Any], cwd: str | None) -> list[dict[str, Any]]:
    """Return the places of a view; a line that no editor has falls away."""
    return [
        blocks.location(
            _absolute(place["path"], cwd),
            line if 1 <= (line := place.get("line", 0)) <= _MAX_LINE else None,
        )
        for place in view.get("locations", ())
    ]


def _diffs(diffs: Sequence[Mapping[str, Any]], cwd: str | None) -> list[dict[str, Any]]:
    size = sum(utf8_size(diff["newText"]) + utf8_size(diff["oldText"] or "") for diff in diffs)
    if size > MAX_DIFF_BYTES:
        return _wire_content([blocks.text_block(f"[diffs left out: {size} bytes]")])
    return [
        blocks.diff_item(_absolute(diff["path"], cwd), diff["oldText"], diff["newText"])
        for diff in diffs
    ]


def _wire_content(shown: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [blocks.content_item(_wire_block(block)) for block in bounded_blocks(shown)]


def _wire_block(block: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a block that ACP knows; any other becomes a placeholder.

    Rule: result-blocks-become-acp-blocks.
    """
    kind = block.get("type")
    if kind == "text" and len(block) == len(("type", "text")):
        return block
    try:
        return content.read_block(block).to_json()
    except WireError:
        return blocks.text_block(f"[{kind} content]")


def _relative_title(title: str, places: Sequence[Mapping[str, Any]], cwd: str | None) -> str:
    """Return the title with the first place's path made relative, if that lies inside `cwd`."""
    path = places[0]["path"] if places else ""
    if cwd is None or not os.path.isabs(path) or not os.path.isabs(cwd):  # noqa: PTH117 - text rule
        return title
    inside = os.path.relpath(path, cwd)
    if inside == "." or inside == ".." or inside.startswith("../"):
        return title
    return title.replace(path, inside)

"""Presenters: what a call's card shows where the log has no card of it.

Rule: foreign-calls-use-presenters.

Our own logs keep their cards; these are for logs that others wrote. A presenter belongs to a tool
and is found by the tool's name. It may fail in any way: then the generic card is shown.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from acp_server.turns.content import text_of
from session_core import check_view

_log = logging.getLogger(__name__)

View = dict[str, Any]
Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ResultParts:
    """What a log keeps of a result.

    Attributes:
        arguments: Of the call.
        content: Blocks of the `tool/result`.
        meta: The tool's own presentation data, if it stored any.
    """

    arguments: Arguments
    content: Sequence[Mapping[str, Any]]
    meta: Any = None


@dataclass(frozen=True, slots=True)
class Presenter:
    """Presents the calls of one tool.

    Attributes:
        call: Returns the call view for arguments.
        result: Returns the result view of a call that succeeded, or None for its raw content.
    """

    call: Callable[[Arguments], View]
    result: Callable[[ResultParts], View | None] | None = None


class Presenters:
    """Presenters by tool name. Immutable: a registration makes a new object."""

    def __init__(self, by_name: Mapping[str, Presenter]) -> None:
        self._by_name = dict(by_name)

    def register(self, name: str, presenter: Presenter) -> Presenters:
        """Return a registry that has this presenter, too."""
        return Presenters({**self._by_name, name: presenter})

    def call_view(self, name: str, arguments: Arguments | None) -> View | None:
        """Return the view of a call, or None for the generic card.

        Raises:
            CardError: The presenter returned something else than a view: a mistake in the program.
        """
        presenter = self._by_name.get(name)
        if presenter is None or arguments is None:
            return None
        try:
            view = presenter.call(arguments)
        except Exception:  # noqa: BLE001 - boundary
            _log.exception("the presenter of %r failed on a call", name)
            return None
        return check_view(view)

    def result_view(self, name: str, parts: ResultParts) -> View | None:
        """Return the view of a result, or None for its raw content.

        Raises:
            CardError: The presenter returned something else than a view: a mistake in the program.
        """
        presenter = self._by_name.get(name)
        if presenter is None or presenter.result is None:
            return None
        try:
            view = presenter.result(parts)
        except Exception:  # noqa: BLE001 - boundary
            _log.exception("the presenter of %r failed on a result", name)
            return None
        return None if view is None else check_view(view)


def _path(arguments: Arguments) -> str:
    path: str = arguments["path"] if "path" in arguments else arguments["file_path"]
    return path


def _read(arguments: Arguments) -> View:
    path = _path(arguments)
    line = arguments.get("line") or arguments.get("offset") or 1
    where = [{"path": path, "line": line}]
    return {"type": "generic-call", "title": f"Read {path}", "kind": "read", "locations": where}


def _write(arguments: Arguments) -> View:
    return _change("Write", _path(arguments), None, arguments["content"])


def _edit(arguments: Arguments) -> View:
    old, new = arguments["old_string"], arguments["new_string"]
    return _change("Edit", _path(arguments), old, new)


def _change(verb: str, path: str, old: str | None, new: str) -> View:
    diff = {"path": path, "oldText": old, "newText": new}
    place = {"path": path}
    return {"type": "diff-call", "title": f"{verb} {path}", "diffs": [diff], "locations": [place]}


def _shell(arguments: Arguments) -> View:
    view: View = {"type": "terminal-call", "title": arguments["command"]}
    for name in ("description", "cwd"):
        if isinstance(arguments.get(name), str):
            view[name] = arguments[name]
    return view


def _shell_result(parts: ResultParts) -> View:
    return {"type": "terminal-result", "output": text_of(parts.content)}


def _todo(arguments: Arguments) -> View:
    title, shown = "Update todo list", dict(arguments)
    return {"type": "generic-call", "title": title, "kind": "other", "rawInput": shown}


REFERENCE_PRESENTERS: Final = Presenters(
    {
        "read": Presenter(_read),
        "write": Presenter(_write),
        "edit": Presenter(_edit),
        "bash": Presenter(_shell, _shell_result),
        "shell": Presenter(_shell, _shell_result),
        "todo_write": Presenter(_todo),
    }
)
"""For the tools that most agents have, by the names and arguments that are customary."""

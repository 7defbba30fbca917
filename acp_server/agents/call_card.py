"""What the card of one call shows, as the neutral views that the log keeps.

Rules: views-have-fixed-types, cards-are-stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from acp_server.turns.bounds import (
    MAX_DIFF_BYTES,
    MAX_TITLE_BYTES,
    bounded_blocks,
    bounded_text,
    shown_json,
    utf8_size,
)
from acp_server.turns.content import clean_text, result_content

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from acp_server.agents.terminals import Terminal

    Location = str | tuple[str, int]

KINDS: Final = frozenset(
    {
        "read",
        "edit",
        "delete",
        "move",
        "search",
        "execute",
        "think",
        "fetch",
        "switch_mode",
        "other",
    }
)
"""ACP tool kinds: what a client chooses the card's icon by."""


class CallCard:
    """The state of one card.

    Args:
        title: Title of the card.
        kind: One of `KINDS`.
        raw_input: The arguments, if they are a JSON object.
        absolute: Makes a path absolute (cards-are-stored).
        console: The card is that of a command run by the agent; a text describes the command.

    Raises:
        ValueError: There is no such kind.
    """

    def __init__(
        self,
        title: str,
        kind: str,
        raw_input: Mapping[str, Any] | None,
        absolute: Callable[[str], str],
        *,
        console: bool | str = False,
    ) -> None:
        if kind not in KINDS:
            raise ValueError(f"no tool kind of ACP: {kind!r}")
        self.kind = kind
        self.title = title
        self._raw_input = None if raw_input is None else shown_json(raw_input)
        self._raw_output: dict[str, Any] | None = None
        self._absolute = absolute
        self._locations: list[dict[str, Any]] = []
        self._diffs: list[dict[str, Any]] = []
        self._diff_bytes = 0
        self._diff_notes: list[str] = []
        self._content: list[dict[str, Any]] = []
        self._console = console is not False
        self._description = clean_text(console) if isinstance(console, str) else ""
        self._terminal: Terminal | None = None
        self._console_end: dict[str, Any] = {}

    # -- changes ----------------------------------------------------------------------------

    def set_locations(self, locations: Sequence[Location]) -> None:
        """Replace the places that the card links to."""
        self._locations = [self._location(item) for item in locations]

    def set_content(self, value: str | Sequence[Mapping[str, Any]]) -> None:
        """Replace what the card shows while the call runs."""
        self._content = bounded_blocks(result_content(value))

    def set_raw_output(self, value: Mapping[str, Any]) -> None:
        """Set the result as JSON, for clients that show it."""
        self._raw_output = shown_json(value)

    def add_diff(self, path: str, old: str | None, new: str) -> None:
        """Add a change of a file; changes too large to be shown are only named (B77)."""
        path = clean_text(self._absolute(path))
        size = utf8_size(new) + (0 if old is None else utf8_size(old))
        self._diff_bytes += size
        self._diff_notes.append(f"[diff of {path} left out: {size} bytes]")
        if self._diff_bytes > MAX_DIFF_BYTES:
            self._diffs.clear()
            self._content = result_content("\n".join(self._diff_notes))
            return
        old = None if old is None else clean_text(old)
        self._diffs.append({"path": path, "oldText": old, "newText": clean_text(new)})

    def set_terminal(self, terminal: Terminal) -> None:
        """Show a terminal of the client."""
        self._terminal = terminal

    def end_console(self, output: str, exit_code: int | None, signal: str | None) -> None:
        """Set what the command has put out, and how it ended."""
        self._console_end = _console_end(
            bounded_text(output), exit_code, None if signal is None else clean_text(signal)
        )

    # -- views ------------------------------------------------------------------------------

    def view(self) -> dict[str, Any]:
        """Return what the card shows now, before a result."""
        view: dict[str, Any]
        if self._terminal is not None or self._console:
            return self._terminal_view()
        title = bounded_text(self.title, MAX_TITLE_BYTES)
        if self._diffs:
            view = {"type": "diff-call", "title": title, "diffs": list(self._diffs)}
        else:
            view = {"type": "generic-call", "title": title, "kind": self.kind}
            if self._raw_input is not None:
                view["rawInput"] = self._raw_input
            if self._content:
                view["content"] = list(self._content)
        if self._locations:
            view["locations"] = list(self._locations)
        return view

    def result_view(self) -> dict[str, Any] | None:
        """Return what the result shows, or None if its content is enough."""
        if self._terminal is not None:
            ended = self._terminal.exit
            code, signal = (None, None) if ended is None else (ended.code, ended.signal)
            end = _console_end(self._terminal.output, code, signal)
            return {"type": "terminal-result", **end}
        if self._console:
            return {"type": "terminal-result", **self._console_end}
        if self._raw_output is not None and not self._diffs:
            return {"type": "generic-result", "rawOutput": self._raw_output}
        return None

    def console_text(self) -> str | None:
        """Return the output for the model, how it ended included; None if there is no console."""
        view = self.result_view()
        if view is None or view["type"] != "terminal-result":
            return None
        output: str = view.get("output", "")
        if "signal" in view:
            return f"{output}\n[ended by {view['signal']}]"
        return f"{output}\n[exit code {view['exitCode']}]" if view.get("exitCode") else output

    # -- inside -----------------------------------------------------------------------------

    def _terminal_view(self) -> dict[str, Any]:
        title = bounded_text(self.title, MAX_TITLE_BYTES)
        view: dict[str, Any] = {"type": "terminal-call", "title": title}
        if self._description:
            view["description"] = self._description
        if self._terminal is not None:
            view["terminalId"] = self._terminal.terminal_id
            if self._terminal.cwd is not None:
                view["cwd"] = self._terminal.cwd
        return view

    def _location(self, item: Location) -> dict[str, Any]:
        if isinstance(item, str):
            return {"path": clean_text(self._absolute(item))}
        path, line = item
        if line < 1:
            raise ValueError(f"lines count from 1, not {line!r}")
        return {"path": clean_text(self._absolute(path)), "line": line}


def _console_end(output: str, exit_code: int | None, signal: str | None) -> dict[str, Any]:
    end: dict[str, Any] = {"output": output}
    if signal is not None:
        end["signal"] = signal
    elif exit_code is not None:
        end["exitCode"] = exit_code
    return end

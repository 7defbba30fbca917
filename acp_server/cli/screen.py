"""Shows a conversation over ACP: what a client sees, line by line, in color on a terminal."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_STYLES = {
    "heading": "1;36",
    "user": "1;32",
    "thought": "2;3",
    "tool": "33",
    "plan": "35",
    "note": "2",
    "bad": "1;31",
}
_MARKS = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]"}
_CHUNKS = {
    "agent_message_chunk": ("agent", ""),
    "agent_thought_chunk": ("thinks", "thought"),
    "user_message_chunk": ("you", "user"),
}
_LABEL_WIDTH = 8


class Screen:
    """Prints the events of a conversation as they come.

    In color on a terminal only, and not when `NO_COLOR` is set.
    """

    def __init__(self) -> None:
        self._out = sys.stdout
        self._colour = self._out.isatty() and "NO_COLOR" not in os.environ
        self._open_label = ""
        self._titles: dict[str, str] = {}

    def heading(self, text: str) -> None:
        """Print what happens next."""
        self._line("\n" + self._styled(f"== {text}", "heading"))

    def note(self, text: str) -> None:
        """Print a remark of the demo itself."""
        self._line(self._styled(f"   {text}", "note"))

    def failure(self, text: str) -> None:
        """Print what went wrong."""
        self._line(self._styled(f"FAILED: {text}", "bad"))

    def prompt(self, text: str) -> None:
        """Print what the user says."""
        self._labelled("you", text, "user")

    def frame(self, direction: str, data: bytes) -> None:
        """Print one frame as it crossed the pipe."""
        self._line(self._styled(f"   {direction} {data.decode().rstrip()}", "note"))

    def update(self, update: Mapping[str, Any]) -> None:
        """Print one `session/update`."""
        variant = update["sessionUpdate"]
        if variant in _CHUNKS:
            self._chunk(variant, update)
        elif variant == "plan":
            self._plan(update)
        elif variant in ("tool_call", "tool_call_update"):
            self._tool(update)
        elif variant == "session_info_update":
            self._labelled("title", update.get("title", ""), "note")

    def permission(self, params: Mapping[str, Any], answer: str) -> None:
        """Print a permission request and its answer."""
        title = params["toolCall"].get("title", "")
        options = ", ".join(option["name"] for option in params["options"])
        self._labelled("asks", f"{title}?  ({options})  ->  {answer}", "tool")

    def _chunk(self, variant: str, update: Mapping[str, Any]) -> None:
        label, style = _CHUNKS[variant]
        content = update["content"]
        text = content.get("text", f"[{content['type']}]").rstrip("\n")
        if self._open_label != label + update.get("messageId", ""):
            self._end_line()
            self._write(self._styled(f"{label:>{_LABEL_WIDTH}}  ", style or "heading"))
            self._open_label = label + update.get("messageId", "")
            text = text.lstrip("\n")
        self._write(self._styled(text.replace("\n\n", "\n" + " " * (_LABEL_WIDTH + 2)), style))

    def _plan(self, update: Mapping[str, Any]) -> None:
        entries = update["entries"]
        text = "   ".join(f"{_MARKS[entry['status']]} {entry['content']}" for entry in entries)
        self._labelled("plan", text or "(empty)", "plan")

    def _tool(self, update: Mapping[str, Any]) -> None:
        call_id = update["toolCallId"]
        if "title" in update:
            self._titles[call_id] = update["title"]
        title = self._titles.get(call_id, call_id)
        self._labelled("tool", f"{title}: {update.get('status', 'changed')}", "tool")
        for item in update.get("content", ()):
            if item["type"] == "diff":
                self._diff(item)

    def _diff(self, item: Mapping[str, Any]) -> None:
        old = (item.get("oldText") or "").splitlines()
        for line in item["newText"].splitlines():
            mark = " " if line in old else "+"
            self._line(self._styled(f"{'':{_LABEL_WIDTH}}  {mark} {line}", "note"))

    def _labelled(self, label: str, text: str, style: str) -> None:
        self._line(self._styled(f"{label:>{_LABEL_WIDTH}}  {text}", style))

    def _line(self, text: str) -> None:
        self._end_line()
        self._write(text + "\n")

    def _end_line(self) -> None:
        if self._open_label:
            self._write("\n")
            self._open_label = ""

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()

    def _styled(self, text: str, style: str) -> str:
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if self._colour and style else text

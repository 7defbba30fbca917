"""The derived cache of a log, folded record by record.

Rules: list-rows-fold-the-log, summary-is-only-a-cache.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

from persistence.storage import SessionSummary
from session_core import Event, display_prompt_content

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from session_core import Record, SessionHeader

MAX_LINE = 200
"""The most characters that a row of a list shows of a title or a prompt (list-rows-are-short)."""

# Enough to find a line in, however much white space stands between its words.
_LOOKED_AT = 20 * MAX_LINE


class SummaryFold:
    """Advances a summary by the records that were stored; costs nothing per chunk."""

    def __init__(self, header: SessionHeader) -> None:
        self._created_at = header.created_at
        self._title: str | None = None
        self._first_prompt: str | None = None
        self._updated_at = header.created_at
        self._event_count = 0
        self._turn_count = 0
        self._message_turns: set[int] = set()

    def advance(self, records: Iterable[Record]) -> None:
        """Take the next records of the log."""
        for record in records:
            if isinstance(record, Event):
                self._event_count += 1
                self._take(record)
            else:
                self._event_count += len(record)

    def copy(self) -> SummaryFold:
        """Return a fold that goes on from here by itself."""
        other = copy(self)
        other._message_turns = set(self._message_turns)  # noqa: SLF001 - of this very class
        return other

    def summary(self) -> SessionSummary:
        """Return the summary of all records taken so far."""
        return SessionSummary(
            self._title,
            self._first_prompt,
            self._updated_at,
            self._event_count,
            self._turn_count,
        )

    def _take(self, event: Event) -> None:
        match event.type:
            case "turn/start":
                self._take_turn_start(event)
            case "turn/end":
                self._take_turn_end(event)
            case "session/title":
                self._take_title(event)
            case "user/message" | "prompt/blocked":
                self._take_prompt(event)

    # The payloads of a stored log are checked only as far as projection reads them
    # (stored-payloads-are-checked-for-use), so what these read may be missing; a summary then goes
    # without it.

    def _take_turn_start(self, event: Event) -> None:
        self._turn_count += 1
        trigger = event.data.get("trigger")
        turn = event.data.get("turn")
        if not isinstance(turn, int) or not isinstance(trigger, dict):
            return
        if trigger.get("kind") == "message":
            self._message_turns.add(turn)

    def _take_turn_end(self, event: Event) -> None:
        turn = event.data.get("turn")
        if isinstance(turn, int) and turn in self._message_turns:
            self._message_turns.discard(turn)
            # The last one, not the latest: a clock may have gone backwards (B59).
            self._updated_at = max(event.time, self._created_at)

    def _take_title(self, event: Event) -> None:
        title = event.data.get("title")
        if isinstance(title, str):
            self._title = list_line(title)

    def _take_prompt(self, event: Event) -> None:
        source = event.data.get("source")
        if self._first_prompt is not None or not isinstance(source, dict):
            return
        if source.get("kind") == "user":
            self._first_prompt = prompt_text(event.data)


def summarize(header: SessionHeader, records: Iterable[Record]) -> SessionSummary:
    """Return the summary of a whole log."""
    fold = SummaryFold(header)
    fold.advance(records)
    return fold.summary()


def prompt_text(data: Mapping[str, Any]) -> str:
    """Return the first words of what a person typed, on one line."""
    texts = [
        block["text"]
        for block in display_prompt_content(data)
        if isinstance(block, dict) and isinstance(block.get("text"), str)
    ]
    return list_line(" ".join(texts))


def list_line(text: str) -> str:
    """Return what a row of a list shows of a text: one short line (list-rows-are-short)."""
    return " ".join(text[:_LOOKED_AT].split())[:MAX_LINE].rstrip()

"""What live and replayed projection share: message ids (Z4), markers (Z6), plans, titles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acp_server.bridge.json_objects import iso_time
from acp_server.wire import updates

if TYPE_CHECKING:
    from collections.abc import Mapping

    from session_core import Event

INTERRUPTED = "\n\n[Interrupted: the server stopped before this turn ended]\n\n"

_ID_LETTER = {"text": "a", "reasoning": "t"}


class MessageIds:
    """Computes `messageId`s from seqs, so that they need no storage and never differ (Z4)."""

    def __init__(self) -> None:
        self._base: int | None = None

    def on_chunk(self, seq: int) -> None:
        """Note a chunk: the first since the last boundary names the message."""
        if self._base is None:
            self._base = seq

    def on_boundary(self) -> None:
        """Note an `assistant/message` or a `step/start`: the next chunk begins a new message."""
        self._base = None

    def of(self, kind: str, seq: int) -> str:
        """Return the id of the open message.

        Args:
            kind: `text` or `reasoning`.
            seq: Seq of the `assistant/message` itself, which names it if there were no chunks.
        """
        return f"{_ID_LETTER[kind]}{seq if self._base is None else self._base}"


def plan_update(event: Event) -> dict[str, Any]:
    """Return the plan that a `todo/write` shows: whole list, order kept, priority medium."""
    return updates.plan(
        updates.plan_entry(todo["content"], todo["status"]) for todo in event.data["todos"]
    )


def title_update(event: Event) -> dict[str, Any]:
    """Return the title change that a `session/title` shows."""
    return updates.session_info_update(title=event.data["title"], updated_at=iso_time(event.time))


def marker_update(event: Event, text: str) -> dict[str, Any]:
    """Return the chunk that shows a marker of an event."""
    return updates.agent_message_chunk({"type": "text", "text": text}, f"m{event.seq}")


def failure_marker(reason: Mapping[str, Any]) -> str | None:
    """Return the marker of a `turn/end` reason, if it has one live."""
    failure = reason.get("failure")
    if reason["kind"] != "error" or failure is None:
        return None
    return (
        "\n\n[Model attempt failed; any partial output above is discarded: "
        f"{failure['message']}]\n\n"
    )


def retry_marker(data: Mapping[str, Any]) -> str:
    """Return the marker of an `llm/retry`."""
    return (
        f"\n\n[Previous model attempt discarded; retrying {data['retry']}/{data['maxRetries']} "
        f"in {data['delayMs']}ms: {data['failure']['message']}]\n\n"
    )


def blocked_marker(data: Mapping[str, Any]) -> str:
    """Return the marker of a `prompt/blocked`: without it the turn would stop for no reason."""
    return f"\n\n[Prompt blocked: {data['reason']}]\n\n"

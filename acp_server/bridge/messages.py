"""What live and replayed projection share: message ids, markers, plans, titles.

Rules: message-ids-come-from-seqs, markers-have-exact-texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acp_server.bridge.timestamps import iso_time
from acp_server.wire import updates
from session_core import last_event_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from session_core import Event
    from session_core.log import Events

INTERRUPTED = "\n\n[Interrupted: the server stopped before this turn ended]\n\n"

_ID_LETTER = {"text": "a", "reasoning": "t"}

_STATUSES = ("pending", "in_progress", "completed")


class MessageIds:
    """Computes `messageId`s from seqs, so that they need no storage and never differ.

    Rule: message-ids-come-from-seqs.
    """

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
    """Return the plan that a `todo/write` shows: whole list, order kept, priority medium.

    A status that the protocol does not have, in a foreign log, is shown as one that is not begun.
    """
    return updates.plan(
        updates.plan_entry(
            todo["content"], todo["status"] if todo["status"] in _STATUSES else "pending"
        )
        for todo in event.data["todos"]
    )


def title_update(event: Event) -> dict[str, Any]:
    """Return the title change that a `session/title` shows."""
    return updates.session_info_update(title=event.data["title"], updated_at=iso_time(event.time))


def usage_update(event: Event) -> dict[str, Any]:
    """Return the state of the context that a `usage/report` shows."""
    return updates.usage_update(event.data["used"], event.data["size"])


def usage_update_from(events: Events, context_size: int | None = None) -> dict[str, Any] | None:
    """Return the last known state of the context, for after a load or resume; or None.

    Rule: usage-is-last-known-state.

    Args:
        events: The log.
        context_size: Tokens that the agent's model holds. With it the usage of the last
            `assistant/message` counts, too, where that is later than the last `usage/report`.
    """
    last = last_event_of(events, ("usage/report", "assistant/message"))
    if last is not None and last.type == "assistant/message":
        usage = last.data.get("usage")
        if context_size is not None and usage is not None:
            return updates.usage_update(_tokens(usage), context_size)
        last = last_event_of(events, ("usage/report",))
    return None if last is None else usage_update(last)


def _tokens(usage: Mapping[str, Any]) -> int:
    """Return what is in the context after a request: all of its input, and its output."""
    counts = ("inputTokens", "cacheReadTokens", "cacheWriteTokens", "outputTokens")
    return sum(usage.get(count, 0) for count in counts)


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

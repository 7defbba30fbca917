"""From events to the messages the model sees.

Rules: each-event-projects-one-message, context-is-framed-by-tags.

One pure function per event, and an incremental projection of a surface that uses it. Knows nothing
of requests or of what a client is shown.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

from session_core.events import Event, Message
from session_core.json_value import FrozenDict, FrozenList, frozen_dict_of, frozen_list_of
from session_core.log import EventLog
from session_core.surface import SurfaceTracker

FrameTag = Literal["context", "steering"]


def frame(
    tag: FrameTag, source: Mapping[str, Any], content: Sequence[Mapping[str, Any]]
) -> list[Any]:
    """Return `content` between the two tag blocks (context-is-framed-by-tags).

    Only `source["kind"]` is named, as JSON text; nothing in `content` is escaped or trimmed.
    """
    kind = json.dumps(source["kind"], ensure_ascii=False)
    return [
        {"type": "text", "text": f"<{tag} source={kind}>"},
        *content,
        {"type": "text", "text": f"</{tag}>"},
    ]


def display_prompt_content(data: Mapping[str, Any]) -> Sequence[Any]:
    """Return what the human typed: `data` is the payload of a user or steering message."""
    envelope = data.get("envelope")
    # Payloads are checked JSON, which has no static type beyond that.
    return data["content"] if envelope is None else envelope["displayContent"]  # type: ignore[no-any-return]


def _user(content: FrozenList) -> Message:
    return frozen_dict_of({"role": "user", "content": content})


def _prompt_message(data: FrozenDict) -> Message:
    return _user(data["content"])


def _context_message(data: FrozenDict) -> Message:
    if data.get("envelope") == "raw":
        return _user(data["content"])
    return _user(FrozenList(frame("context", data["source"], data["content"])))


def _assistant_message(data: FrozenDict) -> Message | None:
    # An empty message hosts provenance and usage only; a provider would refuse it in a transcript.
    if not data["content"]:
        return None
    return frozen_dict_of(
        {"role": "assistant", "content": data["content"], "provenance": data["provenance"]}
    )


def _result_message(data: FrozenDict) -> Message:
    block = frozen_dict_of(
        {
            "type": "tool-result",
            "toolCallId": data["callId"],
            "content": data["content"],
            "isError": data["isError"],
        }
    )
    return _user(frozen_list_of([block]))


_PROJECTIONS: Final[dict[str, Callable[[FrozenDict], Message | None]]] = {
    "user/message": _prompt_message,
    "steering/message": _prompt_message,
    "context/message": _context_message,
    "assistant/message": _assistant_message,
    "tool/result": _result_message,
}


def derive_event_message(event: Event) -> Message | None:
    """Return the message that `event` puts before the model, or `None` if it puts none."""
    project = _PROJECTIONS.get(event.type)
    return project(event.data) if project else None


class HistoryProjection:
    """The messages of a surface, each projected once for as long as the surface only grows."""

    __slots__ = ("_generation", "_messages", "_projected")

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._projected = 0
        self._generation = 0

    def messages(self, surface: SurfaceTracker, log: EventLog) -> list[Message]:
        """Return the history as a new list over shared, frozen messages."""
        self.project(surface, log)
        return list(self._messages)

    def project(self, surface: SurfaceTracker, log: EventLog, limit: int | None = None) -> bool:
        """Project what is new, at most `limit` nodes of it; return whether all is projected."""
        if surface.replace_generation != self._generation:
            self._messages, self._projected = [], 0
            self._generation = surface.replace_generation
        nodes = surface.nodes_from(self._projected, limit)
        for seq in nodes:
            self._projected += 1
            if message := derive_event_message(log.event_at(seq)):
                self._messages.append(message)
        return limit is None or len(nodes) < limit

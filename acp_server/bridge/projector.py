"""Live projection: each event becomes its updates at once (column live).

Rule: events-project-to-updates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orjson import dumps

from acp_server.bridge.frames import TEXT_END
from acp_server.bridge.messages import (
    MessageIds,
    blocked_marker,
    failure_marker,
    marker_update,
    plan_update,
    retry_marker,
    title_update,
    usage_update,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from acp_server.bridge.cards import CardChange, ToolCards
    from acp_server.bridge.frames import FrameBuilder
    from acp_server.bridge.update_gate import UpdateGate
    from session_core import Event

_DELTAS = {"text-delta": "text", "reasoning-delta": "reasoning"}


class LiveProjector:
    """Observes one session and emits what its client sees. Awaits nothing."""

    def __init__(self, frames: FrameBuilder, cards: ToolCards, gate: UpdateGate) -> None:
        self._frames = frames
        self._cards = cards
        self._gate = gate
        self._ids = MessageIds()
        self._prefixes: dict[str, bytes] = {}
        self._step_showed = False
        self._handlers: dict[str, Callable[[Event], None]] = {
            "step/start": self._on_step_start,
            "step/end": self._on_step_end,
            "assistant/message": self._on_message,
            "tool/card": lambda event: self._emit_change(cards.on_card(event)),
            "approval/asked": cards.on_asked,
            "approval/decided": cards.on_decided,
            "tool/call": lambda event: self._emit_change(cards.on_call(event)),
            "tool/result": self._on_result,
            "todo/write": lambda event: self._emit(plan_update(event)),
            "session/title": lambda event: self._emit(title_update(event)),
            "usage/report": lambda event: self._emit(usage_update(event)),
            "prompt/blocked": self._on_blocked,
            "llm/retry": self._on_retry,
            "turn/end": self._on_turn_end,
        }

    def __call__(self, event: Event) -> None:
        """Project one committed event."""
        if event.type == "assistant/chunk":
            chunk = event.data["chunk"]
            prefix = self._prefixes.get(chunk["type"])
            if prefix is None:
                self._on_chunk(event)
            elif chunk["text"]:
                # As `FrameBuilder.text_frame`, a call less on the path of every token.
                self._gate.emit(prefix + dumps(chunk["text"]) + TEXT_END)
            return
        handler = self._handlers.get(event.type)
        if handler is not None:
            handler(event)

    def _on_chunk(self, event: Event) -> None:
        self._ids.on_chunk(event.seq)
        chunk = event.data["chunk"]
        kind = _DELTAS.get(chunk["type"])
        if kind is None or not chunk["text"]:
            return
        prefix = self._frames.text_prefix(kind, self._ids.of(kind, event.seq))
        self._prefixes[chunk["type"]] = prefix
        self._step_showed = True
        self._gate.emit(self._frames.text_frame(prefix, chunk["text"]))

    def _on_step_start(self, _event: Event) -> None:
        self._new_message()
        self._step_showed = False

    def _on_step_end(self, _event: Event) -> None:
        for change in self._cards.on_step_end():
            self._emit(change.update())

    def _on_message(self, event: Event) -> None:
        self._cards.on_message(event)
        self._new_message()

    def _on_result(self, event: Event) -> None:
        change = self._cards.on_result(event)
        if change is not None:
            self._gate.hold_until_durable(event.seq)
            self._emit(change.update())

    def _on_blocked(self, event: Event) -> None:
        self._emit(marker_update(event, blocked_marker(event.data)))

    def _on_retry(self, event: Event) -> None:
        if self._step_showed:
            self._emit(marker_update(event, retry_marker(event.data)))

    def _on_turn_end(self, event: Event) -> None:
        marker = failure_marker(event.data["reason"])
        if marker is not None:
            self._emit(marker_update(event, marker))

    def _new_message(self) -> None:
        self._ids.on_boundary()
        self._prefixes.clear()

    def _emit_change(self, change: CardChange | None) -> None:
        if change is not None and (change.new or change.fields):
            self._emit(change.update())

    def _emit(self, update: dict[str, Any]) -> None:
        self._gate.emit(self._frames.update(update))

"""Replay: the whole log as the updates a client gets on load (column replay).

Rules: events-project-to-updates, replayed-text-is-joined-deltas.

Works on packed runs, so that a long answer costs one join. Within a step the frames come in the
order of their first events, each message block as one chunk and each call as one final card.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from acp_server.bridge.cards import ABORT_CODES
from acp_server.bridge.messages import (
    INTERRUPTED,
    MessageIds,
    blocked_marker,
    failure_marker,
    marker_update,
    plan_update,
    retry_marker,
    title_update,
)
from acp_server.wire import updates
from acp_server.wire.blocks import text_block
from acp_server.wire.content import read_block
from acp_server.wire.errors import WireError
from session_core import ChunkRun, display_prompt_content

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from acp_server.bridge.cards import Card, CardChange, ToolCards
    from acp_server.bridge.frames import FrameBuilder
    from session_core import Event, Record

_TEXT_BLOCK = {"type", "text"}
_DELTAS = {"text-delta": "text", "reasoning-delta": "reasoning"}


@dataclass(slots=True)
class _Text:
    """One block of a message, growing."""

    kind: str
    message_id: str
    parts: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _KnownCard:
    """A card that the client has, and that has changed."""

    card: Card


class Replay:
    """Replays one log, once.

    Args:
        frames: Builds the session's frames.
        cards: A fresh fold: the live one must not be touched by history.
        shown: Events that the client has seen before, which it is not sent again: what follows
            belongs to the same messages and cards.
    """

    def __init__(self, frames: FrameBuilder, cards: ToolCards, shown: int = 0) -> None:
        self._shown = shown
        self._is_new = not shown
        self._announced: set[str] = set()
        self._frames = frames
        self._cards = cards
        self._ids = MessageIds()
        self._items: list[_Text | Card | _KnownCard | bytes] = []
        self._blocks: dict[int, _Text] = {}
        self._streamed = False
        self._step_showed = False
        self._closed_by_abort = False
        self._in_turn = False
        self._handlers: dict[str, Callable[[Event], None]] = {
            "turn/start": self._on_turn_start,
            "turn/end": self._on_turn_end,
            "step/start": self._on_step_start,
            "step/end": self._on_step_end,
            "user/message": self._on_user,
            "prompt/blocked": self._on_blocked,
            "assistant/chunk": self._on_chunk,
            "assistant/message": self._on_message,
            "tool/card": lambda event: self._on_change(cards.on_card(event)),
            "approval/asked": cards.on_asked,
            "approval/decided": cards.on_decided,
            "tool/call": lambda event: self._on_change(cards.on_call(event)),
            "tool/result": self._on_result,
            "todo/write": lambda event: self._put(plan_update(event)),
            "session/title": lambda event: self._put(title_update(event)),
            "llm/retry": self._on_retry,
        }

    def frames(self, records: Iterable[Record]) -> Iterator[bytes]:
        """Yield the frames of a log, given as records from seq 0 on, cut where `shown` ends."""
        for record in records:
            if not self._is_new:
                seq = record.seq0 if isinstance(record, ChunkRun) else record.seq
                self._is_new = seq >= self._shown
            if isinstance(record, ChunkRun):
                self._on_run(record)
                continue
            handler = self._handlers.get(record.type)
            if handler is not None:
                handler(record)
            if record.type in ("step/end", "turn/end"):
                yield from self._drain()
        if not self._in_turn:
            # Only in a log that lost the boundaries of its turn.
            self._fail_open_cards()
        yield from self._drain()

    # -- streamed output ---------------------------------------------------------------------

    def _on_run(self, run: ChunkRun) -> None:
        self._ids.on_chunk(run.seq0)
        self._streamed = True
        kind = _DELTAS.get(run.kind)
        if kind is not None:
            self._add_text(run.index, kind, "".join(run.texts), run.seq0)

    def _on_chunk(self, event: Event) -> None:
        self._ids.on_chunk(event.seq)
        self._streamed = True
        chunk = event.data["chunk"]
        kind = _DELTAS.get(chunk["type"])
        if kind is not None:
            self._add_text(chunk["index"], kind, chunk["text"], event.seq)
        elif chunk["type"] == "block-end" and chunk["index"] not in self._blocks:
            self._add_block(chunk["index"], chunk["block"], event.seq)

    def _on_message(self, event: Event) -> None:
        self._cards.on_message(event)
        if not self._streamed and event.surface_op == "append":
            for index, block in enumerate(event.data["content"]):
                self._add_block(index, block, event.seq)
        self._new_message()

    def _add_block(self, index: int, block: Any, seq: int) -> None:
        if block["type"] in ("text", "reasoning"):
            self._add_text(index, block["type"], block["text"], seq)

    def _add_text(self, index: int, kind: str, text: str, seq: int) -> None:
        if not text:
            return
        item = self._blocks.get(index)
        if item is None:
            item = _Text(kind, self._ids.of(kind, seq))
            self._blocks[index] = item
            self._step_showed = True
        if not self._is_new:
            return
        if not item.parts:
            self._items.append(item)
        item.parts.append(text)

    # -- boundaries --------------------------------------------------------------------------

    def _on_turn_start(self, _event: Event) -> None:
        self._fail_open_cards()
        self._closed_by_abort = False
        self._in_turn = True

    def _on_turn_end(self, event: Event) -> None:
        self._fail_open_cards()
        self._in_turn = False
        reason = event.data["reason"]
        marker = failure_marker(reason)
        if reason["kind"] in ("interrupted", "disposed") and not self._closed_by_abort:
            marker = INTERRUPTED
        if marker is not None:
            self._put(marker_update(event, marker))

    def _on_step_start(self, _event: Event) -> None:
        self._new_message()
        self._step_showed = False

    def _on_step_end(self, _event: Event) -> None:
        self._fail_open_cards()

    def _fail_open_cards(self) -> None:
        for change in self._cards.on_step_end():
            self._on_change(change)

    def _new_message(self) -> None:
        self._ids.on_boundary()
        self._blocks = {}
        self._streamed = False

    # -- the rest ----------------------------------------------------------------------------

    def _on_user(self, event: Event) -> None:
        # A replacement is a rewrite of the model's view, not something the user said.
        if event.data["source"].get("kind") == "user" and event.surface_op == "append":
            self._put_user(display_prompt_content(event.data), event)

    def _on_blocked(self, event: Event) -> None:
        self._put_user(event.data["content"], event)
        self._put(marker_update(event, blocked_marker(event.data)))

    def _put_user(self, content: Iterable[Any], event: Event) -> None:
        for block in content:
            self._put(updates.user_message_chunk(_shown(block), f"u{event.seq}"))

    def _on_retry(self, event: Event) -> None:
        if self._step_showed:
            self._put(marker_update(event, retry_marker(event.data)))

    def _on_result(self, event: Event) -> None:
        error = event.data.get("error")
        if error is not None and error["code"] in ABORT_CODES:
            self._closed_by_abort = True
        self._on_change(self._cards.on_result(event))

    def _on_change(self, change: CardChange | None) -> None:
        if change is None:
            return
        call_id = change.card.call_id
        if not self._is_new:
            self._announced.add(call_id)
        elif change.new:
            self._announced.discard(call_id)
            self._items.append(change.card)
        elif call_id in self._announced:
            self._announced.discard(call_id)
            self._items.append(_KnownCard(change.card))

    def _put(self, update: dict[str, Any]) -> None:
        if self._is_new:
            self._items.append(self._frames.update(update))

    def _drain(self) -> Iterator[bytes]:
        items, self._items = self._items, []
        for item in items:
            if isinstance(item, bytes):
                yield item
            elif isinstance(item, _Text):
                yield from self._frames.texts(item.kind, item.message_id, "".join(item.parts))
            elif isinstance(item, _KnownCard):
                final = self._cards.final_update(item.card)
                yield self._frames.update({**final, "sessionUpdate": "tool_call_update"})
            else:
                yield self._frames.update(self._cards.final_update(item))


def _shown(block: Any) -> Any:
    """Return a block of a prompt as ACP has it; a foreign log may hold any."""
    if block["type"] == "text" and block.keys() == _TEXT_BLOCK:
        return block
    try:
        return read_block(block).to_json()
    except WireError:
        return text_block(f"[{block['type'][:40]!r} block that cannot be shown]")

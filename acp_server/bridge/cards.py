"""Folds the events about tool calls into cards, once for live and replay (Z2, Z3).

Live, each change is one update; on replay only the final state of a card is sent. Both read the
same fold, so they cannot differ.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from acp_server.bridge.presentation import call_fields, result_fields, unknown_call_fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from acp_server.bridge.presentation import Fields
    from session_core import Event

ABORT_CODES = frozenset(
    {"TOOL_NOT_STARTED", "TOOL_OUTCOME_UNKNOWN", "ABORTED", "ABORTED_BEFORE_DISPATCH"}
)
"""Error codes of results that repair or an abort wrote; such a turn needs no marker (Z6)."""


@dataclass(slots=True)
class Card:
    """One call as the client sees it.

    Attributes:
        fields: All wire fields as of now, `status` included.
        shown: Whether the client has been told of it.
        final: Whether it has its one final status.
    """

    call_id: str
    fields: Fields
    shown: bool = False
    final: bool = False
    call_type: str = "generic-call"
    result_view: Mapping[str, Any] | None = None
    refused: bool = False


@dataclass(frozen=True, slots=True)
class CardChange:
    """What an event changed on a card: the whole card if it is new, else the changed fields."""

    card: Card
    fields: Fields
    new: bool

    def update(self) -> dict[str, Any]:
        """Return the ACP update that shows this change."""
        variant = "tool_call" if self.new else "tool_call_update"
        return {"sessionUpdate": variant, "toolCallId": self.card.call_id, **self.fields}


@dataclass(slots=True)
class ToolCards:
    """The cards of one session.

    Args:
        cwd: The session's working directory.
        terminal_cards: Whether the client shows terminals from `_meta`.
    """

    cwd: str | None
    terminal_cards: bool = False
    _cards: dict[str, Card] = field(default_factory=dict)
    _calls: dict[str, tuple[str, str]] = field(default_factory=dict)
    _questions: dict[str, str] = field(default_factory=dict)

    def final_update(self, card: Card) -> dict[str, Any]:
        """Return the one `tool_call` that shows a card as it is now."""
        return {"sessionUpdate": "tool_call", "toolCallId": card.call_id, **card.fields}

    def card(self, call_id: str) -> Card | None:
        """Return the card of a call that is still open."""
        return self._cards.get(call_id)

    def on_message(self, event: Event) -> None:
        """Note the calls that a message carries: their names, should nothing else tell."""
        for block in event.data["content"]:
            if block.get("type") == "tool-call":
                self._calls[block["id"]] = (block["name"], block["arguments"])

    def on_card(self, event: Event) -> CardChange | None:
        """Take a `tool/card`; a result view waits for its result."""
        view = event.data["view"]
        call_id = event.data["callId"]
        card = self._cards.get(call_id)
        if view["type"].endswith("-result"):
            if card is not None:
                card.result_view = view
            return None
        fields = call_fields(
            view, call_id=call_id, cwd=self.cwd, terminal_cards=self.terminal_cards
        )
        if card is None:
            return self._show(call_id, {**fields, "status": "pending"}, view["type"])
        card.call_type = view["type"]
        return self._change(card, fields)

    def on_asked(self, event: Event) -> None:
        """Note which call a question is about."""
        call_id = event.data.get("callId")
        if call_id is not None:
            self._questions[event.data["id"]] = call_id

    def on_decided(self, event: Event) -> None:
        """Note a refusal: a refused call is never shown as running (Z3)."""
        card = self._cards.get(self._questions.pop(event.data["id"], ""))
        if card is not None:
            card.refused = not event.data["outcome"].startswith("allowed")

    def on_call(self, event: Event) -> CardChange | None:
        """Take a `tool/call`: the call runs now."""
        data = event.data
        card = self._cards.get(data["callId"])
        if card is None:
            fields = unknown_call_fields(data["name"], data["arguments"])
            return self._show(data["callId"], {**fields, "status": "in_progress"}, "generic-call")
        return None if card.refused else self._change(card, {"status": "in_progress"})

    def on_result(self, event: Event) -> CardChange | None:
        """Take a `tool/result`; a rewrite of an earlier one changes no card."""
        if event.surface_op != "append":
            return None
        data = event.data
        call_id = data["callId"]
        card = self._cards.pop(call_id, None)
        failed = data["isError"]
        fields = result_fields(
            None if card is None else card.result_view,
            data["content"],
            failed=failed,
            call_id=call_id,
            call_type="generic-call" if card is None else card.call_type,
            terminal_cards=self.terminal_cards,
        )
        fields["status"] = "failed" if failed else "completed"
        if card is None:
            # A call that was cut off before anything announced it: repair speaks of it first.
            known = unknown_call_fields(*self._calls.get(call_id, ("", "")))
            change = self._show(call_id, {**known, **fields}, "generic-call")
            del self._cards[call_id]
        else:
            change = self._change(card, fields)
        change.card.final = True
        self._calls.pop(call_id, None)
        return change

    def on_step_end(self) -> list[CardChange]:
        """Fail every call that was shown and got no result in its step (Z3)."""
        changes = [self._change(card, {"status": "failed"}) for card in self._cards.values()]
        for change in changes:
            change.card.final = True
        self._cards.clear()
        self._calls.clear()
        return changes

    def _show(self, call_id: str, fields: Fields, call_type: str) -> CardChange:
        card = Card(call_id, dict(fields), shown=True, call_type=call_type)
        self._cards[call_id] = card
        return CardChange(card, fields, new=True)

    def _change(self, card: Card, fields: Fields) -> CardChange:
        changed = {
            key: value
            for key, value in fields.items()
            if key == "status" or card.fields.get(key) != value
        }
        card.fields.update(changed)
        return CardChange(card, changed, new=False)

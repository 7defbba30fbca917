"""Folds the events about tool calls into cards, once for live and replay.

Rules: cards-are-stored, call-ends-exactly-once.

Live, each change is one update; on replay only the final state of a card is sent. Both read the
same fold, so they cannot differ.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from acp_server.agents.presenters import REFERENCE_PRESENTERS, ResultParts
from acp_server.bridge.presentation import call_fields, result_fields, unknown_call_fields
from acp_server.turns.arguments import arguments_or_none
from acp_server.wire import updates
from session_core import CardError, check_view

if TYPE_CHECKING:
    from collections.abc import Mapping

    from acp_server.agents.presenters import Presenters
    from acp_server.bridge.presentation import Fields, Terminals
    from session_core import Event

_log = logging.getLogger(__name__)

ABORT_CODES = frozenset(
    {"TOOL_NOT_STARTED", "TOOL_OUTCOME_UNKNOWN", "ABORTED", "ABORTED_BEFORE_DISPATCH"}
)
"""Error codes of results that repair or an abort wrote; such a turn needs no marker.

Rule: markers-have-exact-texts.
"""


@dataclass(slots=True)
class Card:
    """One call as the client sees it.

    Attributes:
        fields: All wire fields as of now, `status` included.
        final: Whether it has its one final status.
        view: The last call view; None for a card that nothing describes.
        presented: Whether its views come from a presenter, since the log has none.
        text_content: What a finished terminal card shows once its terminal is gone.
    """

    call_id: str
    fields: Fields
    final: bool = False
    view: Mapping[str, Any] | None = None
    result_view: Mapping[str, Any] | None = None
    presented: bool = False
    text_content: list[dict[str, Any]] | None = None
    refused: bool = False

    @property
    def is_terminal(self) -> bool:
        """Whether the card is that of a command."""
        return self.view is not None and self.view["type"] == "terminal-call"


@dataclass(frozen=True, slots=True)
class CardChange:
    """What an event changed on a card: the whole card if it is new, else the changed fields."""

    card: Card
    fields: Fields
    new: bool

    def update(self) -> dict[str, Any]:
        """Return the ACP update that shows this change."""
        build = updates.tool_call if self.new else updates.tool_call_update
        return build(self.card.call_id, self.fields)


@dataclass(slots=True)
class ToolCards:
    """The cards of one session.

    Args:
        cwd: The session's working directory.
        terminal_cards: Whether the client shows terminals from `_meta`.
        presenters: For calls of which the log has no card.
    """

    cwd: str | None
    terminal_cards: bool = False
    presenters: Presenters = REFERENCE_PRESENTERS
    _cards: dict[str, Card] = field(default_factory=dict)
    _calls: dict[str, tuple[str, str]] = field(default_factory=dict)
    _questions: dict[str, str] = field(default_factory=dict)

    def final_update(self, card: Card) -> dict[str, Any]:
        """Return the one `tool_call` that shows a card as it is now.

        A finished command is shown as text: its terminal is gone, and some clients throw away an
        update that names a dead one (finished-terminal-replays-as-text).
        """
        fields = card.fields
        if card.final and card.is_terminal:
            fields = {k: v for k, v in fields.items() if k not in ("content", "_meta")}
            content = card.text_content or self._call_fields(card.view, card.call_id, "none").get(
                "content"
            )
            if content:
                fields["content"] = content
        return updates.tool_call(card.call_id, fields)

    def card(self, call_id: str) -> Card | None:
        """Return the card of a call that is still open."""
        return self._cards.get(call_id)

    def on_message(self, event: Event) -> None:
        """Note the calls that a message carries: their names, should nothing else tell."""
        for block in event.data["content"]:
            if block.get("type") == "tool-call":
                self._calls[block["id"]] = (block["name"], block["arguments"])

    def on_card(self, event: Event) -> CardChange | None:
        """Take a `tool/card`; a result view waits for its result, a view of no kind is ignored."""
        call_id = event.data["callId"]
        card = self._cards.get(call_id)
        try:
            view = check_view(event.data["view"])
        except CardError:
            _log.warning("the card at seq %s is none that can be shown", event.seq, exc_info=True)
            view = None
        if view is not None and view["type"].endswith("-result"):
            if card is not None:
                card.result_view = view
            return None
        if card is None:
            fields = self._call_fields(view, call_id)
            return self._show(call_id, {**fields, "status": "pending"}, view, presented=False)
        if view is None:
            return None
        card.view = view
        return self._change(card, self._call_fields(view, call_id))

    def on_asked(self, event: Event) -> None:
        """Note which call a question is about."""
        call_id = event.data.get("callId")
        if call_id is not None:
            self._questions[event.data["id"]] = call_id

    def on_decided(self, event: Event) -> None:
        """Note a refusal: a refused call is never shown as running (call-ends-exactly-once)."""
        card = self._cards.get(self._questions.pop(event.data["id"], ""))
        if card is not None:
            card.refused = not event.data["outcome"].startswith("allowed")

    def on_call(self, event: Event) -> CardChange | None:
        """Take a `tool/call`: the call runs now."""
        data = event.data
        call_id = data["callId"]
        self._calls[call_id] = (data["name"], data["arguments"])
        card = self._cards.get(call_id)
        if card is None:
            view = self._presented(call_id)
            fields = self._call_fields(view, call_id)
            return self._show(call_id, {**fields, "status": "in_progress"}, view, presented=True)
        return None if card.refused else self._change(card, {"status": "in_progress"})

    def on_result(self, event: Event) -> CardChange | None:
        """Take a `tool/result`; a rewrite of an earlier one changes no card."""
        if event.surface_op != "append":
            return None
        data = event.data
        call_id = data["callId"]
        card = self._cards.pop(call_id, None)
        if card is None:
            # A call that was cut off before anything announced it: repair speaks of it first.
            view = self._presented(call_id)
            fields = self._call_fields(view, call_id)
            card = Card(call_id, fields, view=view, presented=True)
            fields.update(self._result_fields(card, data))
            change = CardChange(card, fields, new=True)
        else:
            change = self._change(card, self._result_fields(card, data))
        card.final = True
        self._calls.pop(call_id, None)
        return change

    def on_step_end(self) -> list[CardChange]:
        """Fail every call that was shown and got no result in its step (call-ends-exactly-once)."""
        changes = [self._change(card, {"status": "failed"}) for card in self._cards.values()]
        for change in changes:
            change.card.final = True
        self._cards.clear()
        self._calls.clear()
        return changes

    def _call_fields(
        self, view: Mapping[str, Any] | None, call_id: str, terminals: Terminals | None = None
    ) -> Fields:
        if view is None:
            return unknown_call_fields(*self._calls.get(call_id, ("", "")))
        shown = terminals or self._terminals
        return call_fields(view, call_id=call_id, cwd=self.cwd, terminals=shown)

    def _result_fields(self, card: Card, data: Mapping[str, Any]) -> Fields:
        failed = data["isError"]
        view = card.result_view
        if view is None and not failed:
            view = self._presented_result(card, data)

        def fields_with(terminals: Terminals) -> Fields:
            return result_fields(
                view,
                data["content"],
                failed=failed,
                call_id=card.call_id,
                call_view=card.view,
                cwd=self.cwd,
                terminals=terminals,
            )

        if card.is_terminal:
            card.text_content = fields_with("none").get("content")
        return {**fields_with(self._terminals), "status": "failed" if failed else "completed"}

    def _presented(self, call_id: str) -> Mapping[str, Any] | None:
        """Return the view that the tool's presenter gives a call without a card."""
        name, arguments = self._calls.get(call_id, ("", ""))
        return self.presenters.call_view(name, arguments_or_none(arguments))

    def _presented_result(self, card: Card, data: Mapping[str, Any]) -> Mapping[str, Any] | None:
        if not card.presented:
            return None
        name, arguments = self._calls.get(card.call_id, ("", ""))
        parts = ResultParts(arguments_or_none(arguments) or {}, data["content"], data.get("meta"))
        return self.presenters.result_view(name, parts)

    @property
    def _terminals(self) -> Terminals:
        return "meta" if self.terminal_cards else "client"

    def _show(
        self, call_id: str, fields: Fields, view: Mapping[str, Any] | None, *, presented: bool
    ) -> CardChange:
        card = Card(call_id, dict(fields), view=view, presented=presented)
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

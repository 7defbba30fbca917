"""The steps of a turn and the messages in them, on their way into the log.

Rule: step-is-message-and-calls.

Awaits nothing and knows no client. State changes behind the append that it stands for, so that a
refused append leaves it as the log is.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from acp_server.turns.errors import TurnClosedError
from acp_server.turns.message_writer import MessageWriter
from session_core import Replace, SurfaceIntent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from acp_server.turns.message_writer import TextKind
    from acp_server.turns.pending_event import PendingEvent
    from acp_server.turns.settings import SessionSettings
    from session_core import Event, Session, StreamAssembler


_log = logging.getLogger(__name__)


@dataclass(eq=False)
class StepLog:
    """The part of `TurnLog` that opens steps and writes messages.

    Attributes:
        session: The session the turn belongs to.
        turn: Its number.
        step: Number of the last step that was opened.
        refused: Whether the model has refused, so that the turn has left its view.
    """

    session: Session
    turn: int
    # Of messages that no model made: `{"provider", "model"}`.
    _provenance: Mapping[str, Any]
    # The model is told of a new preset between steps.
    _settings: SessionSettings
    step: int = field(default=0, init=False)
    refused: bool = field(default=False, init=False)
    _step_open: bool = field(default=False, init=False)
    _message: MessageWriter | None = field(default=None, init=False)
    _pending: list[PendingEvent] = field(default_factory=list, init=False)
    _open: bool = field(default=False, init=False)

    @property
    def closed(self) -> bool:
        """Whether the turn is not, or no longer, open in the log."""
        return not self._open

    def require_open(self) -> None:
        """Return if the turn runs.

        Raises:
            TurnClosedError: It has ended.
        """
        if not self._open:
            raise TurnClosedError

    def begin(self, trigger: Mapping[str, Any]) -> None:
        """Append `turn/start`."""
        self.session.append("turn/start", {"turn": self.turn, "trigger": trigger})
        self._open = True

    def append(
        self, event_type: str, data: Mapping[str, Any], intent: SurfaceIntent | None = None
    ) -> Event:
        """Append an event of this turn.

        Raises:
            TurnClosedError: The turn has ended.
        """
        self.require_open()
        return self.session.append(event_type, data, intent)

    def append_pending(self, event: PendingEvent) -> Event:
        """Append an event that was made elsewhere; see `append`."""
        return self.append(event.type, event.data, event.intent)

    # -- messages ----------------------------------------------------------------------------

    def delta(self, kind: TextKind, text: str) -> None:
        """Append one piece of text or reasoning, opening step, message and block as needed."""
        message = self._message
        if message is None or message.open_kind != kind:
            message = self._open_message()
            message.open_block(kind)
        self.session.append_delta(self.turn, self.step, kind, message.index, text)

    def chunk(self, chunk: Mapping[str, Any]) -> None:
        """Append a chunk exactly as a model sent it."""
        self._open_message().chunk(chunk)

    def streamed(self) -> StreamAssembler:
        """Return what the chunks of the open message add up to so far."""
        return self._open_message().assembled()

    def finish_message(self, kind: str = "stop") -> None:
        """End the message that is open, if any, as the agent's own."""
        if self._message is not None:
            self._message.finish(kind)
            self.append_message(self._provenance)

    def append_message(
        self, provenance: Mapping[str, Any], usage: Mapping[str, Any] | None = None
    ) -> list[Mapping[str, Any]]:
        """Append the message that the chunks since the last one add up to, return its blocks."""
        message = self._open_message()
        blocks = message.assembled().blocks()
        data = self._message_data(blocks, provenance, usage)
        self.append("assistant/message", data, SurfaceIntent("append", message.sources()))
        self._message = None
        return blocks

    def discard_message(self) -> None:
        """Drop a message that failed or was aborted: its chunks stay, no message is written."""
        self._message = None

    def refuse(
        self,
        prompt_seq: int,
        provenance: Mapping[str, Any] | None = None,
        usage: Mapping[str, Any] | None = None,
    ) -> None:
        """Take a refused turn out of the model's view; the client still sees it.

        Rule: refusal-leaves-models-view.

        Args:
            prompt_seq: Seq of the turn's `user/message`.
            provenance: The model that refused; the agent itself by default.
            usage: What the refusal has cost.
        """
        self.discard_message()
        self.begin_step()
        nodes = list(self.session.surface.nodes)
        gone = nodes[nodes.index(prompt_seq) :]
        data = self._message_data([], provenance or self._provenance, usage)
        self.append("assistant/message", data, SurfaceIntent(Replace(gone[0], gone[-1]), gone))
        self.refused = True

    # -- steps -----------------------------------------------------------------------------

    def begin_step(self) -> None:
        """Open the next step unless one is open."""
        if not self._step_open:
            self.append("step/start", {"turn": self.turn, "step": self.step + 1})
            self.step += 1
            self._step_open = True

    def end_step(self) -> None:
        """Close the open step, if any, and append what waits for that."""
        if self._step_open:
            self.finish_message()
            self.append("step/end", {"turn": self.turn, "step": self.step})
            self._step_open = False
            self.append_what_waits()

    # -- messages from outside -------------------------------------------------------------

    def queue_message(self, event: PendingEvent) -> None:
        """Append a message from outside; within a step it waits for the step's end.

        So it never parts a call from its result, which a provider would refuse.
        """
        self._pending.append(event)
        self.append_what_waits()

    def append_what_waits(self) -> None:
        """Outside of a step, tell the model of a new preset and of queued messages.

        Rule: injected-messages-part-no-call.
        """
        if self._step_open:
            return
        self._settings.append_news(self.append_pending)
        waiting, self._pending = self._pending, []
        for event in waiting:
            try:
                self.append_pending(event)
            except Exception as error:  # noqa: BLE001 - boundary: a store's validators refuse, too
                # Who sent it has gone on long since; the turn must come to its end (B86).
                _log.warning(
                    "session %s: a message to the model was refused: %s", self.session.id, error
                )

    # -- inside ----------------------------------------------------------------------------

    def _open_message(self) -> MessageWriter:
        self.require_open()
        if self._message is None:
            self.begin_step()
            self._message = MessageWriter(self.session, self.turn, self.step)
        return self._message

    def _message_data(
        self,
        content: Sequence[Mapping[str, Any]],
        provenance: Mapping[str, Any],
        usage: Mapping[str, Any] | None,
    ) -> dict[str, Any]:
        data: dict[str, Any] = {
            "turn": self.turn,
            "step": self.step,
            "content": list(content),
            "provenance": dict(provenance),
        }
        if usage is not None:
            data["usage"] = dict(usage)
        return data

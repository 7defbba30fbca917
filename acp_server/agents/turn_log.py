"""How a turn becomes events: the one way into the log for every kind of agent (Z1, Z3).

`TurnLog` keeps the bookkeeping of one turn (step, stream, open calls) and appends; it awaits
nothing, knows no client and decides no policy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from acp_server.agents.errors import TurnClosedError
from session_core import Replace, SurfaceIntent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from session_core import CallId, Event, HeaderRecorder, Session

TextKind = Literal["text-delta", "reasoning-delta"]
Block = dict[str, Any]

_BLOCK_TYPE: dict[TextKind, str] = {"text-delta": "text", "reasoning-delta": "reasoning"}

ABORTED = {"name": "AbortError", "code": "ABORTED"}
"""Error of a call whose body was running when its turn was aborted."""

ABORTED_BEFORE_DISPATCH = {"name": "AbortError", "code": "ABORTED_BEFORE_DISPATCH"}
"""Error of a call that was announced but never entered (contract 1.14)."""

_ABORT_TEXT = "The turn was cancelled before this call finished."
_NOT_RUN_TEXT = "The turn was cancelled before this call was started."


@dataclass(slots=True)
class _Stream:
    """One model message under construction: its blocks so far and the chunks behind them."""

    sources: list[int] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    open_kind: TextKind | None = None
    open_text: list[str] = field(default_factory=list)


@dataclass(slots=True)
class OpenCall:
    """A call of an `assistant/message` that has no result yet.

    Attributes:
        view: What its card shows as long as it has not been announced.
        announced: Whether its card is in the log.
        call_seq: Seq of its `tool/call`; None as long as it has not been started.
    """

    call_id: CallId
    name: str
    arguments: str
    view: Mapping[str, Any] | None = None
    announced: bool = False
    call_seq: int | None = None


class TurnLog:
    """Writes one turn's events in canonical order.

    Args:
        session: The session the turn belongs to.
        turn: Its number; `turn/start` is already in the log.
        provenance: `{"provider", "model"}` of messages that no model made.

    Attributes:
        between_steps: Called behind each `step/end`: there a message from outside parts no call
            from its result.
    """

    def __init__(self, session: Session, turn: int, provenance: Mapping[str, Any]) -> None:
        self.session = session
        self.turn = turn
        self.step = 0
        self.requests = 0
        self.open_calls: dict[CallId, OpenCall] = {}
        self.hit_max_tokens = False
        self.hit_request_limit = False
        self.refused = False
        self.between_steps: Callable[[], None] = lambda: None
        self._provenance: Mapping[str, Any] = provenance
        self._step_open = False
        self._stream: _Stream | None = None
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether the turn has ended."""
        return self._closed

    @property
    def step_open(self) -> bool:
        """Whether a step is open."""
        return self._step_open

    def require_open(self) -> None:
        """Return if the turn runs.

        Raises:
            TurnClosedError: It has ended.
        """
        if self._closed:
            raise TurnClosedError

    # -- streamed output -------------------------------------------------------------------

    def delta(self, kind: TextKind, text: str) -> None:
        """Append one piece of text or reasoning, opening step, stream and block as needed."""
        stream = self._stream
        if stream is None or stream.open_kind != kind:
            stream = self._open_block(kind)
        index = len(stream.blocks)
        event = self.session.append_delta(self.turn, self.step, kind, index, text)
        stream.sources.append(event.seq)
        stream.open_text.append(text)

    def tool_call_block(self, call_id: CallId, name: str, arguments: str) -> None:
        """Stream a whole tool-call block, as a model would."""
        stream = self._open_stream()
        self._close_block(stream)
        index = len(stream.blocks)
        self._chunk(stream, {"type": "block-start", "index": index, "blockType": "tool-call"})
        event = self.session.append_delta(
            self.turn, self.step, "tool-call-delta", index, arguments, call_id, name
        )
        stream.sources.append(event.seq)
        block = {"type": "tool-call", "id": call_id, "name": name, "arguments": arguments}
        self._end_block(stream, index, block)

    def chunk(self, chunk: Mapping[str, Any]) -> Event:
        """Append a chunk exactly as a model sent it; the caller assembles (model loop)."""
        return self._chunk(self._open_stream(), chunk)

    def finish_stream(self, kind: str = "stop") -> None:
        """End the open stream, if any, with `finish` and its `assistant/message`."""
        stream = self._stream
        if stream is None:
            return
        self._close_block(stream)
        self._chunk(stream, {"type": "finish", "reason": {"kind": kind}})
        self.assistant_message(stream.blocks, self._provenance)

    def assistant_message(
        self,
        content: Sequence[Mapping[str, Any]],
        provenance: Mapping[str, Any],
        usage: Mapping[str, Any] | None = None,
    ) -> None:
        """Append the message that the chunks since the last one add up to."""
        sources = self._stream.sources if self._stream is not None else []
        data: dict[str, Any] = {
            "turn": self.turn,
            "step": self.step,
            "content": list(content),
            "provenance": dict(provenance),
        }
        if usage is not None:
            data["usage"] = dict(usage)
        self.append("assistant/message", data, SurfaceIntent("append", sources))
        self._stream = None

    def refuse(
        self,
        prompt_seq: int,
        provenance: Mapping[str, Any] | None = None,
        usage: Mapping[str, Any] | None = None,
    ) -> None:
        """Take a refused turn out of the model's view; the client still sees it (Z12).

        Args:
            prompt_seq: Seq of the turn's `user/message`.
            provenance: The model that refused; the agent itself by default.
            usage: What the refusal has cost.
        """
        self.discard_stream()
        self.begin_step()
        nodes = list(self.session.surface.nodes)
        gone = nodes[nodes.index(prompt_seq) :]
        data: dict[str, Any] = {
            "turn": self.turn,
            "step": self.step,
            "content": [],
            "provenance": dict(provenance or self._provenance),
        }
        if usage is not None:
            data["usage"] = dict(usage)
        intent = SurfaceIntent(Replace(gone[0], gone[-1]), gone)
        self.append("assistant/message", data, intent)
        self.refused = True

    def discard_stream(self) -> None:
        """Drop a stream that failed or was aborted: its chunks stay, no message is written."""
        self._stream = None

    # -- steps -----------------------------------------------------------------------------

    def begin_step(self) -> None:
        """Open the next step unless one is open."""
        if not self._step_open:
            self.step += 1
            self.append("step/start", {"turn": self.turn, "step": self.step})
            self._step_open = True

    def begin_request(self, header: Mapping[str, Any], recorder: HeaderRecorder) -> None:
        """Open the step of a model request and record its header if that is owed (contract 3.6).

        The step before it is closed already: the request holds what that step has written (Z38).
        """
        self.begin_step()
        self.requests += 1
        reason = recorder.reason(header, self.session.request_header())
        if reason is not None:
            self.append("request/header", {"header": dict(header), "reason": reason})

    def retry(
        self, retry: int, max_retries: int, delay_ms: int, failure: Mapping[str, Any]
    ) -> None:
        """Close the step of a failed request, of which nothing counts, and say that another comes.

        Args:
            retry: Number of the coming attempt beyond the first, from 1 on.
            max_retries: How many there may be.
            delay_ms: How long until it begins.
            failure: Why the request failed, contract 1.6.
        """
        self.discard_stream()
        step = self.step
        self.end_step()
        self.append(
            "llm/retry",
            {
                "turn": self.turn,
                "step": step,
                "retry": retry,
                "maxRetries": max_retries,
                "delayMs": delay_ms,
                "failure": dict(failure),
            },
        )

    def end_step(self) -> None:
        """Close the open step, if any."""
        if self._step_open:
            self.finish_stream()
            self.append("step/end", {"turn": self.turn, "step": self.step})
            self._step_open = False
            self.between_steps()

    # -- calls -----------------------------------------------------------------------------

    def expect(self, call: OpenCall, view: Mapping[str, Any]) -> None:
        """Note a call of the last message, whose turn comes: it gets its result in any case."""
        call.view = view
        self.open_calls[call.call_id] = call

    def announce(self, call: OpenCall, view: Mapping[str, Any]) -> None:
        """Show a call that is in an `assistant/message` already, not started yet (Z3)."""
        self.open_calls[call.call_id] = call
        call.announced = True
        self.card(call.call_id, view)

    def card(self, call_id: CallId, view: Mapping[str, Any]) -> None:
        """Store what a call's card shows now (Z2)."""
        data = {"turn": self.turn, "step": self.step, "callId": call_id, "view": dict(view)}
        self.append("tool/card", data)

    def approval_asked(self, approval_id: str, call: OpenCall, reason: str | None) -> None:
        """Record that the user is asked about a call."""
        data = {"id": approval_id, "toolName": call.name, "callId": call.call_id}
        if reason is not None:
            data["reason"] = reason
        self.append("approval/asked", data)

    def approval_decided(self, approval_id: str, outcome: str) -> None:
        """Record the answer."""
        self.append("approval/decided", {"id": approval_id, "outcome": outcome})

    def grant(self, tool_name: str, key: str, effect: str) -> None:
        """Record that later calls of this sort are decided already, in this session (Z28)."""
        self.append("approval/grant", {"toolName": tool_name, "key": key, "effect": effect})

    def start_call(self, call: OpenCall) -> None:
        """Append `tool/call`: the record that the call is about to run."""
        event = self.append(
            "tool/call",
            {
                "turn": self.turn,
                "step": self.step,
                "callId": call.call_id,
                "name": call.name,
                "arguments": call.arguments,
            },
        )
        call.call_seq = event.seq

    def end_call(
        self,
        call: OpenCall,
        content: Sequence[Block],
        *,
        error: Mapping[str, str] | None = None,
        view: Mapping[str, Any] | None = None,
    ) -> None:
        """Append `tool/result`, and `step/end` if it was the step's last open call.

        Args:
            call: The call; it is announced and started first if it never was, so that the log stays
                paired.
            content: Result blocks.
            error: `{"name", "code"}` of a failed call.
            view: Result view of the card, where the content alone does not say what to show.
        """
        if self.open_calls.pop(call.call_id, None) is None:
            return
        # A message after the result would part the results of parallel calls from their calls.
        self.finish_stream()
        if not call.announced and call.view is not None:
            self.card(call.call_id, call.view)
        if call.call_seq is None:
            self.start_call(call)
        if view is not None:
            self.card(call.call_id, view)
        data: dict[str, Any] = {
            "turn": self.turn,
            "step": self.step,
            "callId": call.call_id,
            "content": list(content),
            "isError": error is not None,
        }
        if error is not None:
            data["error"] = dict(error)
        assert call.call_seq is not None  # noqa: S101 - set by start_call above
        self.append("tool/result", data, SurfaceIntent("append", [call.call_seq]))
        if not self.open_calls:
            self.end_step()

    # -- the end ---------------------------------------------------------------------------

    def close(self, reason: Mapping[str, Any], *, clean: bool) -> None:
        """End the turn: pair what is open, close the step, append `turn/end`.

        Args:
            reason: The `turn/end` reason.
            clean: Whether the agent came to its own end; else an open stream leaves no message.
        """
        if not clean:
            self.discard_stream()
        for call in list(self.open_calls.values()):
            started = call.call_seq is not None
            text = _ABORT_TEXT if started else _NOT_RUN_TEXT
            error = ABORTED if started else ABORTED_BEFORE_DISPATCH
            self.end_call(call, [{"type": "text", "text": text}], error=error)
        self.end_step()
        self.append("turn/end", {"turn": self.turn, "reason": dict(reason)})
        self._closed = True

    def append(
        self, event_type: str, data: Mapping[str, Any], intent: SurfaceIntent | None = None
    ) -> Event:
        """Append an event of this turn.

        Raises:
            TurnClosedError: The turn has ended.
        """
        if self._closed:
            raise TurnClosedError
        return self.session.append(event_type, data, intent)

    # -- inside ----------------------------------------------------------------------------

    def _open_stream(self) -> _Stream:
        if self._closed:
            raise TurnClosedError
        if self._stream is None:
            self.begin_step()
            self._stream = _Stream()
        return self._stream

    def _open_block(self, kind: TextKind) -> _Stream:
        stream = self._open_stream()
        self._close_block(stream)
        index = len(stream.blocks)
        self._chunk(stream, {"type": "block-start", "index": index, "blockType": _BLOCK_TYPE[kind]})
        stream.open_kind = kind
        return stream

    def _close_block(self, stream: _Stream) -> None:
        if stream.open_kind is None:
            return
        block = {"type": _BLOCK_TYPE[stream.open_kind], "text": "".join(stream.open_text)}
        self._end_block(stream, len(stream.blocks), block)
        stream.open_kind = None
        stream.open_text = []

    def _end_block(self, stream: _Stream, index: int, block: Block) -> None:
        self._chunk(stream, {"type": "block-end", "index": index, "block": block})
        stream.blocks.append(block)

    def _chunk(self, stream: _Stream, chunk: Mapping[str, Any]) -> Event:
        data = {"turn": self.turn, "step": self.step, "chunk": chunk}
        event = self.append("assistant/chunk", data)
        stream.sources.append(event.seq)
        return event

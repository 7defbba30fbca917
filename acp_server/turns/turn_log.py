"""How a turn becomes events: the one way into the log while a turn runs.

Rules: step-is-message-and-calls, call-is-announced-first.

`TurnLog` keeps the bookkeeping of one turn and appends; it awaits nothing, knows no client and
decides no policy. What it adds to steps and messages is requests, calls and the turn's end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from acp_server.turns.step_log import StepLog
from session_core import CallId, SurfaceIntent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from session_core import RequestHeaderRecorder

ABORTED = {"name": "AbortError", "code": "ABORTED"}
"""Error of a call whose body was running when its turn was aborted."""

ABORTED_BEFORE_DISPATCH = {"name": "AbortError", "code": "ABORTED_BEFORE_DISPATCH"}
"""Error of a call that was announced but never entered (turn-is-logged-in-order)."""

NO_RESULT = {"name": "NoResultError", "code": "TOOL_FAILED"}
"""Error of a call whose result was refused, or that was left without one."""

_ABORT_TEXT = "The turn was cancelled before this call finished."
_NOT_RUN_TEXT = "The turn was cancelled before this call was started."
_NO_RESULT_TEXT = "This call was left without a result."


@dataclass(slots=True)
class OpenCall:
    """A call of an `assistant/message` that has no result yet.

    Attributes:
        view: What its card is to show, as long as it has not been announced.
        announced: Whether its card is in the log.
        call_seq: Seq of its `tool/call`; None as long as it has not been started.
    """

    call_id: CallId
    name: str
    arguments: str
    view: Mapping[str, Any] | None = None
    announced: bool = False
    call_seq: int | None = None


@dataclass(eq=False)
class TurnLog(StepLog):
    """Writes one turn's events in canonical order.

    Attributes:
        requests: How many model requests the turn has made.
        hit_max_tokens: Whether one of them was cut by the token limit.
        hit_request_limit: Whether it may make no more.
        open_calls: The calls of its messages that have no result yet, in order.
    """

    requests: int = field(default=0, init=False)
    hit_max_tokens: bool = field(default=False, init=False)
    hit_request_limit: bool = field(default=False, init=False)
    open_calls: dict[CallId, OpenCall] = field(default_factory=dict, init=False)

    # -- model requests ----------------------------------------------------------------------

    def begin_request(self, header: Mapping[str, Any], recorder: RequestHeaderRecorder) -> None:
        """Open the step of a model request and record its header if that is due.

        Rule: request-header-is-logged-on-change.

        The step before it is closed already: the request holds what that step has written
        (requests-are-rebuilt-from-log).
        """
        self.begin_step()
        reason = recorder.reason(header, self.session.request_header())
        if reason is not None:
            self.append("request/header", {"header": dict(header), "reason": reason})
            recorder.note_recorded()
        self.requests += 1

    def retry(
        self, retry: int, max_retries: int, delay_ms: int, failure: Mapping[str, Any]
    ) -> None:
        """Close the step of a failed request, of which nothing counts, and record the next attempt.

        Rule: truncated-calls-are-dropped. The number of the attempt is 1 for the first retry.
        """
        self.discard_message()
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
        """See `StepLog`. A call that has no result yet gets one: no request is sent without it."""
        for call in list(self.open_calls.values()):
            self._fail_call(call, _NO_RESULT_TEXT, NO_RESULT)
        super().end_step()

    # -- calls -----------------------------------------------------------------------------

    def append_message(
        self, provenance: Mapping[str, Any], usage: Mapping[str, Any] | None = None
    ) -> list[Mapping[str, Any]]:
        """See `StepLog`. Its calls are open from here on: each gets a result in any case."""
        blocks = super().append_message(provenance, usage)
        for block in blocks:
            if block["type"] == "tool-call":
                call = OpenCall(CallId(block["id"]), block["name"], block["arguments"])
                self.open_calls[call.call_id] = call
        return blocks

    def call(self, call_id: CallId, name: str, arguments: str) -> OpenCall:
        """Write a call as a model would have made it, with its message; return it, open."""
        self._open_message().call_block(call_id, name, arguments)
        self.finish_message("tool-calls")
        return self.open_calls[call_id]

    def announce(self, call: OpenCall, view: Mapping[str, Any]) -> None:
        """Show a call that is in an `assistant/message` already, not started yet.

        Rule: call-is-announced-first.
        """
        self.card(call.call_id, view)
        call.announced = True

    def card(self, call_id: CallId, view: Mapping[str, Any]) -> None:
        """Store what a call's card shows now (cards-are-stored)."""
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
        """Record that later calls of this sort are decided already, in this session.

        Rule: grants-cover-their-key-only.
        """
        self.append("approval/grant", {"toolName": tool_name, "key": key, "effect": effect})

    def start_call(self, call: OpenCall) -> int:
        """Append `tool/call`, the record that the call is about to run, and return its seq."""
        data = {"turn": self.turn, "step": self.step, "callId": call.call_id}
        event = self.append("tool/call", {**data, "name": call.name, "arguments": call.arguments})
        call.call_seq = event.seq
        return event.seq

    def end_call(
        self,
        call: OpenCall,
        content: Sequence[Mapping[str, Any]],
        *,
        error: Mapping[str, str] | None = None,
        view: Mapping[str, Any] | None = None,
    ) -> None:
        """Append `tool/result`, and `step/end` if it was the step's last open call.

        Args:
            call: The call; it is announced and started first if it never was, so that the log stays
                paired. One that has ended stays as it is.
            content: Result blocks.
            error: `{"name", "code"}` of a failed call.
            view: Result view of the card, where the content alone does not say what to show.
        """
        if call.call_id not in self.open_calls:
            return
        # A message after the result would part the results of parallel calls from their calls.
        self.finish_message()
        if not call.announced and call.view is not None:
            self.announce(call, call.view)
        call_seq = self.start_call(call) if call.call_seq is None else call.call_seq
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
        self.append("tool/result", data, SurfaceIntent("append", [call_seq]))
        del self.open_calls[call.call_id]
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
            self.discard_message()
        for call in list(self.open_calls.values()):
            if call.call_seq is None:
                self._fail_call(call, _NOT_RUN_TEXT, ABORTED_BEFORE_DISPATCH)
            else:
                self._fail_call(call, _ABORT_TEXT, ABORTED)
        self.end_step()
        self.append("turn/end", {"turn": self.turn, "reason": dict(reason)})
        self._open = False

    def _fail_call(self, call: OpenCall, text: str, error: Mapping[str, str]) -> None:
        self.end_call(call, [{"type": "text", "text": text}], error=error)

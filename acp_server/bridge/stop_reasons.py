"""How a turn's end becomes a stop reason (stop-reason-follows-turn-end)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from acp_server.wire.shapes import StopReason

_STOP_REASONS: dict[str, StopReason] = {
    "completed": "end_turn",
    "max-tokens": "max_tokens",
    "max_turn_requests": "max_turn_requests",
    "refusal": "refusal",
    "aborted": "cancelled",
    "disposed": "cancelled",
    "rejected": "cancelled",
}


def stop_reason_from_end(kind: str) -> StopReason:
    """Return the stop reason of a turn end; an unknown kind is `end_turn`, a legal wire value.

    `error` has none: the prompt is answered with an error.
    """
    return _STOP_REASONS.get(kind, "end_turn")

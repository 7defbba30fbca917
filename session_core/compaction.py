"""Making the model's view shorter without touching the log (compaction-is-bracketed, B47).

A producer on the session's public API: it replaces a range of the surface by a summary, or the
content of one tool result. The originals stay in the log, and clients go on seeing them.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from session_core.errors import CompactionError, PartedCallError, SurfaceError
from session_core.events import Event, Message, Replace, SurfaceIntent
from session_core.own_turn import own_turn
from session_core.projection import derive_event_message
from session_core.session import Session

TRIGGER: Final = {"kind": "compaction"}
SOURCE: Final = {"kind": "plugin", "plugin": "compaction"}


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary of a range of history, and which model made it."""

    text: str
    provider: str
    model: str
    shadowed_token_count: int
    max_tokens: int | None = None


Summarize = Callable[[Sequence[Message]], Awaitable[Summary]]
"""Makes the summary of the messages that it will stand for."""


async def compact_range(session: Session, start: int, end: int, summarize: Summarize) -> Event:
    """Replace the surface nodes from `start` to `end` by one summary message.

    It takes a turn of its own: `compact/start`, `compact/summary`, the replacing `user/message`,
    `compact/end`. If `summarize` fails or is cancelled, the turn is closed all the same and the
    surface stays as it was.

    Args:
        session: A session without an open turn.
        start: Seq of the first surface node to go.
        end: Seq of the last one.
        summarize: Called with the messages of the range; may take its time.

    Returns:
        The replacing `user/message`.

    Raises:
        TurnRunningError: A turn is open.
        SurfaceError: `start` or `end` is not on the surface, or they stand the wrong way round.
        PartedCallError: The range has a call without its result, or a result without its call.
        Exception: Whatever `summarize` raised.
    """
    shadowed = _range(session, start, end)
    _check_pairs(session, shadowed)
    messages = [
        message for seq in shadowed if (message := derive_event_message(session.events[seq]))
    ]
    with own_turn(session, TRIGGER, _failure) as turn:
        session.append("compact/start", {"turn": turn})
        try:
            summary = await summarize(messages)
            event = _replace(session, start, end, shadowed, summary)
        except BaseException as error:
            session.append("compact/end", {"turn": turn, "error": type(error).__name__})
            raise
        session.append("compact/end", {"turn": turn})
    return event


def _replace(
    session: Session, start: int, end: int, shadowed: tuple[int, ...], summary: Summary
) -> Event:
    data: dict[str, Any] = {
        "summary": summary.text,
        "shadowedRange": {"start": start, "end": end},
        "shadowedSeqs": list(shadowed),
        "shadowedTokenCount": summary.shadowed_token_count,
        "provider": summary.provider,
        "model": summary.model,
    }
    if summary.max_tokens is not None:
        data["maxTokens"] = summary.max_tokens
    session.append("compact/summary", data)
    return session.append(
        "user/message",
        {"content": [{"type": "text", "text": summary.text}], "source": SOURCE},
        SurfaceIntent(Replace(start, end), shadowed),
    )


def _failure(error: BaseException) -> Mapping[str, Any]:
    if not isinstance(error, Exception):
        return {"kind": "aborted"}
    # The text of an unknown exception may hold anything; the log gets its kind only.
    return {"kind": "error", "step": 0, "message": f"compaction failed: {type(error).__name__}"}


def prune_tool_result(session: Session, seq: int, content: Sequence[Mapping[str, Any]]) -> Event:
    """Replace the content of the tool result at `seq`, in a turn of its own.

    Args:
        session: A session without an open turn.
        seq: Seq of a `tool/result` that is on the surface.
        content: The blocks that the model sees from now on.

    Returns:
        The replacing `tool/result`.

    Raises:
        TurnRunningError: A turn is open.
        SurfaceError: There is no such node on the surface.
        CompactionError: The node is not a tool result.
    """
    _range(session, seq, seq)
    original = session.events[seq]
    if original.type != "tool/result":
        raise CompactionError(session.id, f"event {seq} is a {original.type}, not a tool/result")
    with own_turn(session, TRIGGER, _failure):
        return session.append(
            "tool/result",
            {**original.data, "content": list(content)},
            SurfaceIntent(Replace(seq, seq), (seq,)),
        )


def _range(session: Session, start: int, end: int) -> tuple[int, ...]:
    nodes = session.surface.nodes
    for seq in (start, end):
        if seq not in nodes:
            raise SurfaceError("compaction", f"seq {seq} is not on the surface")
    first, last = nodes.index(start), nodes.index(end)
    if first > last:
        raise SurfaceError("compaction", f"node {start} stands behind node {end} on the surface")
    return nodes[first : last + 1]


def _check_pairs(session: Session, shadowed: Sequence[int]) -> None:
    """Check that every call on the surface is on the same side of the range as its result."""
    inside = frozenset(shadowed)
    asked_at: dict[str, int] = {}
    for seq in session.surface.nodes:
        event = session.events[seq]
        if event.type == "assistant/message":
            for block in event.data["content"]:
                if block["type"] == "tool-call":
                    asked_at[block["id"]] = seq
        elif event.type == "tool/result":
            call_id = event.data["callId"]
            if call_id in asked_at and (asked_at[call_id] in inside) != (seq in inside):
                raise PartedCallError(session.id, call_id)

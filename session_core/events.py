"""The event: the one thing a session log is made of, and the words for how it joins the surface.

Owns the envelope (event-has-fixed-envelope) and nothing of the payloads.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, NewType

from session_core.errors import EnvelopeError, NotJsonError
from session_core.json_value import FrozenDict, freeze_json, is_seq_int
from session_core.seqs import compact_seqs

SessionId = NewType("SessionId", str)
CallId = NewType("CallId", str)

Message = FrozenDict
"""A derived message, as the model sees it: {"role", "content", ("provenance")}."""

MAX_DATA_DEPTH: Final = 200
"""How deep a payload may be nested: orjson writes 254 levels, and a record or a frame adds some."""

SURFACE_TYPES: Final = frozenset(
    {
        "user/message",
        "assistant/message",
        "tool/result",
        "context/message",
        "steering/message",
    }
)
"""The event types that put a message on the surface; all others are log-only."""


class Replace(NamedTuple):
    """Put the event in the place of the surface nodes from `start` to `end`, both included."""

    start: int
    end: int


SurfaceOp = Literal["append"] | Replace


class SurfaceIntent(NamedTuple):
    """How an event is meant to join the surface, and what it was made from.

    `surface_op` also takes the stored form `{"op": "replace", "start": int, "end": int}`.
    """

    surface_op: SurfaceOp | Mapping[str, Any]
    source_event_seqs: Sequence[int] | None = None


APPEND: Final = SurfaceIntent("append")


class Event(NamedTuple):
    """One immutable entry of a session log.

    `seq` is its place in the log, `time` epoch milliseconds. `source_event_seqs` and `surface_op`
    are set on surface types only; the sources are equal to the tuple or list of them.
    """

    type: str
    seq: int
    time: int
    data: FrozenDict
    source_event_seqs: Sequence[int] | None = None
    surface_op: SurfaceOp | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the stored form, keys in one order (event-keys-have-one-order)."""
        stored: dict[str, Any] = {
            "type": self.type,
            "seq": self.seq,
            "time": self.time,
            "data": self.data,
        }
        if self.source_event_seqs is not None:
            stored["sourceEventSeqs"] = list(self.source_event_seqs)
        if self.surface_op is not None:
            op = self.surface_op
            stored["surfaceOp"] = (
                {"op": "replace", "start": op.start, "end": op.end}
                if isinstance(op, Replace)
                else op
            )
        return stored


ENVELOPE_KEYS: Final = frozenset(
    # `ignorable` is a later upstream mark; it is tolerated and means nothing here
    # (event-has-fixed-envelope).
    {"type", "seq", "time", "data", "sourceEventSeqs", "surfaceOp", "ignorable"}
)


def event_from_json(value: object) -> Event:
    """Return the event that the stored object `value` is, frozen and detached.

    Checks the envelope only. A malformed surface marker is carried along as it is: the surface
    refuses it, with its own error.

    Raises:
        EnvelopeError: `value` is not JSON, or not shaped like an event.
    """
    try:
        # One level more than a payload has: the envelope itself.
        frozen = freeze_json(value, what="event", max_depth=MAX_DATA_DEPTH + 1)
    except NotJsonError as error:
        raise EnvelopeError(error.reason) from error
    if type(frozen) is not FrozenDict:
        raise EnvelopeError("not an object")
    _check_envelope(frozen)
    sources = frozen.get("sourceEventSeqs")
    return Event(
        frozen["type"],
        frozen["seq"],
        frozen["time"],
        frozen["data"],
        compact_seqs(tuple(sources)) if isinstance(sources, list) else sources,
        surface_op_from_json(frozen.get("surfaceOp")),
    )


def surface_op_from_json(value: Any) -> Any:
    """Return the `SurfaceOp` that `value` stands for, or `value` itself if it stands for none."""
    if (
        isinstance(value, Mapping)
        and value.keys() == {"op", "start", "end"}
        and value["op"] == "replace"
    ):
        return Replace(value["start"], value["end"])
    return value


def _check_envelope(event: FrozenDict) -> None:
    if extra := event.keys() - ENVELOPE_KEYS:
        raise EnvelopeError(f"unknown key {min(extra)!r}")
    if type(event.get("type")) is not str:
        raise EnvelopeError("'type' must be a string")
    for key in ("seq", "time"):
        if not is_seq_int(event.get(key)):
            raise EnvelopeError(f"{key!r} must be an integer that is not negative")
    if "data" not in event:
        raise EnvelopeError("'data' is missing")
    for key in ("sourceEventSeqs", "surfaceOp"):
        if key in event and event[key] is None:
            raise EnvelopeError(f"{key!r} must be absent rather than null")
    if type(event.get("ignorable", False)) is not bool:
        raise EnvelopeError("'ignorable' must be a boolean")

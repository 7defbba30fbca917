"""The surface: which events the model sees, in which order, and how an event may join them.

Owns the rules (placement-follows-event-type), the live projection of them, and the fold over a
whole log. Both use the same transition, so they cannot disagree.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from session_core.errors import SurfaceError
from session_core.events import (
    SURFACE_TYPES,
    Event,
    Replace,
    SurfaceIntent,
    SurfaceOp,
    surface_op_from_json,
)
from session_core.json_value import freeze_json, is_same_json, is_seq_int
from session_core.log import EventLog, Events, EventView, GrowingLog, records_of
from session_core.seqs import SeqSpan, compact_seqs


class Replacement(NamedTuple):
    """One replacement of a surface range: what was declared, and what it took away."""

    seq: int
    start: int
    end: int
    shadowed_seqs: tuple[int, ...]


class SurfaceFold(NamedTuple):
    """The surface of a whole log: its nodes in the model's order, and how it was rewritten."""

    nodes: tuple[int, ...]
    replacements: tuple[Replacement, ...]


class Placement(NamedTuple):
    """A checked candidate's place: the node positions it shadows, none if it goes to the tail."""

    first: int
    last: int


def is_surface_eligible_type(event_type: str) -> bool:
    """Return whether events of this type put a message on the surface."""
    return event_type in SURFACE_TYPES


def is_surface_event(event: Event) -> bool:
    """Return whether `event` is of a surface type and says how it joins the surface."""
    return event.type in SURFACE_TYPES and event.surface_op is not None


class SurfaceTracker:
    """The current surface of a growing log: the seqs of the events that the model sees, in order.

    For the owner of the log: `check` a candidate, then `commit` it along with the log.
    """

    __slots__ = ("_generation", "_nodes", "_snapshot")

    def __init__(self) -> None:
        self._nodes: list[int] = []
        self._snapshot: tuple[int, ...] | None = ()
        self._generation = 0

    def restore(self, other: "SurfaceTracker") -> None:
        """Become what `other` is now; who looks at this one goes on with it."""
        self._nodes = list(other._nodes)  # noqa: SLF001 - of this very class
        self._snapshot = None
        self._generation = other._generation  # noqa: SLF001 - as above

    @property
    def nodes(self) -> tuple[int, ...]:
        """The seqs on the surface, in the order in which the model sees them."""
        if self._snapshot is None:
            self._snapshot = tuple(self._nodes)
        return self._snapshot

    @property
    def replace_generation(self) -> int:
        """How many replacements were committed: unchanged means that the surface only grew."""
        return self._generation

    def nodes_from(self, position: int, limit: int | None = None) -> list[int]:
        """Return the nodes from `position` to the tail, at most `limit` of them."""
        return self._nodes[position : None if limit is None else position + limit]

    def check(self, event: Event, log: EventLog | EventView) -> Placement | None:
        """Check that `event` may follow the events of `log`; return what `commit` needs.

        Raises:
            SurfaceError: It may not. Nothing has changed, in either case.
        """
        op, sources = event.surface_op, event.source_event_seqs
        if event.type not in SURFACE_TYPES:
            if op is not None:
                raise SurfaceError(event.type, "a log-only type takes no surfaceOp")
            if sources is not None:
                raise SurfaceError(event.type, "a log-only type takes no sourceEventSeqs")
            return None
        _check_op(event.type, op)
        if sources is not None:
            _check_sources(event.type, event.seq, sources)
        if not isinstance(op, Replace):
            return None
        return self._replaced_range(event, op, log)

    def commit(self, event: Event, placement: Placement | None) -> Replacement | None:
        """Let the checked `event` take its place; return what it replaced."""
        if event.type not in SURFACE_TYPES:
            return None
        self._snapshot = None
        if placement is None:
            self._nodes.append(event.seq)
            return None
        shadowed = tuple(self._nodes[placement.first : placement.last + 1])
        self._nodes[placement.first : placement.last + 1] = [event.seq]
        self._generation += 1
        return Replacement(event.seq, shadowed[0], shadowed[-1], shadowed)

    def _replaced_range(self, event: Event, op: Replace, log: EventLog | EventView) -> Placement:
        first, last = self._position(event.type, op.start), self._position(event.type, op.end)
        if first > last:
            raise SurfaceError(
                event.type, f"node {op.start} stands behind node {op.end} on the surface"
            )
        shadowed = self._nodes[first : last + 1]
        missing = sorted(set(shadowed).difference(event.source_event_seqs or ()))
        if missing:
            raise SurfaceError(
                event.type, f"sourceEventSeqs leaves out the shadowed nodes {missing}"
            )
        if event.type == "tool/result":
            _check_result_rewrite(event, shadowed, log)
        return Placement(first, last)

    def _position(self, event_type: str, seq: int) -> int:
        try:
            return self._nodes.index(seq)
        except ValueError:
            raise SurfaceError(event_type, f"seq {seq} is not on the surface") from None


class Surface:
    """A live, read-only look at a session's surface."""

    __slots__ = ("_tracker",)

    def __init__(self, tracker: SurfaceTracker) -> None:
        self._tracker = tracker

    @property
    def nodes(self) -> tuple[int, ...]:
        """The seqs on the surface, in the order in which the model sees them."""
        return self._tracker.nodes

    @property
    def replace_generation(self) -> int:
        """How many replacements were committed: unchanged means that the surface only grew."""
        return self._tracker.replace_generation


def _check_op(event_type: str, op: Any) -> None:
    if op is None:
        raise SurfaceError(event_type, "a surface type needs a surfaceOp")
    if isinstance(op, Replace):
        if not (is_seq_int(op.start) and is_seq_int(op.end)):
            raise SurfaceError(event_type, "start and end must be integers that are not negative")
    elif op != "append":
        raise SurfaceError(
            event_type,
            "surfaceOp must be 'append' or exactly {op: 'replace', start, end}",
        )


def _check_sources(event_type: str, seq: int, sources: Sequence[int]) -> None:
    if isinstance(sources, SeqSpan):
        # Consecutive by construction, so only the last one can be wrong.
        if sources[-1] >= seq:
            raise SurfaceError(event_type, f"source {sources[-1]} is not before seq {seq}")
        return
    if not isinstance(sources, tuple):  # a stored event brings along what it has
        raise SurfaceError(event_type, "sourceEventSeqs must be an array")
    if not sources:
        if event_type != "assistant/message":
            raise SurfaceError(event_type, "only an assistant/message may have empty sources")
        return
    if set(map(type, sources)) != {int} or min(sources) < 0:
        raise SurfaceError(event_type, "a source must be an integer that is not negative")
    if len(set(sources)) != len(sources):
        raise SurfaceError(event_type, "sourceEventSeqs names an event twice")
    if max(sources) >= seq:
        raise SurfaceError(event_type, f"source {max(sources)} is not before seq {seq}")


def _check_result_rewrite(event: Event, shadowed: list[int], log: EventLog | EventView) -> None:
    """A rewritten tool result replaces one result, and nothing but its content.

    Rule: placement-follows-event-type.
    """
    original = log.event_at(shadowed[0]) if len(shadowed) == 1 else None
    if original is None or original.type != "tool/result":
        raise SurfaceError(event.type, "a tool/result may replace exactly one tool/result")
    if not is_same_json(_without_content(event.data), _without_content(original.data)):
        raise SurfaceError(event.type, "a rewritten tool/result may change only its content")


def _without_content(data: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key != "content"}


def snapshot_intent(
    event_type: str, intent: SurfaceIntent | None
) -> tuple[SurfaceOp | None, Sequence[int] | None]:
    """Return what the caller wants as the event's own, detached marker and sources.

    What is there but malformed is left for `Surface.check` to refuse.

    Raises:
        SurfaceError: The sources are no sequence.
        NotJsonError: The marker is not JSON.
    """
    if intent is None:
        return None, None
    op: Any = intent.surface_op
    if op is not None and op != "append" and not isinstance(op, Replace):
        op = surface_op_from_json(freeze_json(op, what=f"surfaceOp of {event_type}"))
    sources: object = intent.source_event_seqs
    if sources is not None:
        if not isinstance(sources, Sequence) or isinstance(sources, str | bytes):
            raise SurfaceError(event_type, "sourceEventSeqs must be an array")
        return op, compact_seqs(tuple(sources))
    return op, None


def fold_surface(events: Events) -> SurfaceFold:
    """Replay the surface rules over a whole log.

    Raises:
        SurfaceError: An event breaks a rule, or its seq is not its place in the log.
    """
    log = GrowingLog()
    surface = SurfaceTracker()
    replacements: list[Replacement] = []
    for record in records_of(events):
        if isinstance(record, Event):
            if record.seq != len(log):
                raise SurfaceError(record.type, f"seq {record.seq} stands at index {len(log)}")
            if replacement := surface.commit(record, surface.check(record, log)):
                replacements.append(replacement)
        log.add(record)
    return SurfaceFold(surface.nodes, tuple(replacements))

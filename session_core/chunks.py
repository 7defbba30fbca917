"""Runs of delta chunks: the compact form that most of a session log has.

A provider streams token-sized deltas. Each is an event, but only its text and its time are new; the
rest repeats. A `ChunkRun` holds the repeated part once and makes an `Event` of a member only when
one is asked for. Owns that form and the question which chunks have it; knows nothing of logs or
storage.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Any, Final, Literal, NamedTuple, cast

from session_core.events import Event
from session_core.json_value import (
    MAX_SAFE_INT,
    FrozenDict,
    frozen_dict_of,
    is_safe_int,
    is_seq_int,
    is_well_formed_text,
)

DeltaKind = Literal["text-delta", "reasoning-delta", "tool-call-delta"]

DELTA_KINDS: Final[tuple[DeltaKind, ...]] = ("text-delta", "reasoning-delta", "tool-call-delta")

CHUNK_EVENT: Final = "assistant/chunk"

_make_event: Final = cast("Callable[[type[Event], tuple[Any, ...]], Event]", tuple.__new__)


class DeltaKey(NamedTuple):
    """What the members of a run have in common."""

    kind: DeltaKind
    turn: int
    step: int
    block_index: int
    call_id: str | None = None
    name: str | None = None


def delta_data(key: DeltaKey, text: str) -> FrozenDict:
    """Return the payload of the `assistant/chunk` event that carries `text`."""
    kind, turn, step, index, call_id, name = key
    if kind != "tool-call-delta":
        chunk: dict[str, Any] = {"type": kind, "index": index, "text": text}
    elif name is None:
        chunk = {"type": kind, "index": index, "id": call_id, "argumentsDelta": text}
    else:
        chunk = {"type": kind, "index": index, "id": call_id, "name": name, "argumentsDelta": text}
    return frozen_dict_of({"turn": turn, "step": step, "chunk": frozen_dict_of(chunk)})


def delta_event(key: DeltaKey, text: str, seq: int, time: int) -> Event:
    """Return the `assistant/chunk` event that carries `text`."""
    return _make_event(Event, (CHUNK_EVENT, seq, time, delta_data(key, text), None, None))


_SHAPES: Final[dict[frozenset[str], tuple[DeltaKind, ...]]] = {
    frozenset({"type", "index", "text"}): ("text-delta", "reasoning-delta"),
    frozenset({"type", "index", "id", "argumentsDelta"}): ("tool-call-delta",),
    frozenset({"type", "index", "id", "name", "argumentsDelta"}): ("tool-call-delta",),
}


def split_delta(data: Any) -> tuple[DeltaKey, str] | None:
    """Return key and text of an `assistant/chunk` payload that has exactly the shape of a delta.

    `None` for all other payloads; the numbers may be of any JSON number type.
    """
    if not _is_plain_object(data) or len(data) != 3:
        return None
    chunk = data.get("chunk")
    if not _is_plain_object(chunk):
        return None
    kind = chunk.get("type")
    if type(kind) is not str or kind not in _SHAPES.get(frozenset(chunk), ()):
        return None
    text = chunk["argumentsDelta"] if kind == "tool-call-delta" else chunk["text"]
    key = DeltaKey(
        kind, data.get("turn"), data.get("step"), chunk["index"], chunk.get("id"), chunk.get("name")
    )
    if not _is_text(text) or not _is_sound_key(key):
        return None
    # A name that is present and null is no name at all; the shape has it only as a string.
    if "name" in chunk and key.name is None:
        return None
    return key, text


def is_same_run(one: DeltaKey, other: DeltaKey) -> bool:
    """Return whether the keys are the same in value and in type: 1, 1.0 and True differ."""
    return one is other or (
        one == other
        and type(one.turn) is type(other.turn)
        and type(one.step) is type(other.step)
        and type(one.index) is type(other.index)
    )


@dataclass(frozen=True, slots=True)
class ChunkRun:
    """Consecutive delta events of one stream block, packed. Immutable.

    Member `k` has seq `seq0 + k`, and the time `time0 + gaps[1] + … + gaps[k]`; `gaps[0]` is 0.
    `call_id` and `name` are set on runs of tool-call deltas only.

    Raises:
        ValueError: At construction, if a member would not be a legal event.
    """

    key: DeltaKey
    seq0: int
    time0: int
    texts: tuple[str, ...]
    gaps: tuple[int, ...]

    def __post_init__(self) -> None:
        if problem := _run_problem(self):
            raise ValueError(problem)

    @property
    def kind(self) -> DeltaKind:
        """The type of chunk that the members are."""
        return self.key.kind

    @property
    def turn(self) -> int:
        """The turn that the members name."""
        return self.key.turn

    @property
    def step(self) -> int:
        """The step that the members name."""
        return self.key.step

    @property
    def index(self) -> int:
        """The index of the stream block."""
        return self.key.block_index

    @property
    def call_id(self) -> str | None:
        """The id of the tool call, on tool-call deltas."""
        return self.key.call_id

    @property
    def name(self) -> str | None:
        """The tool's name, if every member carries it."""
        return self.key.name

    @property
    def times(self) -> tuple[int, ...]:
        """The members' times, in epoch milliseconds."""
        return tuple(accumulate(self.gaps, initial=self.time0))[1:]

    @property
    def last_time(self) -> int:
        """The time of the last member."""
        return self.time0 + sum(self.gaps)

    @property
    def stop(self) -> int:
        """The seq after the last member's."""
        return self.seq0 + len(self.texts)

    def __len__(self) -> int:
        return len(self.texts)

    def __iter__(self) -> Iterator[Event]:
        times = accumulate(self.gaps, initial=self.time0)
        for seq, time, text in zip(
            range(self.seq0, self.stop), islice(times, 1, None), self.texts, strict=True
        ):
            yield delta_event(self.key, text, seq, time)

    def event(self, k: int) -> Event:
        """Return member `k` as an event, 0 <= k < len(self)."""
        time = self.time0 + sum(self.gaps[: k + 1])
        return delta_event(self.key, self.texts[k], self.seq0 + k, time)

    def slice(self, start_seq: int, stop_seq: int) -> "ChunkRun":
        """Return the run of the members with start_seq <= seq < stop_seq; at least one is."""
        first, end = max(start_seq - self.seq0, 0), min(stop_seq - self.seq0, len(self.texts))
        if first == 0 and end == len(self.texts):
            return self
        return trusted_run(
            self.key,
            self.seq0 + first,
            self.time0 + sum(self.gaps[: first + 1]),
            self.texts[first:end],
            (0, *self.gaps[first + 1 : end]),
        )


def trusted_run(
    key: DeltaKey, seq0: int, time0: int, texts: tuple[str, ...], gaps: tuple[int, ...]
) -> ChunkRun:
    """Return a run without checking it, for members that were checked one by one before."""
    run = object.__new__(ChunkRun)
    assign = object.__setattr__
    assign(run, "key", key)
    assign(run, "seq0", seq0)
    assign(run, "time0", time0)
    assign(run, "texts", texts)
    assign(run, "gaps", gaps)
    return run


def _run_problem(run: ChunkRun) -> str | None:
    """Return what keeps a run's members from being legal events."""
    members = len(run.texts)
    if members == 0 or len(run.gaps) != members or run.gaps[0] != 0:
        return "there must be one gap for each member, the first of them 0"
    if not _is_sound_key(run.key):
        return "its block is not named by numbers and strings"
    if set(map(type, run.texts)) != {str} or not is_well_formed_text("".join(run.texts)):
        return "its members must be strings without lone surrogates"
    if not is_seq_int(run.seq0) or run.seq0 + members - 1 > MAX_SAFE_INT:
        return "its seqs must be integers from 0 to the largest safe one"
    return _time_problem(run.time0, run.gaps)


def _time_problem(time0: int, gaps: tuple[int, ...]) -> str | None:
    if not is_safe_int(time0) or set(map(type, gaps)) != {int}:
        return "its times must be safe integers"
    if min(gaps) >= 0:
        # The usual case, a clock that did not step back: the last time bounds them all.
        lowest, highest = time0, time0 + sum(gaps)
    else:
        times = list(accumulate(gaps, initial=time0))
        lowest, highest = min(times), max(times)
        if min(gaps) < -MAX_SAFE_INT:
            return "its time gaps must be safe integers"
    if max(gaps) > MAX_SAFE_INT or lowest < -MAX_SAFE_INT or highest > MAX_SAFE_INT:
        return "its times must be safe integers"
    return None


def _is_sound_key(key: DeltaKey) -> bool:
    if not (_is_number(key.turn) and _is_number(key.step) and _is_number(key.block_index)):
        return False
    if key.kind != "tool-call-delta":
        return key.call_id is None and key.name is None
    return _is_text(key.call_id) and (key.name is None or _is_text(key.name))


def _is_number(value: object) -> bool:
    if type(value) is int:
        return -MAX_SAFE_INT <= value <= MAX_SAFE_INT
    return (
        type(value) is float
        and math.isfinite(value)
        and not (value == 0 and math.copysign(1, value) < 0)
    )


def _is_plain_object(value: object) -> bool:
    return type(value) is dict or type(value) is FrozenDict


def _is_text(value: object) -> bool:
    return type(value) is str and is_well_formed_text(value)

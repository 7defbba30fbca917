"""Runs of delta chunks: the compact form that most of a session log has.

A provider streams token-sized deltas. Each is an event, but only its text and its time are new; the
rest repeats. A `ChunkRun` holds the repeated part once and makes an `Event` of a member only when
one is asked for. Owns that form and the question which chunks have it; knows nothing of logs or
storage.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Any, Final, Literal, NamedTuple, cast

from session_core.events import Event
from session_core.json_value import (
    MAX_SAFE_INT,
    FrozenDict,
    is_kept_float,
    is_safe_int,
    is_seq_int,
    is_well_formed_text,
)

DeltaKind = Literal["text-delta", "reasoning-delta", "tool-call-delta"]

DELTA_KINDS: Final[tuple[DeltaKind, ...]] = ("text-delta", "reasoning-delta", "tool-call-delta")

CHUNK_EVENT: Final = "assistant/chunk"

# Members are made by the million: straight from the base types, past constructors in Python.
_make_event: Final = cast("Callable[[type[Event], tuple[Any, ...]], Event]", tuple.__new__)
_blank: Final = cast("Callable[[type[FrozenDict]], FrozenDict]", dict.__new__)
_fill: Final = cast("Callable[[FrozenDict, dict[str, Any]], None]", dict.update)
_put: Final = cast("Callable[[FrozenDict, str, Any], None]", dict.__setitem__)


class DeltaKey(NamedTuple):
    """What the members of a run have in common.

    `call_id` and `name` are set for tool-call deltas only, `name` if every member carries it.
    """

    kind: DeltaKind
    turn: int
    step: int
    block_index: int
    call_id: str | None = None
    name: str | None = None


class DeltaShape:
    """The repeated part of a run's members, from which each is made quickly."""

    __slots__ = ("_chunk", "_data", "_text_field", "key")

    def __init__(self, key: DeltaKey) -> None:
        self.key = key
        self._text_field = "argumentsDelta" if key.kind == "tool-call-delta" else "text"
        chunk: dict[str, Any] = {"type": key.kind, "index": key.block_index}
        if key.call_id is not None:
            chunk["id"] = key.call_id
        if key.name is not None:
            chunk["name"] = key.name
        # The text takes its place in the order of the keys; each member overwrites it.
        self._chunk = chunk | {self._text_field: ""}
        self._data: dict[str, Any] = {"turn": key.turn, "step": key.step, "chunk": None}

    def event(self, text: str, seq: int, time: int) -> Event:
        """Return the `assistant/chunk` event that carries `text`."""
        chunk = _blank(FrozenDict)
        _fill(chunk, self._chunk)
        _put(chunk, self._text_field, text)
        data = _blank(FrozenDict)
        _fill(data, self._data)
        _put(data, "chunk", chunk)
        return _make_event(Event, (CHUNK_EVENT, seq, time, data, None, None))


def delta_parts(data: Any) -> tuple[DeltaKey, Any] | None:
    """Return key and text of an `assistant/chunk` payload that has exactly the fields of a delta.

    Only which fields there are is looked at: what stands in them may still be wrong.
    """
    if not _is_plain_object(data) or len(data) != 3:
        return None
    chunk = data.get("chunk")
    if not _is_plain_object(chunk) or "turn" not in data or "step" not in data:
        return None
    kind = chunk.get("type")
    if kind == "text-delta" or kind == "reasoning-delta":
        if len(chunk) == 3 and "index" in chunk and "text" in chunk:
            return DeltaKey(kind, data["turn"], data["step"], chunk["index"]), chunk["text"]
        return None
    if kind != "tool-call-delta":
        return None
    return _call_delta_parts(data["turn"], data["step"], chunk)


def _call_delta_parts(turn: Any, step: Any, chunk: dict[str, Any]) -> tuple[DeltaKey, Any] | None:
    # A name that is null would be lost in the key, where None says that there is none.
    name = chunk.get("name")
    if len(chunk) != (4 if name is None else 5) or not chunk.keys() >= _CALL_FIELDS:
        return None
    key = DeltaKey("tool-call-delta", turn, step, chunk["index"], chunk["id"], name)
    return key, chunk["argumentsDelta"]


_CALL_FIELDS: Final = frozenset({"type", "index", "id", "argumentsDelta"})


def split_delta(data: Any) -> tuple[DeltaKey, str] | None:
    """Return key and text of an `assistant/chunk` payload that has exactly the shape of a delta.

    The numbers in it may be of any JSON number type.
    """
    parts = delta_parts(data)
    return parts if parts and _is_text(parts[1]) and _is_sound_key(parts[0]) else None


def is_same_run(one: DeltaKey, other: DeltaKey) -> bool:
    """Return whether the keys are the same in value and in type: 1, 1.0 and True differ."""
    return one is other or (
        one == other
        and type(one.turn) is type(other.turn)
        and type(one.step) is type(other.step)
        and type(one.block_index) is type(other.block_index)
    )


@dataclass(frozen=True, slots=True)
class ChunkRun:
    """Consecutive delta events of one stream block, packed. Immutable.

    Member `k` has seq `seq0 + k`, and the time `time0 + gaps[1] + … + gaps[k]`; `gaps[0]` is 0.

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
    def index(self) -> int:
        """The index of the stream block."""
        return self.key.block_index

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
        shape = DeltaShape(self.key)
        times = accumulate(self.gaps, initial=self.time0)
        for seq, time, text in zip(
            range(self.seq0, self.stop), islice(times, 1, None), self.texts, strict=True
        ):
            yield shape.event(text, seq, time)

    def event(self, k: int) -> Event:
        """Return member `k` as an event, 0 <= k < len(self)."""
        time = self.time0 + sum(self.gaps[: k + 1])
        return DeltaShape(self.key).event(self.texts[k], self.seq0 + k, time)

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
    if is_safe_int(time0) and set(map(type, gaps)) == {int}:
        total = sum(gaps)
        # The usual case, a clock that never stepped back: then the last time bounds all others.
        if min(gaps) >= 0 and total <= MAX_SAFE_INT and time0 + total <= MAX_SAFE_INT:
            return None
        if all(map(is_safe_int, gaps)) and all(map(is_safe_int, accumulate(gaps, initial=time0))):
            return None
    return "its times and the gaps between them must be safe integers"


def _is_sound_key(key: DeltaKey) -> bool:
    if not (_is_number(key.turn) and _is_number(key.step) and _is_number(key.block_index)):
        return False
    if key.kind != "tool-call-delta":
        return key.call_id is None and key.name is None
    return _is_text(key.call_id) and (key.name is None or _is_text(key.name))


def _is_number(value: object) -> bool:
    return is_safe_int(value) or (type(value) is float and is_kept_float(value))


def _is_plain_object(value: object) -> bool:
    return type(value) is dict or type(value) is FrozenDict


def _is_text(value: object) -> bool:
    return type(value) is str and is_well_formed_text(value)

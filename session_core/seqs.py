"""Lists of seqs, kept small: a message usually names the unbroken run of its chunks as sources."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, overload

_MIN_SPAN: Final = 16
"""Below this a tuple is as small."""


class SeqSpan(Sequence[int]):
    """The seqs from `start` up to, not including, `stop`. Equal to the tuple or list of them."""

    __slots__ = ("_seqs",)

    def __init__(self, start: int, stop: int) -> None:
        self._seqs = range(start, stop)

    def __len__(self) -> int:
        return len(self._seqs)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[int, ...]: ...
    def __getitem__(self, index: int | slice) -> int | tuple[int, ...]:
        return tuple(self._seqs[index]) if isinstance(index, slice) else self._seqs[index]

    def __iter__(self) -> Iterator[int]:
        return iter(self._seqs)

    def __contains__(self, seq: object) -> bool:
        return seq in self._seqs

    def __eq__(self, other: object) -> bool:
        if isinstance(other, SeqSpan):
            return self._seqs == other._seqs
        if isinstance(other, tuple | list):
            return len(other) == len(self) and all(
                mine == theirs for mine, theirs in zip(self._seqs, other, strict=True)
            )
        return NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self._seqs))

    def __repr__(self) -> str:
        return repr(tuple(self._seqs))


def compact_seqs(seqs: tuple[Any, ...]) -> Sequence[Any]:
    """Return `seqs` as a span if they are one, else as they are; they may be no integers."""
    if len(seqs) < _MIN_SPAN or set(map(type, seqs)) != {int}:
        return seqs
    first = seqs[0]
    stop: int = first + len(seqs)
    is_span = first >= 0 and seqs[-1] == stop - 1 and seqs == tuple(range(first, stop))
    return SeqSpan(first, stop) if is_span else seqs

"""The one place that decides what of a stored log is kept, torn, refused or damaged.

A backend or an import hands over its physical records in order; what they lie in is its own affair.
The first one that does not continue the log decides (repair-is-durable-before-use,
torn-tail-is-cut, stored-payloads-are-checked-for-use, unterminated-record-is-kept,
batches-are-checksummed):

- A checksum covers it: the log is damaged.
- It is a whole record that is refused for what it says: removed vocabulary, a field that loading
  needs, another seq, a rule of the surface. A crash leaves half a record, never a whole one of the
  wrong kind, so the log is refused wherever it stands.
- A complete `turn/end` follows: a turn is durable before anything comes behind it, so that what is
  unreadable was once whole. The log is damaged.
- Else it is what a crash left of the last write: torn. It goes, and what follows goes with it.

A medium may take the end of a write before its middle, and shows NUL bytes there. Then a `turn/end`
may end the very write that has the gap, which nobody was told is stored. So behind NUL bytes, in a
log whose flushes are checksummed, one `turn/end` is passed over if it is the last line and the
start of its turn is missing. A turn that is whole behind a gap was written after it: damage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from persistence.errors import CorruptLogError, RefusedLogError
from persistence.records import BadRecordError, LogDecoder, RefusedRecordError, turn_boundary

if TYPE_CHECKING:
    from session_core import EventLog


class _Tail(NamedTuple):
    """Where a log stops being readable, and why."""

    error: BadRecordError
    offset: int | None
    is_gap: bool


class LogReader:
    """Builds a log from its physical records, and says what becomes of each.

    Args:
        label: How errors name the session.
        is_checksummed: Whether the writer of the log checksums its flushes: only then NUL bytes
            are known to be a gap in the last write.
    """

    def __init__(self, label: str, *, is_checksummed: bool = False) -> None:
        self._label = label
        self._is_checksummed = is_checksummed
        self._decoder = LogDecoder()
        self._tail: _Tail | None = None
        self._has_turn_start = False
        self._has_turn_end = False

    @property
    def next_seq(self) -> int:
        """The seq that follows the last kept record."""
        return self._decoder.next_seq

    @property
    def torn(self) -> str | None:
        """Why the end of the log is torn; None if it is not."""
        if self._tail is None:
            return None
        error, offset, _ = self._tail
        return error.reason if offset is None else f"{error.reason} at byte {offset}"

    @property
    def problems(self) -> tuple[str, ...]:
        """Oddities of the kept records that did not stop the read."""
        unknown = ", ".join(map(repr, sorted(self._decoder.unknown_keys)))
        return (f"unknown keys of events are passed over: {unknown}",) if unknown else ()

    def take(
        self,
        line: bytes,
        offset: int | None = None,
        *,
        is_covered: bool = False,
        is_whole: bool = True,
        is_plain: bool = False,
    ) -> bool:
        """Take the next record; return whether it is kept.

        Args:
            line: The record without its LF.
            offset: The byte at which it starts, for stores of bytes.
            is_covered: Whether a checksum covers it.
            is_whole: Whether it was ended as records are; the last line of a file may lack its LF.
            is_plain: What `has_plain_numbers` said of it, if somebody has asked already.

        Raises:
            RefusedLogError: It is a whole record and is refused for what it says.
            CorruptLogError: Something was committed here and cannot be read.
        """
        if self._tail is not None:
            self._look_beyond(self._tail, line, is_whole=is_whole)
            return False
        try:
            self._decoder.feed(line, is_plain=is_plain)
        except BadRecordError as error:
            self.stop_at(error, line, offset, is_covered=is_covered, is_whole=is_whole)
            return False
        return True

    def stop_at(
        self,
        error: BadRecordError,
        line: bytes = b"",
        offset: int | None = None,
        *,
        is_covered: bool = False,
        is_whole: bool = True,
    ) -> None:
        """Take a record that a store itself finds unreadable; the arguments are those of `take`.

        Raises:
            RefusedLogError: It is a whole record and is refused for what it says.
            CorruptLogError: Something was committed here and cannot be read.
        """
        tail = self._tail
        if tail is None:
            # No line of ours holds a NUL.
            is_gap = self._is_checksummed and b"\0" in line
            tail = self._tail = _Tail(error, offset, is_gap)
            if is_covered:
                raise self._damage(tail)
            if isinstance(error, RefusedRecordError):
                seq = self.next_seq if error.seq is None else error.seq
                raise RefusedLogError(self._label, error.reason, seq=seq, offset=offset)
        self._look_beyond(tail, line, is_whole=is_whole)

    def finish(self) -> EventLog:
        """Return the log of what was kept; the reader is used up."""
        return self._decoder.finish()

    def _look_beyond(self, tail: _Tail, line: bytes, *, is_whole: bool) -> None:
        """Refuse the log if a record from the unreadable one on proves that it was committed."""
        if self._has_turn_end:
            raise self._damage(tail)
        # What a gap is followed by in its own line may be whole.
        boundary = turn_boundary(line.rpartition(b"\0")[2]) if is_whole else None
        if boundary == "turn/start":
            self._has_turn_start = True
        elif boundary == "turn/end":
            self._has_turn_end = True
            if not tail.is_gap or self._has_turn_start:
                raise self._damage(tail)

    def _damage(self, tail: _Tail) -> CorruptLogError:
        seq = self.next_seq if tail.error.seq is None else tail.error.seq
        damage = CorruptLogError(self._label, tail.error.reason, seq=seq, offset=tail.offset)
        damage.__cause__ = tail.error
        return damage

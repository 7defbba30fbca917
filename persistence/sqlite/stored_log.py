"""The rows of one session to its log: what is kept, what is torn, what is damage (contract 5.5)."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from persistence.errors import CorruptLogError
from persistence.records import BadRecordError, LogDecoder, gc_paused, is_turn_end
from persistence.refusals import is_refusal
from persistence.seam import StoredLog
from persistence.sqlite.rows import (
    EventRow,
    LogState,
    SessionRecord,
    decode_header,
    header_crc,
    line_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from persistence.sqlite.database import Database


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All rows of one session, read in one transaction."""

    session_id: str
    database: Database
    session: SessionRecord
    events: list[EventRow]


def decode_log(snapshot: Snapshot) -> StoredLog:
    """Return the log of a session's rows; uses them up.

    Raises:
        CorruptLogError: committed rows are damaged.
        UnsupportedVersionError: it is of another format version.
    """
    with gc_paused():
        return _LogReading(snapshot).run()


class _LogReading:
    """One pass over the rows of one session."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._session_id = snapshot.session_id
        self._decoder = LogDecoder()
        self._vouched_seq = 0

    def run(self) -> StoredLog:
        snapshot, session = self._snapshot, self._snapshot.session
        header = decode_header(session, self._session_id)
        # Taken from the end, so that memory holds each row or its record, not both.
        rows = snapshot.events
        last_seq = rows[-1].last_seq if rows else -1
        rows.reverse()
        crc = header_crc(header)
        torn: str | None = None
        while rows:
            row = rows[-1]
            try:
                line = self._take(row)
            except BadRecordError as error:
                self._refuse_if_committed(rows, error)
                torn = error.reason
                break
            crc = zlib.crc32(line, crc)
            self._compare(row, crc)
            rows.pop()
        next_seq = self._decoder.next_seq
        if torn is None and next_seq < session.event_count:
            reason = f"the log ends there, but {session.event_count} events were stored"
            raise CorruptLogError(self._session_id, reason, seq=next_seq)
        incarnation = session.incarnation.decode(errors="replace")
        state = LogState(
            snapshot.database.identity, incarnation, session.revision, next_seq, last_seq, crc
        )
        revision = snapshot.database.revision(incarnation, session.revision)
        return StoredLog(header, self._decoder.finish(), torn, state, (), revision)

    def _take(self, row: EventRow) -> bytes:
        line = line_of(row)
        if type(row.last_seq) is not int:
            raise BadRecordError("its last seq is no number")
        self._decoder.feed(line)
        if self._decoder.next_seq != row.last_seq + 1:
            # The log holds more than the row's own words; it cannot be used any more.
            reason = f"the row says that it ends at seq {row.last_seq}"
            raise CorruptLogError(self._session_id, reason, seq=row.seq)
        return line

    def _compare(self, row: EventRow, crc: int) -> None:
        if row.crc is None:
            return
        if row.crc != crc:
            reason = f"events {self._vouched_seq} to {row.last_seq} do not match their checksum"
            raise CorruptLogError(self._session_id, reason, seq=self._vouched_seq)
        self._vouched_seq = row.last_seq + 1

    def _refuse_if_committed(self, rest: Sequence[EventRow], error: BadRecordError) -> None:
        """Refuse the log if what is unreadable was once committed; `rest` starts with it."""
        if is_refusal(error) or any(row.crc is not None or _is_turn_end(row) for row in rest):
            raise CorruptLogError(
                self._session_id, error.reason, seq=self._decoder.next_seq
            ) from error


def _is_turn_end(row: EventRow) -> bool:
    try:
        return row.type == b"turn/end" and is_turn_end(line_of(row))
    except BadRecordError:
        return False

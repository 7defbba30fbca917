"""The rows of one session to its log (database-has-fixed-shape)."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from persistence.errors import CorruptLogError
from persistence.log_reader import LogReader
from persistence.records import BadRecordError, gc_paused
from persistence.sqlite.rows import (
    EventRow,
    LogState,
    SessionRecord,
    decode_header,
    header_crc,
    line_of,
)
from persistence.storage import StoredLog

if TYPE_CHECKING:
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
        CorruptLogError: Committed rows are damaged, or an event is refused.
        UnsupportedVersionError: It is of another format version.
    """
    with gc_paused():
        return _LogReading(snapshot).run()


class _LogReading:
    """One pass over the rows of one session."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._session_id = snapshot.session_id
        self._reader = LogReader(snapshot.session_id)
        self._vouched_seq = 0

    def run(self) -> StoredLog:
        snapshot, session, reader = self._snapshot, self._snapshot.session, self._reader
        header = decode_header(session, self._session_id)
        # Taken from the end, so that memory holds each row or its record, not both.
        rows = snapshot.events
        last_seq = rows[-1].last_seq if rows else -1
        rows.reverse()
        # The last row of a batch has the checksum of everything before it.
        uncovered = next((n for n, row in enumerate(rows) if row.crc is not None), len(rows))
        crc = header_crc(header)
        while rows:
            row = rows.pop()
            line = self._take(row, is_covered=len(rows) >= uncovered)
            if line is not None:
                crc = zlib.crc32(line, crc)
                self._compare(row, crc)
        next_seq = reader.next_seq
        if reader.torn is None and next_seq < session.event_count:
            reason = f"the log ends there, but {session.event_count} events were stored"
            raise CorruptLogError(self._session_id, reason, seq=next_seq)
        incarnation = session.incarnation.decode(errors="replace")
        state = LogState(
            snapshot.database.identity, incarnation, session.revision, next_seq, last_seq, crc
        )
        revision = snapshot.database.revision(incarnation, session.revision)
        return StoredLog(header, reader.finish(), reader.torn, state, reader.problems, revision)

    def _take(self, row: EventRow, *, is_covered: bool) -> bytes | None:
        """Take a row; return the line that it is, None if it is not kept."""
        try:
            line = line_of(row)
        except BadRecordError as error:
            self._reader.stop_at(error, is_covered=is_covered)
            return None
        if not self._reader.take(line, is_covered=is_covered):
            return None
        if self._reader.next_seq - 1 != row.last_seq:
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

"""The backend that keeps sessions in memory: the store of unit tests, and of nothing after them.

It holds each log as the same lines a file would hold, so that what is read is detached from what
was written, and damage can be put in by hand. Locks are per store: two backends over one
`MemoryDisk` behave like two processes over one directory.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, cast

from persistence.errors import (
    CorruptLogError,
    SessionChangedError,
    SessionCollisionError,
    SessionLockedError,
    SessionNotFoundError,
)
from persistence.lock import LOCK_WAIT_S, wait_for_lock
from persistence.log_reader import LogReader
from persistence.paging import DirectoryFilter, ListKey, take_page
from persistence.records import encode_records
from persistence.storage import EntryPage, SessionEntry, SessionSummary, StoredLog
from persistence.summary import summarize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from persistence.storage import Location, Writer
    from session_core import Event, Record, SessionHeader


@dataclass(slots=True)
class MemoryLog:
    """One stored log; `lines` are its records, the header not among them."""

    header: SessionHeader
    lines: list[bytes]
    incarnation: int
    changes: int = 0
    summary: SessionSummary | None = None

    @property
    def revision(self) -> str:
        """See `SessionEntry.revision`."""
        return f"memory:{self.incarnation}:{self.changes}"


@dataclass(slots=True)
class MemoryDisk:
    """What several backends share: logs by id, and the ids that are being written."""

    logs: dict[str, MemoryLog] = field(default_factory=dict)
    locked: set[str] = field(default_factory=set)
    incarnations: int = 0


class _Mark(NamedTuple):
    """A log as it was read: kept lines of all lines, and its revision."""

    kept: int
    revision: str


class MemoryBackend:
    """See `StorageBackend`. Closing keeps the logs: the same object can be used again."""

    def __init__(self, disk: MemoryDisk | None = None, *, lock_wait_s: float = LOCK_WAIT_S) -> None:
        self.disk = MemoryDisk() if disk is None else disk
        self._lock_wait_s = lock_wait_s
        self._writers: set[MemoryWriter] = set()

    def locate(self, header: SessionHeader) -> Location | None:
        """See `StorageBackend.locate`: there is no place to show."""
        return None

    async def load_stored(self, session_id: str) -> StoredLog | None:
        """See `StorageBackend.load_stored`."""
        log = self.disk.logs.get(session_id)
        return None if log is None else _read(log)

    async def list_page(self, cwd: str | None, cursor: str | None, limit: int) -> EntryPage:
        """See `StorageBackend.list_page`."""
        is_wanted = DirectoryFilter(cwd)
        entries = [
            SessionEntry(log.header, log.summary or _summarized(log), log.revision)
            for log in self.disk.logs.values()
            if is_wanted(log.header.cwd)
        ]
        return EntryPage(*take_page(entries, _place, cursor, limit))

    async def acquire_writer(
        self, session_id: str, header: SessionHeader | None = None, *, wait: bool = True
    ) -> Writer:
        """See `StorageBackend.acquire_writer`."""
        disk = self.disk

        async def attempt() -> bool | None:
            return None if session_id in disk.locked else True

        if not await wait_for_lock(attempt, self._lock_wait_s if wait else 0.0):
            raise SessionLockedError(session_id, os.getpid())
        if header is None and session_id not in disk.logs:
            raise SessionNotFoundError(session_id)
        disk.locked.add(session_id)
        writer = MemoryWriter(disk, session_id)
        self._writers.add(writer)
        return writer

    async def close(self) -> None:
        """See `StorageBackend.close`."""
        for writer in self._writers:
            await writer.release()
        self._writers.clear()


class MemoryWriter:
    """See `Writer`. All its holders are of one process."""

    former_pid = None

    def __init__(self, disk: MemoryDisk, session_id: str) -> None:
        self._disk = disk
        self._session_id = session_id
        self._revision: str | None = None
        self._held = True

    @property
    def materialized(self) -> bool:
        """See `Writer.materialized`."""
        return self._session_id in self._disk.logs

    @property
    def position(self) -> object | None:
        """See `Writer.position`."""
        return self._revision

    async def append_batch(
        self,
        header: SessionHeader,
        records: Sequence[Record],
        summary: SessionSummary | None = None,
    ) -> None:
        """See `Writer.append_batch`."""
        lines = _lines(records)
        if self._revision is None:
            if self.materialized:
                raise SessionCollisionError(self._session_id, "a log is stored already")
            self._disk.incarnations += 1
            log = MemoryLog(header, [], self._disk.incarnations)
            self._disk.logs[self._session_id] = log
        else:
            log = self._unchanged()
        log.lines += lines
        log.changes += 1
        log.summary = summary
        self._revision = log.revision

    async def commit_repair(self, stored: StoredLog, closers: Sequence[Event]) -> None:
        """See `Writer.commit_repair`."""
        # A mark comes from this backend's own `load_stored`.
        mark = cast("_Mark", stored.mark)
        self._revision = mark.revision
        log = self._unchanged()
        if stored.torn is None and not closers:
            return
        log.lines[mark.kept :] = _lines(closers)
        log.changes += 1
        log.summary = None
        self._revision = log.revision

    async def continue_from(self, position: object) -> None:
        """See `Writer.continue_from`."""
        self._revision = cast("str", position)
        self._unchanged()

    async def delete(self) -> None:
        """See `Writer.delete`."""
        self._disk.logs.pop(self._session_id, None)
        await self.release()

    async def release(self) -> None:
        """See `Writer.release`."""
        if self._held:
            self._held = False
            self._disk.locked.discard(self._session_id)

    def _unchanged(self) -> MemoryLog:
        log = self._disk.logs.get(self._session_id)
        if log is None:
            raise SessionChangedError(self._session_id, "it is gone")
        if log.revision != self._revision:
            raise SessionChangedError(self._session_id, "it has another revision")
        return log


def _place(entry: SessionEntry) -> ListKey:
    return ListKey.of(entry.summary, entry.header.id)


def _lines(records: Sequence[Record]) -> list[bytes]:
    return encode_records(records).splitlines(keepends=True)


def _read(log: MemoryLog) -> StoredLog:
    reader = LogReader(log.header.id)
    kept = 0
    for line in log.lines:
        record = line.removesuffix(b"\n")
        kept += reader.take(record, is_whole=record is not line)
    mark = _Mark(kept, log.revision)
    return StoredLog(log.header, reader.finish(), reader.torn, mark, reader.problems, log.revision)


def _summarized(log: MemoryLog) -> SessionSummary:
    try:
        return summarize(log.header, _read(log).log.records())
    except CorruptLogError:
        return SessionSummary(None, None, log.header.created_at, 0, 0)

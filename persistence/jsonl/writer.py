"""The JSONL backend's `Writer`: encodes batches and drives one `LogFile` in a worker thread."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, cast

from persistence.errors import StoreWriteError, write_error
from persistence.header_line import encode_header
from persistence.jsonl.append import LogFile
from persistence.jsonl.index_row import row_of
from persistence.records import encode_records
from session_core import Event

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from persistence.files import Files
    from persistence.jsonl.index import SummaryIndex
    from persistence.jsonl.layout import SessionPaths
    from persistence.jsonl.position import LogPosition, ReadPosition
    from persistence.lock import FileLock
    from persistence.storage import SessionSummary, StoredLog
    from session_core import Record, SessionHeader


class JsonlWriter:
    """See `Writer`. Holds the session's lock from construction to `release`."""

    def __init__(
        self,
        files: Files,
        session_id: str,
        paths: SessionPaths,
        lock: FileLock,
        index: SummaryIndex,
        *,
        materialized: bool,
        pack: bool,
        run: Callable[[Callable[[], None]], Awaitable[None]],
        on_released: Callable[[JsonlWriter], None],
    ) -> None:
        self._files = files
        self._session_id = session_id
        self._paths = paths
        self._lock = lock
        self._index = index
        self._materialized = materialized
        self._pack = pack
        self._run = run
        self._on_released = on_released
        self._released = False
        self._log = LogFile(files, session_id, paths)

    @property
    def materialized(self) -> bool:
        """See `Writer.materialized`."""
        return self._materialized

    @property
    def position(self) -> object | None:
        """See `Writer.position`."""
        return self._log.position

    @property
    def former_pid(self) -> int | None:
        """See `Writer.former_pid`."""
        return self._lock.former_pid

    async def append_batch(
        self,
        header: SessionHeader,
        records: Sequence[Record],
        summary: SessionSummary | None = None,
    ) -> None:
        """See `Writer.append_batch`."""
        await self._write(partial(self._append, header, records, summary))

    async def commit_repair(self, stored: StoredLog, closers: Sequence[Event]) -> None:
        """See `Writer.commit_repair`."""
        # A mark comes from this backend's own `load_stored`.
        mark = cast("ReadPosition", stored.mark)
        self._log.continue_at(mark)
        if stored.torn is not None or closers:
            await self._write(partial(self._repair, mark, closers))

    async def continue_from(self, position: object) -> None:
        """See `Writer.continue_from`."""
        await self._write(partial(self._log.continue_from, cast("LogPosition", position)))

    async def delete(self) -> None:
        """See `Writer.delete`."""
        await self._write(self._delete)

    async def release(self) -> None:
        """See `Writer.release`."""
        await self._write(self.release_now)

    def release_now(self) -> None:
        """Give the lock back; blocks briefly. What is not stored leaves nothing behind."""
        if self._released:
            # Without the lock nothing here is ours any more.
            return
        self._released = True
        try:
            if not self._materialized:
                self._remove_directory()
        finally:
            self._lock.release()
            self._on_released(self)

    async def _write(self, work: Callable[[], None]) -> None:
        try:
            await self._run(work)
        except OSError as error:
            raise write_error(self._session_id, error) from error

    def _append(
        self, header: SessionHeader, records: Sequence[Record], summary: SessionSummary | None
    ) -> None:
        data = encode_records(records, pack=self._pack)
        seq = _seq_after(records)
        if self._materialized:
            self._log.append(data, seq)
        else:
            self._log.publish(encode_header(header) + data, seq)
            self._materialized = True
        if summary is not None:
            self._index.add(row_of(self._paths.key, *self._log.freshness, header, summary))

    def _repair(self, mark: ReadPosition, closers: Sequence[Event]) -> None:
        if mark.end < mark.size:
            self._log.cut(mark.end)
        data = b"\n" if mark.needs_newline else b""
        data += encode_records(closers, pack=self._pack)
        if data:
            self._log.append(data, mark.seq + len(closers))

    def _delete(self) -> None:
        failure: StoreWriteError | None = None
        try:
            # The log first: from here on the session is gone, whatever else remains.
            with contextlib.suppress(FileNotFoundError):
                self._files.unlink(self._paths.log)
            self._files.sync_dir(self._paths.directory)
            self._materialized = False
            self._index.purge(self._paths.key)
        except OSError as error:
            failure = write_error(self._session_id, error)
        self.release_now()
        if failure is not None:
            raise failure

    def _remove_directory(self) -> None:
        """Remove what stands beside the log, the lock file last, while the lock is held."""
        directory = self._paths.directory
        with contextlib.suppress(OSError):
            for name in sorted(self._files.list_dir(directory), key=self._paths.lock.endswith):
                self._files.unlink(f"{directory}/{name}")
            self._files.rmdir(directory)
            self._files.sync_dir(self._paths.bucket)
            # Its name spells the working directory; other sessions may still need it.
            self._files.rmdir(self._paths.bucket)


def _seq_after(records: Sequence[Record]) -> int:
    last = records[-1]
    return last.seq + 1 if isinstance(last, Event) else last.stop

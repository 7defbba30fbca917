"""The store-wide summary cache, `index.jsonl` (summary-is-only-a-cache).

One line a summary, the last one of a session wins; inode and size of the log say whether it is
fresh. Appended without a lock by whoever ends a turn, compacted and purged by atomic replace under
the index's own lock. Losing any of it costs reading logs again and nothing else, so an unreadable
line is skipped, and failures to extend it are nobody's failure.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import TYPE_CHECKING, Any

from persistence.errors import write_error
from persistence.files import write_all
from persistence.jsonl.index_row import IndexRow, decode_row, encode_row
from persistence.jsonl.layout import INDEX_LOCK_NAME, INDEX_NAME, TEMP_SUFFIX
from persistence.lock import FileLock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from persistence.files import Files

_logger = logging.getLogger(__name__)

_READ_PIECE = 1 << 20
# Holders keep the index lock for one rewrite, milliseconds; a purge must not give up before that.
_LOCK_WAIT_S = 5.0
# A store of a few sessions is not worth compacting.
_MIN_SUPERSEDED = 64


class SummaryIndex:
    """The cache file of one store. Thread-safe; every call blocks on disk only."""

    def __init__(self, files: Files, root: str) -> None:
        self._files = files
        self._path = f"{root}/{INDEX_NAME}"
        self._root = root
        self._guard = threading.Lock()
        self._rows: dict[str, IndexRow] = {}
        self._inode: tuple[int, int] | None = None
        self._read_to = 0
        self._superseded = 0

    def add(self, row: IndexRow) -> None:
        """Append one row; a failure is logged and forgotten."""
        with _forgiven("extended"):
            self._append(encode_row(row))

    def rows(self) -> dict[str, IndexRow]:
        """Return the newest row of each session, by key; do not change it."""
        with self._guard:
            with _forgiven("read"):
                self._refresh()
            return dict(self._rows)

    def add_checked(self, rows: Iterable[IndexRow], is_current: Callable[[IndexRow], bool]) -> None:
        """Append the rows that are still current, so that no deleted session comes back (B61)."""
        with _forgiven("extended"), self._lock(0.0) as locked:
            lines = [encode_row(row) for row in rows if is_current(row)] if locked else []
            if lines:
                # A newline first: a crash may have left the last line torn.
                self._append(b"".join([b"\n", *lines]))

    def compact_if_due(self, live_keys: set[str]) -> None:
        """Rewrite the file when much of it is superseded, or sessions in it are gone."""
        with self._guard:
            is_due = self._superseded > max(_MIN_SUPERSEDED, len(self._rows))
            if not is_due and self._rows.keys() <= live_keys:
                return
        with _forgiven("compacted"), self._lock(0.0) as locked:
            if locked:
                self._rewrite(lambda key: key in live_keys)

    def purge(self, key: str) -> None:
        """Remove every line of one session, durably.

        Raises:
            OSError: It could not be removed, or the index lock could not be had.
        """
        with self._lock(_LOCK_WAIT_S) as locked:
            if not locked:
                raise TimeoutError(0, "the index is locked by another process")
            self._rewrite(lambda other: other != key)

    @contextlib.contextmanager
    def _lock(self, wait_s: float) -> Any:
        lock = FileLock(self._files, f"{self._root}/{INDEX_LOCK_NAME}")
        locked = lock.try_acquire(wait_s)
        try:
            yield locked
        finally:
            lock.release()

    def _append(self, lines: bytes) -> None:
        handle = self._files.open(self._path, "append")
        try:
            self._files.append(handle, lines)
        finally:
            self._files.close(handle)

    def _rewrite(self, keep: Callable[[str], bool]) -> None:
        with self._guard:
            self._refresh()
            if self._inode is None:
                return
            kept = {key: row for key, row in self._rows.items() if keep(key)}
            temp = self._path + TEMP_SUFFIX
            with contextlib.suppress(FileNotFoundError):
                self._files.unlink(temp)
            handle = self._files.open(temp, "create")
            try:
                write_all(self._files, handle, b"".join(map(encode_row, kept.values())), 0)
                self._files.sync(handle)
            finally:
                self._files.close(handle)
            self._files.rename(temp, self._path)
            self._files.sync_dir(self._root)
            self._refresh()

    def _refresh(self) -> None:
        """Read what others have appended since, or all of it if the file was replaced."""
        try:
            handle = self._files.open(self._path, "read")
        except FileNotFoundError:
            self._forget()
            return
        try:
            status = self._files.handle_stat(handle)
            if (status.device, status.inode) != self._inode or status.size < self._read_to:
                self._forget()
                self._inode = (status.device, status.inode)
            parts: list[bytes] = []
            while piece := self._files.read(handle, _READ_PIECE, self._read_to):
                parts.append(piece)
                self._read_to += len(piece)
        finally:
            self._files.close(handle)
        self._take(b"".join(parts))

    def _take(self, data: bytes) -> None:
        complete = data.rfind(b"\n") + 1
        self._read_to -= len(data) - complete
        for line in filter(None, data[:complete].split(b"\n")):
            row = decode_row(line)
            if row is None:
                self._superseded += 1
                continue
            self._superseded += row.key in self._rows
            self._rows[row.key] = row

    def _forget(self) -> None:
        self._rows = {}
        self._inode = None
        self._read_to = 0
        self._superseded = 0


@contextlib.contextmanager
def _forgiven(what: str) -> Any:
    try:
        yield
    except OSError as error:
        _logger.warning("the summary index was not %s: %s", what, write_error(None, error).detail)

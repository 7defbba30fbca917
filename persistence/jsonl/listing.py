"""One page of the sessions of a JSONL store (Z21).

Finds the logs by their names, takes what the index knows of them, and reads only the logs that it
does not know as they are now. A damaged session is shown with what its header says, or left out if
it has none; either way it is logged once and hides no other (B50).
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, NamedTuple

from persistence.errors import PersistenceError, read_error
from persistence.jsonl.index import IndexRow, index_row
from persistence.jsonl.layout import LOG_NAME, is_bucket, paths_in_bucket
from persistence.jsonl.mark import revision
from persistence.jsonl.scan import read_header, read_log
from persistence.paging import DirectoryFilter, ListKey, take_page
from persistence.seam import EntryPage, SessionEntry, SessionSummary
from persistence.summary import summarize
from session_core import SessionHeader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from persistence.files import Files, FileStat
    from persistence.jsonl.index import SummaryIndex
    from persistence.jsonl.layout import SessionPaths

_logger = logging.getLogger(__name__)


class _Found(NamedTuple):
    """A log that exists, with its summary; `key` orders it in the list."""

    key: ListKey
    row: IndexRow
    status: FileStat


class SessionLister:
    """Lists one store. Thread-safe."""

    def __init__(self, files: Files, root: str, index: SummaryIndex) -> None:
        self._files = files
        self._root = root
        self._index = index
        self._guard = threading.Lock()
        # Damaged sessions by log path, so that each is read and warned about once per state.
        self._damaged: dict[str, tuple[int, int, IndexRow | None]] = {}

    def page(self, cwd: str | None, cursor: str | None, limit: int) -> EntryPage:
        """See `SessionBackend.list_page`."""
        is_wanted = DirectoryFilter(cwd)
        with self._guard:
            found = self._find_all()
        wanted = (item for item in found if is_wanted(item.row.header.get("cwd")))
        rows, next_cursor = take_page(wanted, cursor, limit)
        return EntryPage([_entry(item) for item in rows], next_cursor)

    def _find_all(self) -> list[_Found]:
        known = self._index.rows()
        found: list[_Found] = []
        rebuilt: list[IndexRow] = []
        keys: set[str] = set()
        for paths, status in self._logs():
            key = paths.key
            keys.add(key)
            row = known.get(key)
            if row is None or not row.is_fresh(status.inode, status.size):
                row, is_whole = self._summarize(paths, status)
                if is_whole and row is not None:
                    rebuilt.append(row)
            if row is not None:
                found.append(_Found(ListKey.of(row.summary, row.header["id"]), row, status))
        if rebuilt:
            self._index.add_checked(rebuilt, self._is_current)
        self._index.compact_if_due(keys)
        return found

    def _logs(self) -> Iterator[tuple[SessionPaths, FileStat]]:
        for bucket in filter(is_bucket, _names(self._files, self._root)):
            for name in _names(self._files, f"{self._root}/{bucket}"):
                paths = paths_in_bucket(self._root, bucket, name)
                try:
                    status = self._files.stat(f"{paths.directory}/{LOG_NAME}")
                except (FileNotFoundError, NotADirectoryError):
                    continue
                except OSError as error:
                    _logger.warning("%s is left out of the list: %s", paths.log, error.strerror)
                    continue
                if status.kind == "file" and status.size:
                    yield paths, status

    def _summarize(self, paths: SessionPaths, status: FileStat) -> tuple[IndexRow | None, bool]:
        """Return the row of a log that the index does not know, and whether the log is sound."""
        damaged = self._damaged.get(paths.log)
        if damaged is not None and damaged[:2] == (status.inode, status.size):
            return damaged[2], False
        try:
            stored = read_log(self._files, None, paths)
        except (PersistenceError, OSError) as error:
            row = self._row_of_damaged(paths, status)
            self._damaged[paths.log] = (status.inode, status.size, row)
            shown = "left out of the list" if row is None else "listed by its header alone"
            reason = read_error(None, paths.log, error) if isinstance(error, OSError) else error
            _logger.warning("%s is %s: %s", paths.log, shown, reason)
            return row, False
        summary = summarize(stored.header, stored.log.records())
        freshness = (status.inode, status.size)
        return index_row(paths.key, freshness, stored.header, summary), True

    def _row_of_damaged(self, paths: SessionPaths, status: FileStat) -> IndexRow | None:
        try:
            header = read_header(self._files, paths)
        except (PersistenceError, OSError):
            return None
        summary = SessionSummary(None, None, header.created_at, 0, 0)
        return index_row(paths.key, (status.inode, status.size), header, summary)

    def _is_current(self, row: IndexRow) -> bool:
        try:
            status = self._files.stat(f"{self._root}/{row.key}/{LOG_NAME}")
        except OSError:
            return False
        return row.is_fresh(status.inode, status.size)


def _entry(found: _Found) -> SessionEntry:
    header = SessionHeader.from_json(found.row.header)
    return SessionEntry(header, found.row.summary, revision(found.status))


def _names(files: Files, directory: str) -> list[str]:
    """Return the names in a directory; none if it is none."""
    try:
        return files.list_dir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        _logger.warning("%s is left out of the list: %s", directory, error.strerror)
        return []

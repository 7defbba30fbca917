"""One page of the sessions of a JSONL store (list-rows-fold-the-log).

Finds the logs by their names, takes what the index knows of them, and reads only the logs that it
does not know as they are now. A damaged session is shown with what its header says, or left out if
it has none; either way it is logged once and hides no other (B50).
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, TypeAlias

from persistence.errors import PersistenceError
from persistence.jsonl.index_row import IndexRow, row_of
from persistence.jsonl.layout import LOG_NAME, is_bucket, paths_in_bucket
from persistence.jsonl.position import revision
from persistence.jsonl.scan import read_header, read_log
from persistence.paging import DirectoryFilter, ListKey, take_page
from persistence.records import gc_paused
from persistence.storage import EntryPage, SessionEntry, SessionSummary
from persistence.summary import summarize
from session_core import SessionCoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from persistence.files import Files, FileStat
    from persistence.jsonl.index import SummaryIndex
    from persistence.jsonl.layout import SessionPaths
    from session_core import SessionHeader

_logger = logging.getLogger(__name__)

# A log that exists: what is known of it, and its status.
_Found: TypeAlias = "tuple[IndexRow, FileStat]"


class SessionLister:
    """Lists one store. Thread-safe."""

    def __init__(self, files: Files, root: str, index: SummaryIndex) -> None:
        self._files = files
        self._root = root
        self._index = index
        self._guard = threading.Lock()
        # Damaged sessions by key, so that each is read once per state of its file.
        self._damaged: dict[str, tuple[int, int, IndexRow | None]] = {}
        self._warned: set[tuple[str, int, int]] = set()

    def page(self, cwd: str | None, cursor: str | None, limit: int) -> EntryPage:
        """See `StorageBackend.list_page`."""
        is_wanted = DirectoryFilter(cwd)
        # Ten thousand small objects that are all kept: the collector would look at them in vain.
        with self._guard, gc_paused():
            found = self._find_all()
            if cwd is not None:
                found = [item for item in found if is_wanted(item[0].cwd)]
            rows, next_cursor = take_page(found, _place, cursor, limit)
            entries = [self._entry(*item) for item in rows]
            return EntryPage([entry for entry in entries if entry is not None], next_cursor)

    def _find_all(self) -> list[_Found]:
        known = self._index.rows()
        found: list[_Found] = []
        rebuilt: list[IndexRow] = []
        keys: set[str] = set()
        for key, status in self._logs():
            keys.add(key)
            row = known.get(key)
            if row is None or row.inode != status.inode or row.size != status.size:
                row = self._summarize(key, status)
                if row is not None and key not in self._damaged:
                    rebuilt.append(row)
            if row is not None:
                found.append((row, status))
        if rebuilt:
            self._index.add_checked(rebuilt, self._is_current)
        self._index.compact_if_due(keys)
        return found

    def _logs(self) -> Iterator[tuple[str, FileStat]]:
        """Yield the key and the status of every log that has something in it."""
        status_of, root = self._files.stat, self._root
        for bucket in filter(is_bucket, _names(self._files, root)):
            for name in _names(self._files, f"{root}/{bucket}"):
                key = f"{bucket}/{name}"
                try:
                    status = status_of(f"{root}/{key}/{LOG_NAME}")
                except (FileNotFoundError, NotADirectoryError):
                    continue
                except OSError as error:
                    self._warn(key, None, f"left out of the list: {error.strerror}")
                    continue
                if status.size and status.kind == "file":
                    yield key, status

    def _entry(self, row: IndexRow, status: FileStat) -> SessionEntry | None:
        try:
            return row.entry(revision(status))
        except SessionCoreError:
            # The index lies, as far as a line can that was taken for a row.
            honest = self._summarize(row.key, status)
            if honest is None:
                return None
            self._index.add_checked([honest], self._is_current)
            return honest.entry(revision(status))

    def _summarize(self, key: str, status: FileStat) -> IndexRow | None:
        """Return the row of a log that the index does not know; None if it is left out."""
        damaged = self._damaged.get(key)
        if damaged is not None and damaged[:2] == (status.inode, status.size):
            return damaged[2]
        self._damaged.pop(key, None)
        try:
            stored = read_log(self._files, None, self._paths(key))
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn(key, status, f"left out of the list: {error.strerror}")
            return None
        except PersistenceError as error:
            row = self._row_of_damaged(key, status)
            self._damaged[key] = (status.inode, status.size, row)
            shown = "left out of the list" if row is None else "listed by its header alone"
            self._warn(key, status, f"{shown}: {error}")
            return row
        summary = summarize(stored.header, stored.log.records())
        return row_of(key, status.inode, status.size, stored.header, summary)

    def _row_of_damaged(self, key: str, status: FileStat) -> IndexRow | None:
        try:
            header = read_header(self._files, self._paths(key))
        except (PersistenceError, OSError):
            return None
        return row_of(key, status.inode, status.size, header, _unknown(header))

    def _warn(self, key: str, status: FileStat | None, what: str) -> None:
        """Log one warning for each bad session, until its file changes."""
        state = (key, status.inode, status.size) if status is not None else (key, 0, 0)
        if state not in self._warned:
            self._warned.add(state)
            _logger.warning("%s/%s/%s is %s", self._root, key, LOG_NAME, what)

    def _paths(self, key: str) -> SessionPaths:
        bucket, _, name = key.partition("/")
        return paths_in_bucket(self._root, bucket, name)

    def _is_current(self, row: IndexRow) -> bool:
        try:
            status = self._files.stat(f"{self._root}/{row.key}/{LOG_NAME}")
        except OSError:
            return False
        return (row.inode, row.size) == (status.inode, status.size)


def _place(found: _Found) -> ListKey:
    return found[0].place


def _unknown(header: SessionHeader) -> SessionSummary:
    """Return what can be said of a log that was not read."""
    return SessionSummary(None, None, header.created_at, 0, 0)


def _names(files: Files, directory: str) -> list[str]:
    """Return the names in a directory; none if it is none."""
    try:
        return files.list_dir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        _logger.warning("%s is left out of the list: %s", directory, error.strerror)
        return []

"""The JSONL backend: finds logs by id, reads them, and hands out their writers."""

from __future__ import annotations

import contextlib
import os.path
import re
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.to_thread

from persistence.errors import (
    ForeignStoreError,
    InvalidSessionIdError,
    SessionCollisionError,
    SessionLockedError,
    SessionNotFoundError,
    read_error,
    write_error,
)
from persistence.files import OsFiles, make_dirs
from persistence.jsonl.index import SummaryIndex
from persistence.jsonl.layout import is_bucket, paths_in_bucket, session_paths
from persistence.jsonl.listing import SessionLister
from persistence.jsonl.scan import read_log
from persistence.jsonl.writer import JsonlWriter
from persistence.lock import LOCK_WAIT_S, FileLock, wait_for_lock
from persistence.names import encode_id
from persistence.storage import EntryPage, Location, StoredLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from persistence.files import Files
    from persistence.jsonl.layout import SessionPaths
    from persistence.storage import Writer
    from session_core import SessionHeader

T = TypeVar("T")

# How many sessions may wait for the disk at once. Few are enough: an fsync is short, and decoding
# does not get faster by more threads.
_MAX_THREADS = 8

# How often a session may be deleted between our finding it and our locking it.
_MAX_VANISHINGS = 10

_OLD_BUCKET = re.compile(r"cwd-[0-9a-f]{12}")


class JsonlBackend:
    """A directory of session logs. See `StorageBackend`.

    Args:
        root: The directory; created with the first session. A relative one is fixed here.
        files: The file layer.
        pack: Write runs of deltas as packed rows; reading knows both forms.
        lock_wait_s: How long a session's lock is waited for.

    Raises:
        ForeignStoreError: The root is no directory, or holds another layout.
        StoreReadError: The root cannot be read.
    """

    def __init__(
        self,
        root: str,
        *,
        files: Files | None = None,
        pack: bool = True,
        lock_wait_s: float = LOCK_WAIT_S,
    ) -> None:
        # Lexical: what links of the user's own lead to must stay under their control.
        self._root = os.path.abspath(root)  # noqa: PTH100 - resolve() would follow links
        self._files: Files = OsFiles() if files is None else files
        self._pack = pack
        self._lock_wait_s = lock_wait_s
        self._limiter = anyio.CapacityLimiter(_MAX_THREADS)
        self._index = SummaryIndex(self._files, self._root)
        self._lister = SessionLister(self._files, self._root, self._index)
        self._writers: set[JsonlWriter] = set()
        self._refuse_foreign_root()

    def locate(self, header: SessionHeader) -> Location:
        """See `StorageBackend.locate`."""
        return Location("jsonl", session_paths(self._root, header.id, header.cwd).log)

    async def load_stored(self, session_id: str) -> StoredLog | None:
        """See `StorageBackend.load_stored`."""
        return await self._run(partial(self._read, session_id))

    async def list_page(self, cwd: str | None, cursor: str | None, limit: int) -> EntryPage:
        """See `StorageBackend.list_page`."""
        return await self._run(partial(self._lister.page, cwd, cursor, limit))

    async def acquire_writer(
        self, session_id: str, header: SessionHeader | None = None, *, wait: bool = True
    ) -> Writer:
        """See `StorageBackend.acquire_writer`."""
        held: list[FileLock] = []

        async def attempt() -> JsonlWriter | None:
            outcome = await self._run(partial(self._try_writer, session_id, header))
            if isinstance(outcome, JsonlWriter):
                return outcome
            held[:] = [outcome]
            return None

        writer = await wait_for_lock(attempt, self._lock_wait_s if wait else 0.0)
        if writer is None:
            raise SessionLockedError(session_id, await self._run(held[0].holder_pid))
        return writer

    async def close(self) -> None:
        """See `StorageBackend.close`."""
        for writer in list(self._writers):
            await writer.release()

    async def _run(self, work: Callable[[], T]) -> T:
        # Not abandoned on cancel: what was begun on the disk is waited for.
        return await anyio.to_thread.run_sync(work, limiter=self._limiter)

    def _read(self, session_id: str) -> StoredLog | None:
        paths = self._find(session_id)
        if paths is None:
            return None
        try:
            return read_log(self._files, session_id, paths)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise read_error(session_id, paths.log, error) from error

    def _try_writer(self, session_id: str, header: SessionHeader | None) -> JsonlWriter | FileLock:
        """Return a writer, or the lock that somebody else holds."""
        for _ in range(_MAX_VANISHINGS):
            paths = self._find(session_id) or self._new_paths(session_id, header)
            lock = FileLock(self._files, paths.lock, paths.pid)
            try:
                if header is not None:
                    make_dirs(self._files, paths.directory)
                if not lock.try_acquire():
                    return lock
            except FileNotFoundError:
                # A delete took the directory away meanwhile.
                continue
            except OSError as error:
                raise write_error(session_id, error) from error
            writer = self._writer(session_id, paths, lock)
            if writer.materialized or header is not None:
                return writer
            # Deleted while we came to the lock.
            writer.release_now()
        raise SessionLockedError(session_id, None)

    def _writer(self, session_id: str, paths: SessionPaths, lock: FileLock) -> JsonlWriter:
        writer = JsonlWriter(
            self._files,
            session_id,
            paths,
            lock,
            self._index,
            materialized=self._is_log(paths),
            pack=self._pack,
            run=self._run,
            on_released=self._writers.discard,
        )
        self._writers.add(writer)
        return writer

    def _new_paths(self, session_id: str, header: SessionHeader | None) -> SessionPaths:
        if header is None:
            raise SessionNotFoundError(session_id)
        return session_paths(self._root, session_id, header.cwd)

    def _find(self, session_id: str) -> SessionPaths | None:
        """Return where a log is, looking into every bucket: the id alone does not tell which."""
        try:
            encoded = encode_id(session_id)
        except InvalidSessionIdError:
            return None
        found: SessionPaths | None = None
        for bucket in self._buckets():
            paths = paths_in_bucket(self._root, bucket, encoded)
            if not self._is_log(paths):
                continue
            if found is not None:
                where = f"it is stored in {found.bucket_name!r} and in {bucket!r}"
                raise SessionCollisionError(session_id, where)
            found = paths
        return found

    def _buckets(self) -> list[str]:
        try:
            return [name for name in self._files.list_dir(self._root) if is_bucket(name)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise read_error(None, self._root, error) from error

    def _is_log(self, paths: SessionPaths) -> bool:
        try:
            return self._files.stat(paths.log).kind == "file"
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise read_error(None, paths.log, error) from error

    def _refuse_foreign_root(self) -> None:
        try:
            if self._files.stat(self._root).kind != "directory":
                raise ForeignStoreError(self._root, "it is not a directory")
        except FileNotFoundError:
            return
        except OSError as error:
            raise read_error(None, self._root, error) from error
        with contextlib.suppress(OSError):
            for name in self._files.list_dir(self._root):
                if _OLD_BUCKET.fullmatch(name):
                    raise ForeignStoreError(self._root, f"{name!r} is of an older layout")

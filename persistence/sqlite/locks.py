"""The writer locks beside the database: `<db>.locks/<enc(id)>.lock` (lock-is-held-by-kernel)."""

from __future__ import annotations

import contextlib

from persistence.errors import InvalidSessionIdError
from persistence.files import OsFiles, make_dirs
from persistence.lock import FileLock
from persistence.names import MAX_NAME, encode_id


class SessionLock:
    """The writer lock of one session. All calls block briefly; not thread-safe.

    Raises:
        InvalidSessionIdError: The id cannot name a lock file.
    """

    def __init__(self, database_path: str, session_id: str) -> None:
        if not is_storable_text(session_id):
            raise InvalidSessionIdError(session_id, "it is no text")
        name = encode_id(session_id)
        if len(name) + len(".lock") > MAX_NAME:
            raise InvalidSessionIdError(session_id, "its name is too long for a lock file")
        self._files = OsFiles()
        self._folder = f"{database_path}.locks"
        self._path = f"{self._folder}/{name}.lock"
        self._pid_path = f"{self._folder}/{name}.pid"
        self._lock = FileLock(self._files, self._path, self._pid_path)

    def try_acquire(self) -> bool:
        """Take the lock if it is free.

        Raises:
            OSError: The lock file cannot be made.
        """
        make_dirs(self._files, self._folder)
        return self._lock.try_acquire()

    def holder_pid(self) -> int | None:
        """Return the pid of who holds it, if that can be read."""
        return self._lock.holder_pid()

    @property
    def former_pid(self) -> int | None:
        """See `FileLock.former_pid`."""
        return self._lock.former_pid

    def release(self, *, remove: bool) -> None:
        """Give the lock back, removing its file if its session is gone."""
        try:
            if remove:
                # While it is held: whoever waits for it sees that the file is no longer there.
                for path in (self._pid_path, self._path):
                    with contextlib.suppress(OSError):
                        self._files.unlink(path)
        finally:
            self._lock.release()
        if remove:
            with contextlib.suppress(OSError):
                self._files.rmdir(self._folder)


def is_storable_text(value: str) -> bool:
    """Tell whether a database can hold a text: it has no lone surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True

"""The writer lock of a session: `flock` on a file that only delete removes.

Rule: lock-is-held-by-kernel.

The kernel drops it with its process, so there is no lease and no stale lock: a stopped holder keeps
its session, a dead one cannot. The pid of who took it last stands in a file beside it, which stays
when the lock is given back; it is for messages.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, TypeVar

import anyio

from persistence.files import read_all, write_all

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from filelock import UnixFileLock

    from persistence.files import Files

# Each retry means that a delete removed the file between our open and our lock; two in a row are
# already unheard of.
_STALE_RETRIES = 5
_POLL_S = 0.01

LOCK_WAIT_S = 3.0
"""How long a session's lock is waited for.

An editor that restarts its agent gives the old one this long to go (lock-is-held-by-kernel), and a
process that has ended its turn keeps the lock for less (looking-takes-no-lock).
"""

_RETRY_S = 0.05

T = TypeVar("T")


async def wait_for_lock(attempt: Callable[[], Awaitable[T | None]], wait_s: float) -> T | None:
    """Return what `attempt` gives once it gives something; None if it does not within `wait_s`.

    It is made at least once, and again and again: the kernel tells nobody when a lock becomes free.
    """
    give_up_at = anyio.current_time() + wait_s
    # Another process sets no event of ours.
    while (gained := await attempt()) is None and anyio.current_time() < give_up_at:  # noqa: ASYNC110
        await anyio.sleep(_RETRY_S)
    return gained


class FileLock:
    """One exclusive lock on one path, taken without waiting. Not thread-safe.

    Attributes:
        former_pid: Who held it before, once it is held; None if that was this process or nobody.
    """

    def __init__(self, files: Files, path: str, pid_path: str | None = None) -> None:
        self._files = files
        self._path = path
        self._pid_path = pid_path
        self._held: UnixFileLock | None = None
        self._descriptor = -1
        self.former_pid: int | None = None

    def try_acquire(self, wait_s: float = 0.0) -> bool:
        """Take the lock if it becomes free within `wait_s`; blocks the thread that long.

        Raises:
            OSError: The lock file cannot be opened, or was removed every time it was taken.
        """
        # Imported with the first lock: 25 ms that `initialize` must not pay.
        from filelock import Timeout, UnixFileLock  # noqa: PLC0415

        for _ in range(_STALE_RETRIES):
            opened: list[int] = []
            lock = UnixFileLock(
                self._path,
                mode=0o600,
                thread_local=False,
                fallback_to_soft=False,
                preserve_lock_file=True,
                on_acquired=opened.append,
            )
            try:
                lock.acquire(timeout=wait_s, poll_interval=_POLL_S)
            except Timeout:
                return False
            if self._is_current(opened[0]):
                self._held, self._descriptor = lock, opened[0]
                last = self.holder_pid()
                self.former_pid = None if last == os.getpid() else last
                self._write_pid()
                return True
            lock.release()
        raise FileNotFoundError(2, "the lock file keeps vanishing", self._path)

    def release(self) -> None:
        """Give the lock back; the file stays, so that waiters share one inode."""
        if self._held is None:
            return
        held, self._held = self._held, None
        try:
            held.release()
        except OSError:
            if held.is_locked:
                _close_locked(self._descriptor)
                # The number is still filelock's, which closes it.
                with contextlib.suppress(OSError):
                    held.release(force=True)

    def holder_pid(self) -> int | None:
        """Return the pid that the last holder left, if it can be read."""
        if self._pid_path is None:
            return None
        try:
            return int(read_all(self._files, self._pid_path)[:20])
        except (OSError, ValueError):
            return None

    def _is_current(self, descriptor: int) -> bool:
        ours = os.fstat(descriptor)
        try:
            current = self._files.stat(self._path)
        except FileNotFoundError:
            return False
        return (ours.st_dev, ours.st_ino) == (current.device, current.inode)

    def _write_pid(self) -> None:
        if self._pid_path is None:
            return
        # The pid is a courtesy: a full disk must not keep a session from being read.
        with contextlib.suppress(OSError):
            text = str(os.getpid()).encode()
            handle = self._files.open(self._pid_path, "update")
            try:
                write_all(self._files, handle, text, 0)
                self._files.truncate(handle, len(text))
            finally:
                self._files.close(handle)


def _close_locked(descriptor: int) -> None:
    """Close the file behind a descriptor, which unlocks it; the number stays taken."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.dup2(null, descriptor, inheritable=False)
    finally:
        os.close(null)

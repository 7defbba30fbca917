"""Durable changes to one log file: publish, append, repair. All blocking, all behind the seam.

`LogFile` remembers the log as this process left it and refuses to touch one that is not so
(changed-log-is-never-overwritten). From the look to the last byte it holds the log's own lock:
somebody may have removed the lock file of the session, and with it the lock. It knows bytes, not
events, and is used by one thread at a time.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import time
from typing import TYPE_CHECKING

from persistence.errors import (
    SessionChangedError,
    SessionCollisionError,
    StoreWriteError,
    write_error,
)
from persistence.files import read_all, write_all
from persistence.jsonl.integrity import Checksum, encode_checksum, extend_crc
from persistence.jsonl.position import LogPosition

if TYPE_CHECKING:
    from persistence.files import Files
    from persistence.jsonl.layout import SessionPaths
    from persistence.jsonl.position import ReadPosition

# Whoever has the log's own lock writes one batch; the disk may be slow.
_LOCK_TRIES = 200
_LOCK_POLL_S = 0.05

_logger = logging.getLogger(__name__)


class LogFile:
    """One log of which this process is the only writer.

    Invariant: the file is `_end` bytes of complete records with CRC `_crc`; only when
    `_rollback_due` may bytes of a failed append stand behind them.
    """

    def __init__(self, files: Files, session_id: str, paths: SessionPaths) -> None:
        self._files = files
        self._session_id = session_id
        self.paths = paths
        self._identity: tuple[int, int] | None = None
        self._end = 0
        self._seq = 0
        self._crc = 0
        self._sidecar_size = 0
        self._rollback_due = False
        # What a failed publication may have left under the log's name: its identity and checksum.
        self._unconfirmed: tuple[tuple[int, int], int] | None = None

    @property
    def published(self) -> bool:
        """Whether the log exists under its name."""
        return self._identity is not None

    @property
    def freshness(self) -> tuple[int, int]:
        """Inode and size, the mark by which a cache knows that the log is unchanged.

        Rule: summary-is-only-a-cache.
        """
        return (0 if self._identity is None else self._identity[1]), self._end

    @property
    def position(self) -> LogPosition | None:
        """Where the log was left; None when nothing is known of it, or a rollback is due."""
        if self._identity is None or self._rollback_due:
            return None
        return LogPosition(*self._identity, self._end, self._seq, self._crc, self._sidecar_size)

    def continue_at(self, mark: ReadPosition) -> None:
        """Continue a log that was just read."""
        self._identity = (mark.device, mark.inode)
        self._end = mark.size
        self._seq = mark.seq
        self._crc = mark.crc
        self._sidecar_size = mark.sidecar_size

    def continue_from(self, position: LogPosition) -> None:
        """Continue a log that stands as a writer has left it: same file, size and last checksum.

        Raises:
            SessionChangedError: It does not, or has no checksum that could tell.
            StoreWriteError: It cannot be looked at.
        """
        device, inode, self._end, self._seq, self._crc, self._sidecar_size = position
        self._identity = (device, inode)
        self._close(self._open_checked())
        try:
            last = self._read_last_checksum()
        except OSError as error:
            raise write_error(self._session_id, error) from error
        if last != encode_checksum(Checksum(self._end, self._seq, self._crc)):
            raise SessionChangedError(self._session_id, "it has another checksum")

    def publish(self, data: bytes, seq: int) -> None:
        """Create the log with its first bytes, atomically and without overwriting.

        Raises:
            SessionCollisionError: A log is there already; it was not touched.
            StoreWriteError: Nothing was created, or what was is taken away by the next attempt.
        """
        files, paths = self._files, self.paths
        try:
            self._drop_leftovers()
            handle = files.open(paths.temp, "create")
            try:
                write_all(files, handle, data, 0)
                files.sync(handle)
                status = files.handle_stat(handle)
            finally:
                self._close(handle)
            self._unconfirmed = (status.device, status.inode), extend_crc(0, data)
            files.link(paths.temp, paths.log)
            self._create_sidecar()
        except FileExistsError as error:
            self._drop_temp()
            raise SessionCollisionError(self._session_id, "a log is stored already") from error
        except OSError as error:
            self._drop_temp()
            raise write_error(self._session_id, error) from error
        try:
            # Upwards too: whoever made the directories may have died before they were durable.
            for directory in (paths.directory, paths.bucket, paths.root):
                files.sync_dir(directory)
        except OSError as error:
            # The name may not survive a power cut, so the session must not count as stored.
            with contextlib.suppress(OSError):
                files.unlink(paths.log)
                self._unconfirmed = None
            self._drop_temp()
            raise write_error(self._session_id, error) from error
        self._unconfirmed = None
        self._drop_temp()
        self._identity = (status.device, status.inode)
        self._end = len(data)
        self._seq = seq
        self._crc = extend_crc(0, data)
        self._sidecar_size = 0
        self._write_checksum()

    def append(self, data: bytes, seq: int) -> None:
        """Append complete records durably, or change nothing.

        Raises:
            SessionChangedError: The log is not as it was left, and nothing was written; or somebody
                who takes no lock has replaced, removed or written it meanwhile.
            StoreWriteError: The append was rolled back, or has to be before the next one.
        """
        handle = self._open_checked()
        try:
            try:
                write_all(self._files, handle, data, self._end)
                self._files.sync(handle)
                self._check_written(handle, self._end + len(data))
            except OSError as error:
                raise self._rolled_back(handle, error) from error
            self._end += len(data)
            self._seq = seq
            self._crc = extend_crc(self._crc, data)
            self._write_checksum()
        finally:
            self._close(handle)

    def cut(self, end: int) -> None:
        """Cut the log to `end` bytes, durably.

        Raises:
            SessionChangedError: The log is not as it was left.
            StoreWriteError: The file could not be cut.
        """
        handle = self._open_checked()
        try:
            self._files.truncate(handle, end)
            self._files.sync(handle)
        except OSError as error:
            raise write_error(self._session_id, error) from error
        finally:
            self._close(handle)
        self._end = end

    def _open_checked(self) -> int:
        """Open the log, having seen that it is as this process left it."""
        try:
            handle = self._files.open(self.paths.log, "write")
        except FileNotFoundError as error:
            raise SessionChangedError(self._session_id, "its file is gone") from error
        except OSError as error:
            raise write_error(self._session_id, error) from error
        try:
            self._lock(handle)
            self._check(handle)
            if self._rollback_due:
                self._roll_back(handle)
        except OSError as error:
            self._close(handle)
            raise write_error(self._session_id, error) from error
        except BaseException:
            self._close(handle)
            raise
        return handle

    def _close(self, handle: int) -> None:
        # What had to be durable was synced; a failing close has nothing to add.
        with contextlib.suppress(OSError):
            self._files.close(handle)

    def _check(self, handle: int) -> None:
        status = self._files.handle_stat(handle)
        if (status.device, status.inode) != self._identity:
            raise SessionChangedError(self._session_id, "it is another file")
        grown = status.size > self._end and self._rollback_due
        if status.size != self._end and not grown:
            raise SessionChangedError(
                self._session_id, f"it has {status.size} bytes where {self._end} were left"
            )

    def _lock(self, handle: int) -> None:
        for _ in range(_LOCK_TRIES):
            if self._files.lock(handle):
                return
            time.sleep(_LOCK_POLL_S)
        raise BlockingIOError(errno.EAGAIN, "another process keeps the log locked")

    def _check_written(self, handle: int, end: int) -> None:
        """See that what was written stands at the end of the file that others will read."""
        try:
            named = self._files.stat(self.paths.log)
        except FileNotFoundError as error:
            raise SessionChangedError(self._session_id, "its file is gone") from error
        if (named.device, named.inode) != self._identity:
            raise SessionChangedError(self._session_id, "it is another file")
        if self._files.handle_stat(handle).size != end:
            raise SessionChangedError(self._session_id, "somebody else has written to it")

    def _roll_back(self, handle: int) -> None:
        # Until this succeeds nothing may be appended: the next record would fuse with the half one.
        self._rollback_due = True
        self._files.truncate(handle, self._end)
        self._files.sync(handle)
        self._rollback_due = False

    def _rolled_back(self, handle: int, failure: OSError) -> StoreWriteError:
        error = write_error(self._session_id, failure)
        try:
            self._roll_back(handle)
        except OSError as second:
            detail = f"{error.detail}; cutting the log back failed too: {second.strerror}"
            return StoreWriteError(self._session_id, error.reason, detail)
        return error

    def _read_last_checksum(self) -> bytes:
        """Return the line that ends the checksum file; empty if it is not as it was left."""
        line = encode_checksum(Checksum(self._end, self._seq, self._crc))
        try:
            handle = self._files.open(self.paths.sidecar, "read")
        except FileNotFoundError:
            return b""
        try:
            start = self._sidecar_size - len(line)
            if start < 0 or self._files.handle_stat(handle).size != self._sidecar_size:
                return b""
            return self._files.read(handle, len(line), start)
        finally:
            self._close(handle)

    def _write_checksum(self) -> None:
        """Write the checksum line of what was just made durable.

        The log is durable already, so a failure here is no failure of the flush: the checksums are
        cumulative, and the next line covers what this one would have.
        """
        line = encode_checksum(Checksum(self._end, self._seq, self._crc))
        try:
            handle = self._files.open(self.paths.sidecar, "update")
            try:
                if self._files.handle_stat(handle).size != self._sidecar_size:
                    self._files.truncate(handle, self._sidecar_size)
                write_all(self._files, handle, line, self._sidecar_size)
            finally:
                self._close(handle)
        except OSError as error:
            _logger.warning("no checksum for session %r: %s", self._session_id, error)
            return
        self._sidecar_size += len(line)

    def _drop_leftovers(self) -> None:
        if self._exists(self.paths.log):
            if not self._is_unconfirmed():
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self.paths.log)
            self._files.unlink(self.paths.log)
        # A crash may have left a half-made log; a half-done delete, the checksums of a former one.
        with contextlib.suppress(FileNotFoundError):
            self._files.unlink(self.paths.temp)
        with contextlib.suppress(FileNotFoundError):
            self._files.unlink(self.paths.sidecar)
            # Durably: after a power cut they must not vouch for the log that takes this place.
            self._files.sync_dir(self.paths.directory)

    def _is_unconfirmed(self) -> bool:
        """Tell whether the log that stands there is what our own failed publication left."""
        if self._unconfirmed is None:
            return False
        status = self._files.stat(self.paths.log)
        crc = extend_crc(0, read_all(self._files, self.paths.log))
        return ((status.device, status.inode), crc) == self._unconfirmed

    def _create_sidecar(self) -> None:
        """Create the checksum file with the log, so that one sync makes both names durable."""
        with contextlib.suppress(OSError):
            self._close(self._files.open(self.paths.sidecar, "update"))

    def _exists(self, path: str) -> bool:
        try:
            self._files.stat(path)
        except FileNotFoundError:
            return False
        return True

    def _drop_temp(self) -> None:
        try:
            self._files.unlink(self.paths.temp)
        except FileNotFoundError:
            pass
        except OSError as error:
            _logger.warning("%s was left behind: %s", self.paths.temp, error)

"""A file layer that fails on demand, over any other one."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from persistence.files import OsFiles

if TYPE_CHECKING:
    from persistence.files import Files, FileStat, OpenMode


@dataclass(slots=True)
class Fault:
    """A failure to come: of which operation, with which error, after how many that succeed.

    Attributes:
        partial: Bytes of a failing write that reach the file all the same.
        times: How often it fails.
    """

    operation: str
    code: int
    after: int = 0
    times: int = 1
    partial: int = 0


class FaultyFiles:
    """See `Files`. Counts the operations, and fails those that a `Fault` was planned for.

    Attributes:
        calls: The names of all operations so far.
        opened: The handles that are open.
        short_writes: Let every write take this many bytes at most.
    """

    def __init__(self, inner: Files | None = None) -> None:
        self._inner: Files = OsFiles() if inner is None else inner
        self._faults: list[Fault] = []
        self.calls: list[str] = []
        self.opened: set[int] = set()
        self.short_writes: int | None = None

    def plan(
        self, operation: str, code: int = errno.EIO, *, after: int = 0, times: int = 1
    ) -> None:
        """Let an operation fail `times` times, once `after` of them have succeeded."""
        self._faults.append(Fault(operation, code, after, times))

    def plan_torn_write(self, partial: int, code: int = errno.ENOSPC) -> None:
        """Let the next write fail with `partial` bytes of it in the file."""
        self._faults.append(Fault("write", code, partial=partial))

    def open(self, path: str, mode: OpenMode) -> int:
        """See `Files.open`."""
        self._enter("open")
        handle = self._inner.open(path, mode)
        self.opened.add(handle)
        return handle

    def close(self, handle: int) -> None:
        """See `Files.close`."""
        self.opened.discard(handle)
        self._inner.close(handle)

    def read(self, handle: int, size: int, offset: int) -> bytes:
        """See `Files.read`."""
        self._enter("read")
        return self._inner.read(handle, size, offset)

    def write(self, handle: int, data: bytes | memoryview, offset: int) -> int:
        """See `Files.write`."""
        fault = self._due("write")
        if fault is not None:
            self._inner.write(handle, memoryview(data)[: fault.partial], offset)
            raise OSError(fault.code, os.strerror(fault.code))
        return self._inner.write(handle, memoryview(data)[: self.short_writes], offset)

    def append(self, handle: int, data: bytes) -> int:
        """See `Files.append`."""
        self._enter("append")
        return self._inner.append(handle, data)

    def lock(self, handle: int) -> bool:
        """See `Files.lock`."""
        self._enter("lock")
        return self._inner.lock(handle)

    def sync(self, handle: int) -> None:
        """See `Files.sync`."""
        self._enter("sync")
        self._inner.sync(handle)

    def truncate(self, handle: int, size: int) -> None:
        """See `Files.truncate`."""
        self._enter("truncate")
        self._inner.truncate(handle, size)

    def stat(self, path: str) -> FileStat:
        """See `Files.stat`."""
        self._enter("stat")
        return self._inner.stat(path)

    def handle_stat(self, handle: int) -> FileStat:
        """See `Files.handle_stat`."""
        return self._inner.handle_stat(handle)

    def link(self, source: str, target: str) -> None:
        """See `Files.link`."""
        self._enter("link")
        self._inner.link(source, target)

    def rename(self, source: str, target: str) -> None:
        """See `Files.rename`."""
        self._enter("rename")
        self._inner.rename(source, target)

    def unlink(self, path: str) -> None:
        """See `Files.unlink`."""
        self._enter("unlink")
        self._inner.unlink(path)

    def mkdir(self, path: str) -> None:
        """See `Files.mkdir`."""
        self._enter("mkdir")
        self._inner.mkdir(path)

    def rmdir(self, path: str) -> None:
        """See `Files.rmdir`."""
        self._enter("rmdir")
        self._inner.rmdir(path)

    def sync_dir(self, path: str) -> None:
        """See `Files.sync_dir`."""
        self._enter("sync_dir")
        self._inner.sync_dir(path)

    def list_dir(self, path: str) -> list[str]:
        """See `Files.list_dir`."""
        self._enter("list_dir")
        return self._inner.list_dir(path)

    def _enter(self, operation: str) -> None:
        fault = self._due(operation)
        if fault is not None:
            raise OSError(fault.code, os.strerror(fault.code))

    def _due(self, operation: str) -> Fault | None:
        self.calls.append(operation)
        for fault in self._faults:
            if fault.operation != operation or not fault.times:
                continue
            if fault.after:
                fault.after -= 1
                continue
            fault.times -= 1
            return fault
        return None

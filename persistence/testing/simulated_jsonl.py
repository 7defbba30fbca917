"""The JSONL backend without threads and kernel locks, for simulated disks."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar
from unittest.mock import patch

from persistence.jsonl import JsonlBackend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from persistence.files import Files

T = TypeVar("T")


class SimulatedJsonlBackend(JsonlBackend):
    """See `JsonlBackend`. Every call ends without waiting, within `no_kernel_locks`."""

    async def _run(self, work: Callable[[], T]) -> T:
        return work()


def open_simulated_jsonl(files: Files) -> SimulatedJsonlBackend:
    """Open a store on a file layer that is not the operating system's."""
    return SimulatedJsonlBackend("/store", files=files)


class _NoLock:
    """A lock that is always free."""

    former_pid = None

    def __init__(self, files: Files, path: str, pid_path: str | None = None) -> None:
        pass

    def try_acquire(self, wait_s: float = 0.0) -> bool:
        return True

    def release(self) -> None:
        pass

    def holder_pid(self) -> None:
        return None


@contextmanager
def no_kernel_locks() -> Iterator[None]:
    """Let the JSONL backend do without `flock`, which knows no simulated files."""
    with (
        patch("persistence.jsonl.backend.FileLock", _NoLock),
        patch("persistence.jsonl.index.FileLock", _NoLock),
    ):
        yield

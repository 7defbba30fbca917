"""The simulator is worth its time only if it finds what it is for: each bug is planted, and found.

Each is one that the JSONL backend, or one like it, could have.
"""

import zlib
from collections.abc import Callable, Iterator

import pytest

from persistence import StoreWriteError
from persistence.files import Files
from persistence.jsonl.append import LogFile
from persistence.testing.faulty_files import FaultyFiles
from persistence.testing.harness import turn_events
from persistence.testing.power_cuts import BrokenPromiseError, PowerCuts, SimulatedSession, Workload
from persistence.testing.simulated_disk import SimulatedDisk
from persistence.testing.simulated_jsonl import (
    no_kernel_locks,
    open_simulated_jsonl,
)

FIRST, SECOND = (turn_events(turn, 3 * turn - 3) for turn in (1, 2))


@pytest.fixture(autouse=True)
def _locks() -> Iterator[None]:
    with no_kernel_locks():
        yield


async def two_turns(session: SimulatedSession) -> None:
    await session.append(FIRST)
    await session.append(SECOND)


async def a_full_disk(session: SimulatedSession) -> None:
    await session.append(FIRST)
    session.disk.free = 100
    with pytest.raises(StoreWriteError):
        await session.append(SECOND)
    session.disk.free = None
    await session.append(SECOND)


class NoSync(FaultyFiles):
    """Files are never synced."""

    def sync(self, handle: int) -> None:
        pass


class NoDirectorySync(FaultyFiles):
    """Names are never synced."""

    def sync_dir(self, path: str) -> None:
        pass


class NoBucketSync(FaultyFiles):
    """Names of files are synced, those of directories are not."""

    def sync_dir(self, path: str) -> None:
        if path.endswith("/s"):
            super().sync_dir(path)


class RenameForLink(FaultyFiles):
    """A log is published by its name alone, its bytes synced with the next batch."""

    def sync(self, handle: int) -> None:
        if self.calls.count("link"):
            super().sync(handle)


class NoTruncate(FaultyFiles):
    """Files are never cut."""

    def truncate(self, handle: int, size: int) -> None:
        pass


def violation(
    workload: Workload = two_turns, wrap: Callable[[SimulatedDisk], Files] | None = None
) -> str:
    """Return what the simulator finds wrong, `wrap` being a bug that only the workload meets."""
    with pytest.raises(BrokenPromiseError) as raised:
        PowerCuts(open_simulated_jsonl).run(workload, wrap=wrap)
    return raised.value.reason


@pytest.mark.parametrize("wrapped", [NoDirectorySync, NoBucketSync])
async def test_a_name_that_is_not_synced_is_missed(wrapped: type[FaultyFiles]) -> None:
    assert violation(wrap=wrapped) == "the session is gone"


@pytest.mark.parametrize("wrapped", [NoSync, RenameForLink])
async def test_bytes_that_are_not_synced_are_missed(wrapped: type[FaultyFiles]) -> None:
    assert "there is no header line" in violation(wrap=wrapped)


async def test_a_batch_that_is_not_synced_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    append = LogFile.append

    def unsynced(self: LogFile, data: bytes, seq: int) -> None:
        files = self._files
        self._files = NoSync(files)
        try:
            append(self, data, seq)
        finally:
            self._files = files

    monkeypatch.setattr(LogFile, "append", unsynced)
    assert violation() == "what was appended after the recovery is not what is there"


async def test_a_checksum_ahead_of_its_bytes_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checksum must not be written before the log is synced."""

    def append(self: LogFile, data: bytes, seq: int) -> None:
        handle = self._open_checked()
        self._files.write(handle, data, self._end)
        self._end += len(data)
        self._crc = zlib.crc32(data, self._crc)
        self._seq = seq
        self._write_checksum()
        self._files.sync(handle)
        self._files.close(handle)

    monkeypatch.setattr(LogFile, "append", append)
    assert "CorruptLogError" in violation()


async def test_a_torn_end_that_is_not_cut_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The repair leaves the half record, and the next one fuses with it."""
    monkeypatch.setattr(LogFile, "cut", lambda self, end: None)
    assert "CorruptLogError" in violation()


async def test_a_cut_that_is_not_done_is_missed() -> None:
    assert "SessionChangedError" in violation(a_full_disk, NoTruncate)


async def test_what_a_full_disk_cut_short_and_nobody_cut_back_is_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next batch is written behind the half one."""

    def roll_back(self: LogFile, handle: int) -> None:
        self._end = self._files.handle_stat(handle).size

    monkeypatch.setattr(LogFile, "_roll_back", roll_back)
    assert violation(a_full_disk)


async def test_a_delete_that_is_not_synced_is_missed() -> None:
    async def workload(session: SimulatedSession) -> None:
        await session.append(FIRST)
        await session.delete()

    class NoDeleteSync(FaultyFiles):
        deleted = False

        def unlink(self, path: str) -> None:
            super().unlink(path)
            self.deleted |= path.endswith("session.jsonl")

        def sync_dir(self, path: str) -> None:
            if not self.deleted:
                super().sync_dir(path)

    assert violation(workload, NoDeleteSync)

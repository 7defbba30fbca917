"""The writer lock by itself."""

import os
import stat
from pathlib import Path

import pytest

from persistence.files import OsFiles
from persistence.lock import FileLock
from persistence.testing.faulty_files import FaultyFiles


def lock(directory: Path, files: OsFiles | FaultyFiles | None = None) -> FileLock:
    return FileLock(files or OsFiles(), str(directory / "lock"), str(directory / "pid"))


def test_a_lock_is_held_once_and_by_whom(tmp_path: Path) -> None:
    one, other = lock(tmp_path), lock(tmp_path)
    assert one.try_acquire()
    assert not other.try_acquire()
    assert other.holder_pid() == os.getpid()
    assert stat.S_IMODE((tmp_path / "lock").stat().st_mode) == 0o600
    one.release()
    one.release()
    assert other.holder_pid() == os.getpid()
    assert other.try_acquire()
    assert other.former_pid is None
    assert (tmp_path / "lock").exists()
    other.release()


@pytest.mark.parametrize("text", ["", "x", "12x", "9" * 40])
def test_a_pid_that_cannot_be_read_is_unknown(tmp_path: Path, text: str) -> None:
    (tmp_path / "pid").write_text(text)
    assert lock(tmp_path).holder_pid() is None or text == "9" * 40


def test_a_longer_pid_left_behind_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "pid").write_text("1" * 15)
    held = lock(tmp_path)
    assert held.try_acquire()
    assert held.former_pid == int("1" * 15)
    assert (tmp_path / "pid").read_text() == str(os.getpid())
    held.release()


def test_a_disk_that_takes_no_pid_is_no_reason_to_refuse(tmp_path: Path) -> None:
    files = FaultyFiles()
    files.plan("write")
    held = lock(tmp_path, files)
    assert held.try_acquire()
    held.release()


class Removing(OsFiles):
    """Removes the lock file right after it was locked, a number of times, as a delete would."""

    def __init__(self, path: Path, times: int) -> None:
        self._path = path
        self._times = times

    def stat(self, path: str) -> object:  # type: ignore[override]
        if self._times:
            self._times -= 1
            self._path.unlink()
        return super().stat(path)


@pytest.mark.rule("lock-is-held-by-kernel")
def test_a_lock_on_a_removed_file_is_taken_again(tmp_path: Path) -> None:
    held = lock(tmp_path, Removing(tmp_path / "lock", 2))
    assert held.try_acquire()
    assert not lock(tmp_path).try_acquire()
    held.release()
    with pytest.raises(FileNotFoundError):
        lock(tmp_path, Removing(tmp_path / "lock", 99)).try_acquire()

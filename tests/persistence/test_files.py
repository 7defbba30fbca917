"""The file layer and what is built of its calls."""

import errno
import os
from pathlib import Path

import pytest

from persistence.files import OsFiles, make_dirs, read_all, write_all
from persistence.testing.faulty_files import FaultyFiles


def test_a_status_says_what_it_is_of(tmp_path: Path) -> None:
    files = OsFiles()
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    status, real = files.stat(str(path)), path.stat()
    assert status == ("file", real.st_dev, real.st_ino, 5, real.st_mtime_ns, real.st_ctime_ns)
    handle = files.open(str(path), "read")
    assert files.handle_stat(handle) == status
    files.close(handle)
    assert files.stat(str(tmp_path)).kind == "directory"
    assert files.stat("/dev/null").kind == "other"


def test_each_mode_opens_what_it_promises(tmp_path: Path) -> None:
    files, path = OsFiles(), str(tmp_path / "file")
    for mode in ("read", "write"):
        with pytest.raises(FileNotFoundError):
            files.open(path, mode)
    files.close(files.open(path, "create"))
    with pytest.raises(FileExistsError):
        files.open(path, "create")
    handle = files.open(path, "update")
    write_all(files, handle, b"0123456789", 0)
    write_all(files, handle, b"ab", 4)
    files.truncate(handle, 8)
    files.close(handle)
    handle = files.open(path, "append")
    files.append(handle, b"X")
    files.append(handle, b"Y")
    files.close(handle)
    assert read_all(files, path) == b"0123ab67XY"


def test_a_file_system_that_takes_nothing_is_an_error(tmp_path: Path) -> None:
    files = FaultyFiles()
    files.short_writes = 0
    handle = files.open(str(tmp_path / "file"), "create")
    with pytest.raises(OSError, match="no bytes"):
        write_all(files, handle, b"x", 0)
    files.close(handle)


def test_directories_are_made_and_each_is_durable_in_its_parent(tmp_path: Path) -> None:
    files = FaultyFiles()
    make_dirs(files, str(tmp_path / "a/b/c"))
    assert (tmp_path / "a/b/c").is_dir()
    assert [call for call in files.calls if call != "stat"] == ["mkdir", "sync_dir"] * 3
    files.calls.clear()
    make_dirs(files, str(tmp_path / "a/b/c"))
    assert files.calls == ["stat"]


def test_a_directory_that_is_not_durable_is_made_again(tmp_path: Path) -> None:
    files = FaultyFiles()
    files.plan("sync_dir", errno.EIO, after=1)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        make_dirs(files, str(tmp_path / "a/b"))
    files.calls.clear()
    make_dirs(files, str(tmp_path / "a/b"))
    assert files.calls.count("sync_dir") == 1


def test_a_file_in_the_way_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    for path in ("a", "a/b"):
        with pytest.raises(NotADirectoryError):
            make_dirs(OsFiles(), str(tmp_path / path))

"""Creating the database: complete before it has its name.

A process that is killed at any moment leaves no database or a whole one, and in both cases no
journal. SQLite alone cannot do that: creating a database in place leaves an empty file beside a
journal, which looks like a lost database beside its only copy.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from persistence.errors import StoreWriteError, write_error
from persistence.files import OsFiles, make_dirs
from persistence.sqlite import sql
from persistence.sqlite.connection import apply, apply_writer_settings, connect, use_wal
from persistence.sqlite.foreign import file_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_RETRY_S = 0.01


def create_database(path: str, new_token: Callable[[], str], give_up_at: float) -> None:
    """Create a database where none or an empty file stands; a new one is private.

    Raises:
        StoreWriteError: The operating system refused.
        sqlite3.Error: SQLite did.
    """
    # A link stays, and what it leads to is replaced.
    target = os.path.realpath(path)
    folder = str(Path(target).parent)
    files = OsFiles()
    try:
        make_dirs(files, folder)
        with _sole_creator(folder, give_up_at):
            # Another process may have come first.
            if file_at(target) is None:
                _publish(files, target, new_token, give_up_at)
        # Not only by who made it: that one may have been killed before.
        files.sync_dir(folder)
    except OSError as error:
        raise write_error(None, error) from error


def _publish(files: OsFiles, target: str, new_token: Callable[[], str], give_up_at: float) -> None:
    new = f"{target}-new"
    _remove(new)
    try:
        files.close(files.open(new, "create"))
        with contextlib.suppress(FileNotFoundError):
            Path(new).chmod(stat.S_IMODE(Path(target).stat().st_mode))
        _fill(new, new_token, give_up_at)
        files.rename(new, target)
    except BaseException:
        with contextlib.suppress(OSError):
            _remove(new)
        raise


def _fill(new: str, new_token: Callable[[], str], give_up_at: float) -> None:
    with closing(connect(new, give_up_at)) as connection:
        apply_writer_settings(connection)
        apply(connection, (sql.USE_MEMORY_JOURNAL, sql.BEGIN_IMMEDIATE, *sql.CREATE))
        connection.execute(sql.CREATE_STATE, (new_token(),))
        connection.execute(sql.COMMIT)
        use_wal(connection, give_up_at)


def _remove(new: str) -> None:
    """Remove what a killed process left of its creation."""
    for suffix in ("", "-wal", "-shm"):
        Path(f"{new}{suffix}").unlink(missing_ok=True)


@contextmanager
def _sole_creator(folder: str, give_up_at: float) -> Iterator[None]:
    """Let one process at a time create databases in a folder.

    The lock is on the folder itself: a lock file can be cleaned away, and to close the database
    file would drop SQLite's locks on it.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= give_up_at:
                    detail = "another process is creating a database in its folder"
                    raise StoreWriteError(None, "locked", detail) from None
            time.sleep(_RETRY_S)
        yield
    finally:
        os.close(handle)

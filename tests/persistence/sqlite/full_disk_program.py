"""A process whose files may not grow: `full_disk_program.py DATABASE`.

Stores `s` and `t`, then lets no file grow beyond the size that the largest has, appends until the
store is full, and deletes `s`. Prints `deleted`, or what was raised.
"""

import resource
import signal
import sys
from pathlib import Path

import anyio

from persistence import PersistenceError, SessionRepository
from persistence.sqlite import SqliteBackend
from persistence.testing.harness import header, turn_events
from session_core import SessionStore


def stop_growth(path: str) -> None:
    """Let no file grow beyond the larger one of the database and its -wal."""
    largest = max(Path(name).stat().st_size for name in (path, f"{path}-wal"))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))


async def main(path: str) -> None:
    async with SessionRepository(SqliteBackend(path), SessionStore()) as persistence:
        for session_id in ("s", "t"):
            await persistence.create(header(session_id))
            await persistence.append(session_id, turn_events(1, 0))
        for turn in range(2, 60):
            await persistence.append("s", turn_events(turn, 3 * turn - 3, text="x" * 9000))
        stop_growth(path)
        try:
            for turn in range(2, 1000):
                await persistence.append("t", turn_events(turn, 3 * turn - 3, text="y" * 9000))
        except PersistenceError:
            pass
        else:
            print("it never was full", flush=True)  # noqa: T201 - its only way to speak
        try:
            await persistence.delete("s")
        except PersistenceError as error:
            print(error, flush=True)  # noqa: T201 - as above
        else:
            print("deleted", flush=True)  # noqa: T201 - as above


anyio.run(main, sys.argv[1])

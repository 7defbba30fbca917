"""A process that stops between its look at a log and its write: `paused_writer_program.py ROOT`.

Loads `s`, appends a second turn and prints `checked` before the first byte of it. Goes on at the
next line of its input, and prints `stored` or the name of the error.
"""

import sys

import anyio

from persistence import PersistenceError, SessionRepository
from persistence.files import OsFiles
from persistence.jsonl import JsonlBackend
from persistence.testing.harness import turn_events
from session_core import SessionStore


class PausingFiles(OsFiles):
    """Stops before the first write of a log."""

    is_due = False

    def write(self, handle: int, data: bytes | memoryview, offset: int) -> int:
        if self.is_due:
            self.is_due = False
            print("checked", flush=True)  # noqa: T201 - its only way to speak
            sys.stdin.readline()
        return super().write(handle, data, offset)


async def main(root: str) -> None:
    files = PausingFiles()
    async with SessionRepository(JsonlBackend(root, files=files), SessionStore()) as persistence:
        await persistence.load("s")
        files.is_due = True
        try:
            await persistence.append("s", turn_events(2, 3, text="the other's"))
        except PersistenceError as error:
            print(type(error).__name__, flush=True)  # noqa: T201 - as above
        else:
            print("stored", flush=True)  # noqa: T201 - as above


anyio.run(main, sys.argv[1])

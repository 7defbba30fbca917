"""A process that kills itself in the middle of a write: `writer_program.py ROOT BYTES`.

Appends turn after turn and prints the number of each once it is acknowledged. When BYTES bytes have
been written the write under way ends short and the process is gone.
"""

import os
import signal
import sys

import anyio

from persistence import SessionRepository
from persistence.files import OsFiles
from persistence.jsonl import JsonlBackend
from persistence.testing.harness import header, turn_events
from session_core import SessionStore


class KillingFiles(OsFiles):
    """Kills the process once so many bytes are written."""

    def __init__(self, budget: int) -> None:
        self._budget = budget

    def write(self, handle: int, data: bytes | memoryview, offset: int) -> int:
        if len(data) > self._budget:
            super().write(handle, memoryview(data)[: self._budget], offset)
            os.kill(os.getpid(), signal.SIGKILL)
        self._budget -= len(data)
        return super().write(handle, data, offset)


async def main(root: str, budget: str) -> None:
    backend = JsonlBackend(root, files=KillingFiles(int(budget)))
    async with SessionRepository(backend, SessionStore()) as persistence:
        await persistence.create(header("s"))
        for turn in range(1, 100):
            await persistence.append("s", turn_events(turn, 3 * turn - 3))
            print(turn, flush=True)  # noqa: T201 - its only way to speak


anyio.run(main, sys.argv[1], sys.argv[2])

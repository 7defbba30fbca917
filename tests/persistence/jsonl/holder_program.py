"""A process that opens a session and keeps it: `holder_program.py ROOT load|create`.

Prints one line: `ready`, or the name of the error. Ends when its input ends.
"""

import sys

import anyio

from persistence import PersistenceError, SessionRepository
from persistence.jsonl import JsonlBackend
from persistence.testing.harness import header, turn_events
from session_core import SessionStore


async def main(root: str, how: str) -> None:
    async with SessionRepository(JsonlBackend(root), SessionStore()) as persistence:
        try:
            if how == "load":
                await persistence.load("s")
            else:
                await persistence.create(header("s"))
                await persistence.append("s", turn_events(1, 0))
        except PersistenceError as error:
            print(type(error).__name__, flush=True)  # noqa: T201 - its only way to speak
        else:
            print("ready", flush=True)  # noqa: T201 - as above
        sys.stdin.read()


anyio.run(main, sys.argv[1], sys.argv[2])

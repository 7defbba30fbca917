"""A process that writes turns into one session: `racer_program.py SPEC NAME ROUNDS`.

Each round loads the session (or creates it), appends a turn, prints `NAME-ROUND` once the turn is
acknowledged, and lets the session go. A round that another process is ahead of is tried again.
With ROUNDS 0 it loads once, prints `ready`, appends a turn for each line of its input, and answers
each with `done` or the name of the error.
"""

import sys
from contextlib import suppress

import anyio
import anyio.to_thread

from persistence import (
    PersistenceError,
    SessionCollisionError,
    SessionLockedError,
    SessionNotFoundError,
    SessionRepository,
    open_backend,
)
from persistence.testing.harness import header, turn_events
from session_core import EventLog, SessionStore, last_turn_number


def say(word: str) -> None:
    print(word, flush=True)  # noqa: T201 - its only way to speak


async def append(persistence: SessionRepository, log: EventLog, text: str) -> None:
    turn = (last_turn_number(log) or 0) + 1
    await persistence.append("s", turn_events(turn, len(log), text=text))


async def race(persistence: SessionRepository, name: str) -> None:
    """Add one turn."""
    try:
        loaded = await persistence.load("s")
        await append(persistence, loaded.log, name)
    except SessionNotFoundError:
        await persistence.create(header("s"))
        await persistence.append("s", turn_events(1, 0, text=name))
    await persistence.release("s")


async def main(spec: str, name: str, rounds: int) -> None:
    async with SessionRepository(open_backend(spec), SessionStore()) as persistence:
        if not rounds:
            await obey(persistence, name)
        for number in range(rounds):
            done = False
            while not done:
                with suppress(SessionLockedError, SessionCollisionError):
                    await race(persistence, f"{name}-{number}")
                    done = True
                if not done:
                    with suppress(PersistenceError):
                        await persistence.release("s")
            say(f"{name}-{number}")


async def obey(persistence: SessionRepository, name: str) -> None:
    try:
        await persistence.load("s")
    except PersistenceError as error:
        say(type(error).__name__)
        return
    say("ready")
    while await anyio.to_thread.run_sync(sys.stdin.readline):
        try:
            await append(persistence, (await persistence.inspect("s")).log, name)
        except PersistenceError as error:
            say(type(error).__name__)
        else:
            say("done")


anyio.run(main, sys.argv[1], sys.argv[2], int(sys.argv[3]))

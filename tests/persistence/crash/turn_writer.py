"""A process that writes turns until it is killed: `turn_writer.py SPEC SESSION`.

Makes the session, or loads and so repairs it, says `ready`, and appends turn after turn of many
events, each with three checkpoints. It prints the number of a turn once its end is acknowledged.
"""

import contextlib
import sys

import anyio

from persistence import SessionNotFoundError, SessionRepository, open_backend
from persistence.testing.harness import write_turn
from session_core import SessionStore

DELTAS = 40


async def main(spec: str, session_id: str) -> None:
    store = SessionStore()
    async with SessionRepository(open_backend(spec), store) as persistence:
        seed, header = None, None
        with contextlib.suppress(SessionNotFoundError):
            loaded = await persistence.load(session_id)
            seed, header = loaded.log, loaded.header
        if seed is None:
            session = store.create(session_id, cwd="/work")
        else:
            session = store.create(session_id, seed=seed, header=header)
        turn = sum(event.type == "turn/start" for event in session.events)
        print("ready", flush=True)  # noqa: T201 - its only way to speak
        while True:
            turn += 1
            write_turn(session, f"turn {turn}", deltas=DELTAS)
            await persistence.flush(session)
            print(turn, flush=True)  # noqa: T201 - as above


anyio.run(main, sys.argv[1], sys.argv[2])

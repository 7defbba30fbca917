"""A process that wants the session `s` like others do: `contender.py SPEC NAME`.

Loads it when nobody else has it, appends a few turns, gives it back, and again. It prints one line
for each: `owns TIME`, `ack TEXT SEQ` once a turn is acknowledged, `frees TIME`, `locked`, or
`error ...`, after which it ends.
"""

import sys
from itertools import count
from time import monotonic_ns

import anyio

from persistence import PersistenceError, SessionLockedError, SessionRepository, open_backend
from persistence.testing.harness import turn_events
from session_core import SessionStore

TURNS = 3


def say(*words: object) -> None:
    print(*words, flush=True)  # noqa: T201 - its only way to speak


async def main(spec: str, name: str) -> None:
    number = count()
    async with SessionRepository(open_backend(spec), SessionStore()) as persistence:
        while True:
            try:
                await own_once(persistence, name, number)
            except SessionLockedError:
                say("locked")
            except PersistenceError as error:
                say("error", repr(error))
                return


async def own_once(persistence: SessionRepository, name: str, number: "count[int]") -> None:
    log = (await persistence.load("s")).log
    say("owns", monotonic_ns())
    seq = len(log)
    turn = sum(event.type == "turn/start" for event in log)
    for ahead in range(1, TURNS + 1):
        text = f"{name}-{next(number)}"
        await persistence.append("s", turn_events(turn + ahead, seq, text=text))
        say("ack", text, seq)
        seq += 3
    say("frees", monotonic_ns())
    await persistence.release("s")


anyio.run(main, sys.argv[1], sys.argv[2])

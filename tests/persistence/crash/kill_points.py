"""Stops a process at each of its I/O calls in turn: `kill_points.py CYCLE STRIDE OFFSET ROOT`.

A life cycle of an SQLite store runs in a child process that is stopped at its n-th call, for every
n = OFFSET, OFFSET + STRIDE, ... and in every mode. Then another process opens what it left, as any
server would.
Prints the number of calls, that of stops, and, as one JSON line each, what was found wrong.

A process of its own: it forks, which a process with threads must not.
"""

import errno
import json
import os
import shutil
import signal
import sqlite3
import sys
import traceback
from collections.abc import Awaitable, Callable
from itertools import product
from pathlib import Path
from typing import Any

import anyio
import anyio._backends._asyncio
import filelock

import persistence.sqlite
from persistence import PersistenceError, SessionRepository, open_backend
from persistence.testing.harness import header, turn_events
from persistence.testing.sqlite_calls import can_watch, watch
from persistence.transfer import verify
from session_core import Event, SessionStore

# Here, so that not each child has to.
_IMPORTED = (anyio._backends._asyncio, filelock, persistence.sqlite)

SMALL, LARGE, HUGE = 10, 100_000, 4_500_000
"""Lengths of a prompt."""


def turn(number: int, size: int) -> list[Event]:
    return turn_events(number, 3 * number - 3, text=f"{number} " + "x" * size)


class Talk:
    """What a life cycle does; says what was asked for and what was acknowledged."""

    def __init__(self, path: Path, output: int) -> None:
        self.persistence = SessionRepository(open_backend(f"sqlite:{path}"), SessionStore())
        self._output = output

    def say(self, *words: object) -> None:
        os.write(self._output, f"{json.dumps(words)}\n".encode())

    async def append(self, session_id: str, number: int, size: int = SMALL) -> None:
        events = turn(number, size)
        self.say("asked", session_id, number, size)
        await self.persistence.append(session_id, events)
        self.say("done", session_id, number, size)

    async def create(self, session_id: str, *sizes: int) -> None:
        await self.persistence.create(header(session_id))
        for number, size in enumerate(sizes, 1):
            await self.append(session_id, number, size)

    async def delete(self, session_id: str) -> None:
        self.say("delete", session_id)
        await self.persistence.delete(session_id)
        self.say("deleted", session_id)


MODES = os.environ.get("ACP_STOP_MODES", "kill,torn,fail,full,pause").split(",")

Steps = Callable[[Talk], Awaitable[None]]


async def nothing(_talk: Talk) -> None:
    """There is no store yet."""


async def two_sessions(talk: Talk) -> None:
    await talk.create("a", SMALL, LARGE)
    await talk.create("b", LARGE)


async def create(talk: Talk) -> None:
    await talk.create("n", SMALL, SMALL)


async def append(talk: Talk) -> None:
    await talk.persistence.load("a")
    await talk.append("a", 3)
    await talk.append("a", 4, LARGE)
    await talk.create("n", SMALL)


async def checkpoint(talk: Talk) -> None:
    await talk.persistence.load("a")
    # More than the thousand pages at which SQLite moves the -wal by itself.
    await talk.append("a", 3, HUGE)
    await talk.append("a", 4)


async def delete(talk: Talk) -> None:
    await talk.persistence.load("a")
    await talk.append("a", 3)
    await talk.delete("b")
    await talk.append("a", 4)


def keep(_path: Path) -> None:
    pass


def make_empty_file(path: Path) -> None:
    path.touch()


def use_rollback_journal(path: Path) -> None:
    copy = path.with_name("copy")
    connection = sqlite3.connect(path)
    connection.execute(f"VACUUM INTO '{copy}'")
    connection.close()
    copy.replace(path)


CYCLES: dict[str, tuple[Steps, Callable[[Path], None], Steps]] = {
    "create": (nothing, keep, create),
    "create-in-empty-file": (nothing, make_empty_file, create),
    "append": (two_sessions, keep, append),
    "append-in-rollback-mode": (two_sessions, use_rollback_journal, append),
    "checkpoint": (two_sessions, keep, checkpoint),
    "delete": (two_sessions, keep, delete),
}
"""What is there before, what is done to it from outside, and what is then stopped."""


class Stopper:
    """Stops this process at its n-th call, in one of the modes."""

    def __init__(self, mode: str, at: int, calls: int, resume: int) -> None:
        self._mode, self._at = mode, at
        self._calls, self._resume = calls, resume
        self._count = -1

    def __call__(self, name: str, write: Callable[[float], None] | None) -> int:
        self._count += 1
        os.write(self._calls, f"{name}\n".encode())
        if self._mode == "full":
            grows = write or name in ("create", "open", "fallocate", "os.mkdir")
            return errno.ENOSPC if self._count >= self._at and grows else 0
        if self._count != self._at:
            return 0
        if self._mode == "fail":
            return errno.EIO
        if self._mode == "pause":
            # That the pipe ends tells that it waits.
            os.close(self._calls)
            os.read(self._resume, 1)
        if self._mode == "torn" and write:
            write(0.5)
        if self._mode in ("kill", "torn", "pause"):
            os.kill(os.getpid(), signal.SIGKILL)
        return 0


class Child:
    """A forked process, and what it says on two pipes."""

    def __init__(self, work: Callable[[int, int, int], None]) -> None:
        self.output, output = os.pipe()
        self.calls, calls = os.pipe()
        resume, self.resume = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            for handle in (self.output, self.calls, self.resume):
                os.close(handle)
            code = 0
            try:
                work(output, calls, resume)
            except BaseException:  # noqa: BLE001 - it must not run on as its parent
                os.write(output, json.dumps(["failed", traceback.format_exc()]).encode())
                code = 1
            os._exit(code)
        for handle in (output, calls, resume):
            os.close(handle)

    def finish(self) -> tuple[int, list[list[Any]], list[str]]:
        """Return how it ended, what it said, and the calls it made."""
        calls = _read_all(self.calls).decode().split("\n")[:-1]
        os.close(self.resume)
        said = [json.loads(line) for line in _read_all(self.output).splitlines()]
        return os.waitpid(self.pid, 0)[1], said, calls


def _read_all(handle: int) -> bytes:
    with os.fdopen(handle, "rb") as file:
        return file.read()


def talk_in_child(path: Path, steps: Steps, mode: str, at: int) -> Child:
    async def run(output: int) -> None:
        try:
            talk = Talk(path, output)
            async with talk.persistence:
                await steps(talk)
        except (PersistenceError, BaseExceptionGroup) as error:
            talk.say("error", str(error))

    def work(output: int, calls: int, resume: int) -> None:
        watch(str(path.parent), Stopper(mode, at, calls, resume))
        anyio.run(run, output)

    return Child(work)


class Expectation:
    """Which turns of which sessions may be and must be there, by what life cycles said."""

    def __init__(self) -> None:
        self.asked: dict[str, list[int]] = {}
        self.done: dict[str, int] = {}
        self.deleting: set[str] = set()
        self.deleted: set[str] = set()

    def take(self, said: list[list[Any]]) -> None:
        """Learn from the lines of a life cycle."""
        for kind, *rest in said:
            name = rest[0]
            if kind == "asked":
                self.asked.setdefault(name, []).append(rest[2])
            elif kind == "done":
                self.done[name] = rest[1]
            elif kind == "delete":
                self.deleting.add(name)
            elif kind == "deleted":
                self.deleted.add(name)

    async def check(self, path: Path) -> None:
        """Open what was left as a server would, go on with it, and open it again."""
        lengths: dict[str, int] = {}
        for again in (False, True):
            backend = open_backend(f"sqlite:{path}")
            async with SessionRepository(backend, SessionStore()) as persistence:
                entries = (await persistence.list()).entries
                found = {entry.header.id for entry in entries}
                for name, sizes in self.asked.items():
                    least, most = self.done.get(name, 0), len(sizes)
                    if name not in found:
                        assert least == 0 or name in self.deleting, f"{name} is lost"
                        continue
                    assert name not in self.deleted, f"{name} is back"
                    verification = await verify(backend, name)
                    assert not verification.problems, verification
                    log = list((await persistence.load(name)).log)
                    turns = lengths.get(name, len(log) // 3)
                    assert least <= turns <= most + again, f"{name} has {turns} of {least} turns"
                    wanted = [*sizes[: turns - again], *([SMALL] if again else [])]
                    wanted_log = [e for k, size in enumerate(wanted, 1) for e in turn(k, size)]
                    assert log == wanted_log, f"{name} is changed"
                    if not again:
                        lengths[name] = turns + 1
                        await persistence.append(name, turn(turns + 1, SMALL))
            # All that was found is acknowledged now.
            self.done = lengths


def look_beside(path: Path, child: Child) -> tuple[list[list[Any]], list[list[Any]], str]:
    """Open the store beside a process that waits in the middle of a call, then let that one die."""
    calls = _read_all(child.calls).decode().split()

    def look(*_: int) -> None:
        open_backend(f"sqlite:{path}")

    problems = Child(look).finish()[1]
    os.write(child.resume, b"x")
    child.calls = os.open(os.devnull, os.O_RDONLY)
    return child.finish()[1], problems, calls[-1]


def stop_at(at: int, mode: str, path: Path, steps: Steps, expected: list[list[Any]]) -> list[Any]:
    """Stop a life cycle at one call; return what is wrong with what it left."""
    child = talk_in_child(path, steps, mode, at)
    problems: list[list[Any]] = []
    if mode == "pause":
        said, problems, call = look_beside(path, child)
    else:
        status, said, calls = child.finish()
        call = calls[at]
        if os.WIFSIGNALED(status) != (mode in ("kill", "torn")):
            problems.append(["ended", status, said])
    expectation = Expectation()
    expectation.take([*expected, *said])

    def check(*_: int) -> None:
        anyio.run(expectation.check, path)

    problems += Child(check).finish()[1]
    return [[at, call, *problem] for problem in problems]


def main(cycle: str, stride: int, offset: int, root: Path) -> None:
    before, prepare, steps = CYCLES[cycle]
    template = root / "template"
    template.mkdir()
    expected: list[list[Any]] = []
    status, said, _ = talk_in_child(template / "store.db", before, "count", 0).finish()
    assert status == 0, said
    expected += said
    prepare(template / "store.db")
    work = root / "work"
    shutil.copytree(template, work)
    status, said, calls = talk_in_child(work / "store.db", steps, "count", 0).finish()
    assert status == 0, said
    assert not [line for line in said if line[0] == "error"], said
    points = range(offset, len(calls), stride)
    print(len(calls), len(points))  # noqa: T201 - its only way to speak
    for at, mode in product(points, MODES):
        shutil.rmtree(work)
        shutil.copytree(template, work)
        for problem in stop_at(at, mode, work / "store.db", steps, expected):
            print(json.dumps([mode, *problem]))  # noqa: T201 - as above


if can_watch():
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
else:
    print("cannot be watched")  # noqa: T201 - as above

"""Four real processes that want one session: stopped, continued, killed and replaced (B55).

`ACP_CONTEND_S` sets for how many seconds they do, `ACP_CONTEND_SEED` what befalls whom.
"""

import os
import random
import selectors
import signal
import subprocess
import sys
from itertools import count, pairwise
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import pytest

from persistence import SessionRepository, open_backend
from persistence.testing.harness import header, turn_events
from session_core import Event, SessionStore

SECONDS = float(os.environ.get("ACP_CONTEND_S", "2.5"))
SEED = int(os.environ.get("ACP_CONTEND_SEED", "0"))

PROGRAM = Path(__file__).with_name("contender.py")
CONTENDERS = 4
# Something befalls a contender after so many lines of all of them.
LINES_BETWEEN = 12
# All are quiet: whoever owns the session is stopped, and the others wait for it.
QUIET_S = 0.2


class Tenure(NamedTuple):
    """When a process surely had the session; nanoseconds of the common clock."""

    start: int
    end: int


class Contender:
    """One process, and what it has said."""

    def __init__(self, spec: str, name: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), spec, name], stdout=subprocess.PIPE
        )
        self.stopped = False
        self._said = b""

    @property
    def lines(self) -> list[list[str]]:
        """What it has said so far, complete lines as words."""
        return [line.decode().split() for line in self._said.split(b"\n")[:-1]]

    def listen(self) -> int:
        """Read what it has said since; return the number of lines."""
        assert self.process.stdout is not None
        said = os.read(self.process.stdout.fileno(), 1 << 16)
        self._said += said
        return said.count(b"\n")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        self.stopped = True

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.stopped = False

    def kill(self) -> None:
        """Kill it and read the rest of what it has said."""
        self.process.kill()
        self._said += self.process.communicate(timeout=30)[0]


class Arena:
    """The contenders that run, and those that are dead."""

    def __init__(self, spec: str) -> None:
        self._spec = spec
        self._names = count()
        self._selector = selectors.DefaultSelector()
        self._chosen = random.Random(SEED)
        self.running: list[Contender] = []
        self.dead: list[Contender] = []
        self.stops = 0

    def add(self) -> None:
        contender = Contender(self._spec, f"p{next(self._names)}")
        self.running.append(contender)
        assert contender.process.stdout is not None
        self._selector.register(contender.process.stdout, selectors.EVENT_READ, contender)

    def remove(self, contender: Contender) -> None:
        assert contender.process.stdout is not None
        self._selector.unregister(contender.process.stdout)
        contender.kill()
        self.running.remove(contender)
        self.dead.append(contender)

    def run_until(self, deadline: float) -> None:
        lines = 0
        while monotonic() < deadline:
            ready = self._selector.select(QUIET_S)
            for key, _ in ready:
                heard = key.data.listen()
                assert heard or key.data.process.poll() is None, key.data.lines[-1]
                lines += heard
            if not ready:
                self.wake_all()
            if lines >= LINES_BETWEEN:
                lines = 0
                self.strike()

    def strike(self) -> None:
        victim = self._chosen.choice(self.running)
        if victim.stopped:
            victim.go_on()
        elif self._chosen.random() < 0.5:
            victim.stop()
            self.stops += 1
        else:
            self.remove(victim)
            self.add()

    def wake_all(self) -> None:
        for contender in self.running:
            if contender.stopped:
                contender.go_on()

    def clear(self) -> None:
        for contender in list(self.running):
            self.remove(contender)


def tenures_of(contender: Contender) -> list[Tenure]:
    """Return when it had the session, a last one that it never gave back counted as it began."""
    tenures: list[Tenure] = []
    for word, *rest in contender.lines:
        if word == "owns":
            tenures.append(Tenure(int(rest[0]), int(rest[0])))
        elif word == "frees":
            tenures[-1] = Tenure(tenures[-1].start, int(rest[0]))
    return tenures


def check_log(log: list[Event], acknowledged: dict[str, int]) -> None:
    """See that every acknowledged turn is there once and where it was said to be."""
    assert [event.seq for event in log] == list(range(len(log)))
    starts = [event.data["turn"] for event in log if event.type == "turn/start"]
    assert starts == list(range(1, len(starts) + 1))
    found: dict[str, int] = {}
    for event in log:
        if event.type == "user/message":
            text = event.data["content"][0]["text"]
            assert text not in found
            found[text] = event.seq - 1
    assert acknowledged.items() <= found.items()


@pytest.mark.parametrize("backend", ["jsonl", "sqlite"])
async def test_of_many_processes_one_at_a_time_writes(backend: str, tmp_path: Path) -> None:
    spec = f"{backend}:{tmp_path}/store"
    async with SessionRepository(open_backend(spec), SessionStore()) as persistence:
        await persistence.create(header("s"))
        await persistence.append("s", turn_events(1, 0, text="first"))
    arena = Arena(spec)
    try:
        for _ in range(CONTENDERS):
            arena.add()
        arena.run_until(monotonic() + SECONDS)
    finally:
        arena.clear()
    lines = [line for contender in arena.dead for line in contender.lines]
    assert [line for line in lines if line[0] == "error"] == []
    acknowledged = {line[1]: int(line[2]) for line in lines if line[0] == "ack"}
    tenures = sorted(tenure for contender in arena.dead for tenure in tenures_of(contender))
    assert all(earlier.end <= later.start for earlier, later in pairwise(tenures))
    assert len(tenures) > 1
    assert acknowledged
    async with SessionRepository(open_backend(spec), SessionStore()) as persistence:
        check_log(list((await persistence.load("s")).log), acknowledged)

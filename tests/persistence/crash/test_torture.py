"""Real processes that are killed while they write, at points chosen by the bytes they have written.

`ACP_KILLS` sets how many are killed for each backend, `ACP_KILL_SEED` where.
"""

import os
import random
import signal
import subprocess
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path
from time import monotonic

import pytest

from persistence import SessionRepository, open_backend
from persistence.testing.harness import turn_events
from session_core import Event, SessionStore
from tests.persistence.processes import started

KILLS = int(os.environ.get("ACP_KILLS", "15"))
SEED = int(os.environ.get("ACP_KILL_SEED", "0"))

PROGRAM = Path(__file__).with_name("turn_writer.py")
# A session is left for a new one after so many kills, that loading does not become all there is.
KILLS_OF_A_SESSION = 25
# Longer than a few turns of this writer, so that kills fall into and between them.
MOST_BYTES = 12_000

BACKENDS = ["jsonl", "sqlite"]


def writer(spec: str, session_id: str) -> AbstractContextManager[subprocess.Popen[str]]:
    return started(PROGRAM, spec, session_id)


def stored_bytes(root: Path) -> int:
    """Return the size of everything that is stored."""
    total = 0
    for directory, _, names in os.walk(root):
        for name in names:
            # What is looked at is being written.
            try:
                total += (Path(directory) / name).stat().st_size
            except FileNotFoundError:
                continue
    return total


def kill_after(process: subprocess.Popen[str], root: Path, start: int, more: int) -> list[int]:
    """Kill a writer once it has stored so many bytes more; return the turns it acknowledged."""
    give_up_at = monotonic() + 30
    while abs(stored_bytes(root) - start) < more:
        assert process.poll() is None
        assert monotonic() < give_up_at, "it writes nothing"
    process.send_signal(signal.SIGKILL)
    output = process.communicate(timeout=30)[0]
    assert process.returncode == -signal.SIGKILL
    return [int(line) for line in output.splitlines() if line != "ready"]


def turns_of(log: list[Event]) -> dict[int, list[Event]]:
    """Return the events of each turn, having seen that the log is one turn after the other."""
    assert [event.seq for event in log] == list(range(len(log)))
    turns: dict[int, list[Event]] = {}
    for event in log:
        if event.type == "turn/start":
            assert event.data["turn"] == len(turns) + 1
            turns[len(turns) + 1] = []
        turns[len(turns)].append(event)
    for events in turns.values():
        assert [event.type for event in events].count("turn/end") == 1
        assert events[-1].type == "turn/end"
    return turns


def check_acknowledged(turns: dict[int, list[Event]], acknowledged: list[int]) -> None:
    """See that every acknowledged turn is there as it was written."""
    for turn in acknowledged:
        events = turns[turn]
        assert events[-1].data["reason"] == {"kind": "completed"}
        assert events[1].data["content"][0]["text"] == f"turn {turn}"
        deltas = [e.data["chunk"]["text"] for e in events if e.type == "assistant/chunk"]
        assert deltas == [f"token {k} " for k in range(len(deltas))]
        assert len(deltas) == 40


@pytest.mark.rule("kill-loses-nothing-acknowledged")
@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_killed_writer_loses_nothing_it_acknowledged(backend: str, tmp_path: Path) -> None:
    chosen = random.Random(SEED)
    spec = f"{backend}:{tmp_path}/store"
    acknowledged: list[int] = []
    for kill in range(KILLS):
        session_id = f"s{kill // KILLS_OF_A_SESSION}"
        if kill % KILLS_OF_A_SESSION == 0:
            acknowledged = []
        start = stored_bytes(tmp_path)
        with writer(spec, session_id) as process:
            if kill % 3:
                assert process.stdout is not None
                assert process.stdout.readline() == "ready\n"
                start = stored_bytes(tmp_path)
            # Else it may be killed in the middle of the load and of its repair.
            more = chosen.randrange(1, MOST_BYTES if kill % 3 else 300)
            acknowledged += kill_after(process, tmp_path, start, more)
        assert all(earlier < later for earlier, later in pairwise(acknowledged))
        async with SessionRepository(open_backend(spec), SessionStore()) as persistence:
            if not acknowledged and not await persistence.has(session_id):
                continue
            log = list((await persistence.load(session_id)).log)
            check_acknowledged(turns_of(log), acknowledged)
            turn = turn_events(len(turns_of(log)) + 1, len(log))
            await persistence.append(session_id, turn)
        async with SessionRepository(open_backend(spec), SessionStore()) as persistence:
            again = await persistence.load(session_id)
            assert list(again.log) == [*log, *turn]
            assert again.repaired is None

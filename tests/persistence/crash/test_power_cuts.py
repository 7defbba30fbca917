"""Power cuts at every operation of the JSONL backend: what they leave loads, whole and in order.

`ACP_POWER_CUT_STATES` sets how many states are looked at, `ACP_POWER_CUT_SEED` which.
"""

import os
from collections.abc import Callable, Iterator
from itertools import count
from typing import NamedTuple

import pytest

from persistence import StoreWriteError
from persistence.files import Files
from persistence.testing.disk_states import DiskStates
from persistence.testing.faulty_files import FaultyFiles
from persistence.testing.harness import turn_events, write_turn
from persistence.testing.power_cuts import (
    History,
    PowerCuts,
    SimulatedSession,
    Workload,
    run_now,
)
from persistence.testing.simulated_disk import DiskImage, SimulatedDisk
from persistence.testing.simulated_jsonl import no_kernel_locks, open_simulated_jsonl
from session_core import Event, Session

STATES = int(os.environ.get("ACP_POWER_CUT_STATES", "100000"))
SEED = int(os.environ.get("ACP_POWER_CUT_SEED", "0"))

FIRST, SECOND, THIRD = (turn_events(turn, 3 * turn - 3) for turn in (1, 2, 3))
# Of the same size as FIRST, so that only its bytes tell them apart.
OTHER = turn_events(1, 0, text="olleh")


@pytest.fixture(autouse=True)
def _locks() -> Iterator[None]:
    with no_kernel_locks():
        yield


def streamed_turn(start: int) -> list[Event]:
    """Return a turn with text beyond ASCII and packed deltas, as a live session makes it."""
    session = Session("s", seed=FIRST[:start], clock=count(3000).__next__)
    write_turn(session, "naïve 😀 " + "ÿ" * 20, deltas=6)
    return list(session.events)[start:]


async def a_new_session(session: SimulatedSession) -> None:
    """The first batch, and the rest of the turn."""
    await session.append(FIRST[:2])
    await session.append(FIRST[2:])
    await session.append(SECOND)


async def a_session_that_is_listed(session: SimulatedSession) -> None:
    """The list, which caches what it had to read itself, between turns."""
    await session.append(FIRST)
    await session.list()
    await session.append(SECOND[:2])
    await session.list()
    await session.append(SECOND[2:])
    await session.list()


async def checkpoints_of_a_turn(session: SimulatedSession) -> None:
    """One event after the other."""
    for event in [*FIRST, *SECOND[:1]]:
        await session.append([event])


async def a_streamed_turn(session: SimulatedSession) -> None:
    """A batch of many records, so long that it tears in many ways."""
    await session.append(FIRST)
    await session.append(streamed_turn(3))


async def a_delete_and_a_new_session(session: SimulatedSession) -> None:
    """An id that comes again."""
    await session.append(FIRST)
    await session.append(SECOND)
    await session.delete()
    await session.append(OTHER)
    await session.append(SECOND)


async def a_full_disk(session: SimulatedSession) -> None:
    """Writes that end short, at first of the log and then of what stands beside it."""
    await session.append(FIRST)
    for room in (0, 1, 100, 340):
        session.disk.free = room
        with pytest.raises(StoreWriteError):
            await session.append(SECOND)
    session.disk.free = 350
    await session.append(SECOND)
    session.disk.free = None
    await session.append(THIRD)


async def a_repair(session: SimulatedSession) -> None:
    """A log with a torn end and an open turn, loaded and continued."""
    log = (await session.load()).log
    await session.append(turn_events(3, len(log)))


def torn_store() -> tuple[DiskImage, History]:
    """Return a store after a power cut in the middle of the second turn, and its history."""
    disk, history = SimulatedDisk(), History()
    session = SimulatedSession(disk, open_simulated_jsonl(disk), history)
    cuts: list[tuple[DiskImage, History]] = []

    def cut(operation: str) -> None:
        if operation == "sync" and history.acknowledged:
            states = DiskStates(seed=SEED, holes=False).images(disk, 200)
            torn = [i for i in states for p, _, d in i.files if p.endswith("l") and is_torn(d)]
            cuts.append((torn[0], history.copy()))

    disk.before_change = cut
    run_now(session.append(FIRST))
    run_now(session.append(SECOND[:2]))
    image, history = cuts[0]
    # What the repair will make of it is as legal as what it finds.
    disk = SimulatedDisk(image)
    loaded = run_now(SimulatedSession(disk, open_simulated_jsonl(disk), History()).load())
    history.possible.append(list(loaded.log))
    return image, history


def is_torn(data: bytes) -> bool:
    return b'"seq":3' in data and not data.endswith((b"\n", b"\0"))


async def a_failing_disk(session: SimulatedSession) -> None:
    """Syncs that fail and lose what they should have written, cuts that fail: `FailingDisk`."""
    await session.append(FIRST)
    for _ in range(3):
        with pytest.raises(StoreWriteError):
            await session.append(SECOND)
    await session.append(SECOND)
    await session.append(THIRD)


class FailingDisk(FaultyFiles):
    """Fails the batch behind the first, the sync of its rollback, and two rollbacks after that."""

    def __init__(self, disk: SimulatedDisk) -> None:
        super().__init__(disk)
        self.disk = disk
        for _ in range(3):
            self.plan("sync", after=1)
        self.plan("truncate", after=2)

    def sync(self, handle: int) -> None:
        try:
            super().sync(handle)
        except OSError:
            self.disk.forget_unsynced(handle)
            raise


class Trial(NamedTuple):
    """A workload, and how much of all states are looked at in it."""

    workload: Workload
    share: float
    start: Callable[[], tuple[DiskImage | None, History]] = lambda: (None, History())
    wrap: Callable[[SimulatedDisk], Files] | None = None


TRIALS = [
    Trial(a_new_session, 0.1),
    Trial(a_session_that_is_listed, 0.12),
    Trial(checkpoints_of_a_turn, 0.16),
    Trial(a_streamed_turn, 0.1),
    Trial(a_delete_and_a_new_session, 0.16),
    Trial(a_full_disk, 0.16),
    Trial(a_failing_disk, 0.1, wrap=FailingDisk),
    Trial(a_repair, 0.1, start=torn_store),
]


@pytest.mark.rule("repair-is-durable-before-use", "kill-loses-nothing-acknowledged")
@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial.workload.__name__)
async def test_no_power_cut_takes_what_was_acknowledged(trial: Trial) -> None:
    states = int(STATES * trial.share)
    cuts = PowerCuts(open_simulated_jsonl, seed=SEED, most=states, unread="index.jsonl")
    while cuts.states < states:
        before = cuts.states
        cuts.run(trial.workload, *trial.start(), trial.wrap)
        assert cuts.states > before, "there are no more states"
    assert cuts.interrupted

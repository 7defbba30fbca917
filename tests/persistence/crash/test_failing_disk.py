"""Every disk access of the JSONL backend fails in turn: at the first batch, a later one, a repair.

After each the caller has a typed error or its events are stored, the log is as it was, and once the
cause is gone everything goes on.
"""

import contextlib
import errno
from collections.abc import Awaitable, Callable, Iterator
from typing import NamedTuple

import pytest

from persistence import PersistenceError, StoreReadError, StoreWriteError
from persistence.files import Files
from persistence.testing.faulty_files import Fault, FaultyFiles
from persistence.testing.harness import turn_events
from persistence.testing.power_cuts import History, PowerCuts, SimulatedSession, run_now
from persistence.testing.simulated_disk import DiskImage, SimulatedDisk
from persistence.testing.simulated_jsonl import no_kernel_locks, open_simulated_jsonl
from session_core import Event

FIRST, SECOND, THIRD = (turn_events(turn, 3 * turn - 3) for turn in (1, 2, 3))
LOG = "/store/--work-project--/s/session.jsonl"
FOR_EVER = 1 << 30


@pytest.fixture(autouse=True)
def _locks() -> Iterator[None]:
    with no_kernel_locks():
        yield


class Store:
    """One session on a disk whose faults are planned."""

    def __init__(self, image: DiskImage | None = None) -> None:
        self.disk = SimulatedDisk(image)
        self.files = FaultyFiles(self.disk)
        self.session = SimulatedSession(self.disk, open_simulated_jsonl(self.files), History())

    def log(self) -> bytes | None:
        """Return the bytes of the log as they are."""
        try:
            handle = self.disk.open(LOG, "read")
        except FileNotFoundError:
            return None
        return self.disk.read(handle, 1 << 20, 0)

    def cure(self) -> None:
        """Let nothing fail any more."""
        self.files._faults.clear()

    def stored(self) -> list[Event]:
        """Return what another process reads, and see that it has nothing to repair."""
        reader = SimulatedSession(self.disk, open_simulated_jsonl(self.disk), History())
        loaded = run_now(reader.load())
        assert loaded.repaired is None
        return list(loaded.log)


class Phase(NamedTuple):
    """An operation, on a store made ready for it, and what is stored when it is done."""

    prepare: Callable[[], Store]
    work: Callable[[Store], Awaitable[object]]
    result: list[Event]


def with_a_turn() -> Store:
    store = Store()
    run_now(store.session.append(FIRST))
    return store


def with_a_torn_turn() -> Store:
    before = with_a_turn()
    run_now(before.session.append(SECOND[:2]))
    handle = before.disk.open(LOG, "write")
    before.disk.append(handle, b'{"type":"turn/')
    before.disk.sync(handle)
    after = Store()
    after.disk = before.disk
    after.files = FaultyFiles(before.disk)
    after.session = SimulatedSession(after.disk, open_simulated_jsonl(after.files), History())
    return after


INTERRUPTED = SECOND[2]._replace(
    time=SECOND[1].time,
    data=Event("", 0, 0, {"turn": 2, "reason": {"kind": "interrupted"}}).data,  # type: ignore[arg-type]
)

PHASES = {
    "first batch": Phase(Store, lambda store: store.session.append(FIRST), FIRST),
    "turn": Phase(with_a_turn, lambda store: store.session.append(SECOND), [*FIRST, *SECOND]),
    "repair": Phase(
        with_a_torn_turn,
        lambda store: store.session.load(),
        [*FIRST, *SECOND[:2], INTERRUPTED],
    ),
}


def calls_of(phase: Phase) -> list[tuple[str, int]]:
    """Return each call of a phase as its name and how many of that name came before."""
    store = phase.prepare()
    start = len(store.files.calls)
    run_now(phase.work(store))
    calls = store.files.calls[start:]
    return [(name, calls[:position].count(name)) for position, name in enumerate(calls)]


def attempt(phase: Phase, store: Store) -> PersistenceError | None:
    try:
        run_now(phase.work(store))
    except PersistenceError as error:
        return error
    return None


def check_outcome(phase: Phase, store: Store, before: bytes | None) -> None:
    """See that a phase that may have failed did so cleanly, and that it can be repeated."""
    error = attempt(phase, store)
    assert not store.files.opened
    if error is not None:
        assert isinstance(error, StoreWriteError | StoreReadError)
        left = store.log()
        if phase is PHASES["repair"]:
            # It is done in two steps, and a load goes on where the last one stopped.
            assert left is not None
            assert before is not None
            assert left.startswith(before[: before.rindex(b"\n") + 1])
        elif left != before:
            # The disk did not let it cut back, and as long as it does not, nothing is written.
            assert attempt(phase, store) is not None
            assert store.log() == left
    store.cure()
    if error is not None:
        run_now(phase.work(store))
    assert store.stored() == phase.result
    turn = turn_events(3, len(phase.result))
    run_now(store.session.append(turn))
    assert store.stored() == [*phase.result, *turn]
    assert not store.files.opened


@pytest.mark.rule(
    "repair-is-durable-before-use", "failed-write-is-cut-back", "repair-survives-its-own-crash"
)
@pytest.mark.parametrize("times", [1, 2, FOR_EVER], ids=["once", "twice", "for ever"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("name", PHASES)
async def test_any_failing_call_is_survived(name: str, code: int, times: int) -> None:
    phase = PHASES[name]
    for operation, earlier in calls_of(phase):
        store = phase.prepare()
        before = store.log()
        store.files.plan(operation, code, after=earlier, times=times)
        check_outcome(phase, store, before)


@pytest.mark.rule("failed-write-is-cut-back")
@pytest.mark.parametrize("name", PHASES)
async def test_any_write_may_end_short(name: str) -> None:
    phase = PHASES[name]
    writes = sum(operation == "write" for operation, _ in calls_of(phase))
    for earlier in range(writes):
        for partial in (1, 50, 113):
            store = phase.prepare()
            before = store.log()
            fault = Fault("write", errno.ENOSPC, after=earlier, partial=partial)
            store.files._faults.append(fault)
            check_outcome(phase, store, before)


@pytest.mark.parametrize("size", [1, 7, 64])
@pytest.mark.parametrize("name", PHASES)
async def test_writes_that_take_only_part_are_continued(name: str, size: int) -> None:
    phase = PHASES[name]
    store = phase.prepare()
    store.files.short_writes = size
    run_now(phase.work(store))
    assert store.stored() == phase.result


async def test_a_power_cut_after_any_failing_call_is_survived() -> None:
    async def patiently(session: SimulatedSession, events: list[Event]) -> None:
        for _ in range(2):
            with contextlib.suppress(StoreWriteError):
                await session.append(events)
                return
        await session.append(events)

    async def workload(session: SimulatedSession) -> None:
        for turn in (FIRST, SECOND, THIRD):
            await patiently(session, turn)

    first = [name for name, _ in calls_of(PHASES["first batch"])]
    for operation, earlier in {*calls_of(PHASES["turn"]), ("truncate", 0), ("truncate", 1)}:
        after = first.count(operation) + earlier

        def wrap(disk: SimulatedDisk, operation: str = operation, after: int = after) -> Files:
            files = FaultyFiles(disk)
            files.plan(operation, errno.EIO, after=after, times=2)
            return files

        PowerCuts(open_simulated_jsonl, states=4).run(workload, wrap=wrap)

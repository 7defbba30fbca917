"""Power cuts at every operation of a backend, and what each may leave, checked against its word.

A `PowerCuts` runs a workload on a `SimulatedDisk`. Before each operation that changes the disk it
takes states in which a power cut could leave it then. On each it opens the store anew and loads,
which repairs, appends a turn, and loads again from what is durable. Then: every acknowledged event
is there once and in order, nothing is there that was never asked for, the turn is there too, and
the list says the same as the log. Some of these recoveries are interrupted in turn.

It serves every backend that works on `Files` alone and finishes each call without waiting, since
nothing here suspends; locks are the kernel's and have no place in it.
"""

from __future__ import annotations

import logging
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from persistence.errors import PersistenceError, SessionNotFoundError
from persistence.records import gc_paused
from persistence.slots import SessionSlot
from persistence.storing import load_and_repair, store_batch
from persistence.summary import SummaryFold
from persistence.testing.disk_states import DiskStates, cached_image, synced_image
from persistence.testing.harness import header, turn_events
from persistence.testing.simulated_disk import DiskImage, SimulatedDisk

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence

    from persistence.files import Files
    from persistence.opened import LoadedSession
    from persistence.storage import StorageBackend
    from session_core import Event

T = TypeVar("T")
OpenBackend: TypeAlias = "Callable[[Files], StorageBackend]"
Workload: TypeAlias = "Callable[[SimulatedSession], Awaitable[None]]"

SESSION_ID = "s"
HEADER = header(SESSION_ID)

# Of so many recoveries one is interrupted itself, at each operation, in so many states.
_INTERRUPTED = 97
_STATES_AGAIN = 6
# The list is asked for after so many recoveries; it costs as much as the recovery.
_LISTED = 16
# Of so many recoveries one is read from what is durable: these differ in what was torn before.
_CUT_AGAIN = 4
_REMEMBERED = 20_000


class BrokenPromiseError(AssertionError):
    """A state in which a power cut may leave the disk, and what is wrong with what came of it.

    Attributes:
        image: The state.
        operation: What was about to be done when the power went.
    """

    def __init__(self, reason: str, image: DiskImage, operation: str) -> None:
        self.reason = reason
        self.image = image
        self.operation = operation
        files = "\n".join(f"  {path} #{number}: {data!r}" for path, number, data in image.files)
        super().__init__(f"{reason}\na power cut before {operation} left\n{files}")


class History:
    """What was asked of a store, and what it acknowledged.

    Attributes:
        acknowledged: What every reader must find.
        possible: Each a log of which a reader may find any prefix that holds the acknowledged.
        first: The batch that made, or is to make, the session; found whole or not at all.
        may_be_absent: Whether a reader may find no session.
    """

    def __init__(self) -> None:
        self.acknowledged: list[Event] = []
        self.possible: list[list[Event]] = []
        self.first: list[Event] = []
        self.may_be_absent = True

    def copy(self) -> History:
        """Return a history of its own that goes on from here."""
        copy = History()
        copy.acknowledged = self.acknowledged
        copy.possible = [*self.possible]
        copy.first = self.first
        copy.may_be_absent = self.may_be_absent
        return copy

    def ask(self, events: Sequence[Event]) -> None:
        """Note that events are about to be stored behind the acknowledged ones."""
        if not self.acknowledged:
            self.first = list(events)
        self.possible.append([*self.acknowledged, *events])

    def acknowledge(self, log: Sequence[Event]) -> None:
        """Note that this is what is stored now."""
        self.acknowledged = list(log)
        size = len(log)
        self.possible = [other for other in self.possible if other[:size] == self.acknowledged]
        self.may_be_absent = False

    def forget(self) -> None:
        """Note that the session was deleted."""
        self.acknowledged, self.possible, self.first = [], [], []
        self.may_be_absent = True

    def fault(self, log: list[Event] | None) -> str | None:
        """Return what is wrong with a log as it was found; None for no session."""
        if log is None:
            return None if self.may_be_absent else "the session is gone"
        if log[: len(self.acknowledged)] != self.acknowledged:
            return f"of {len(self.acknowledged)} acknowledged events {_common(self, log)} are there"
        if log != self.acknowledged and not any(p[: len(log)] == log for p in self.possible):
            return "something is there that was never asked for"
        if len(log) < len(self.first):
            return "the first batch is there in part"
        return None


def _common(history: History, log: list[Event]) -> int:
    pairs = zip(history.acknowledged, log, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), len(log))


class SimulatedSession:
    """One session in a store on a simulated disk, as a workload drives it.

    Attributes:
        disk: The disk.
        history: What was asked and acknowledged so far.
    """

    def __init__(self, disk: SimulatedDisk, backend: StorageBackend, history: History) -> None:
        self.disk = disk
        self.history = history
        self.backend = backend
        self._slot = SessionSlot(SESSION_ID)

    async def load(self) -> LoadedSession:
        """Load the session, repairing it."""
        loaded = await load_and_repair(self.backend, self._slot)
        self.history.acknowledge(list(loaded.log))
        return loaded

    async def append(self, events: Sequence[Event]) -> None:
        """Store events; the first ones make the session."""
        self.history.ask(events)
        await self.store(events)
        self.history.acknowledge([*self.history.acknowledged, *events])

    async def store(self, events: Sequence[Event]) -> None:
        """Store events of which the history is told elsewhere."""
        if self._slot.header is None:
            self._slot.header = HEADER
        await store_batch(self.backend, self._slot, events)

    async def delete(self) -> None:
        """Delete the session."""
        self.history.may_be_absent = True
        if self._slot.writer is None:
            self._slot.writer = await self.backend.acquire_writer(SESSION_ID)
        try:
            await self._slot.writer.delete()
        finally:
            await self._slot.release()
        self.history.forget()

    async def list(self) -> None:
        """Look at the list, which refreshes what is cached for it."""
        await self.backend.list_page(None, None, 10)


class PowerCuts:
    """See the module. Use it inside an event loop.

    Args:
        open_backend: Opens the store on a disk.
        states: How many states are taken at each operation.
        most: After so many states no more are taken.
        unread: The end of the names of files that a load does not read.

    Attributes:
        states: Different pairs of a state of the disk and of what was acknowledged by then.
        points: Operations before which the power was cut.
        interrupted: Recoveries that were interrupted in turn.
    """

    def __init__(
        self,
        open_backend: OpenBackend,
        *,
        seed: int = 0,
        states: int = 200,
        holes: bool = True,
        ordered_names: bool = False,
        unread: str | None = None,
        most: int = sys.maxsize,
    ) -> None:
        self._most = most
        self._open = open_backend
        self._unread = unread
        self._limit = states
        self._states = DiskStates(seed=seed, holes=holes, ordered_names=ordered_names)
        self._seen: set[int] = set()
        self._read_before: dict[DiskImage, list[Event]] = {}
        self.states = 0
        self.points = 0
        self.interrupted = 0

    def run(
        self,
        workload: Workload,
        image: DiskImage | None = None,
        history: History | None = None,
        wrap: Callable[[SimulatedDisk], Files] | None = None,
    ) -> None:
        """Run a workload with power cuts; they leave no trace in it.

        Args:
            workload: What is done with the session.
            image: What is on the disk at first.
            history: What was asked and acknowledged by then.
            wrap: Puts something between the workload's backend and the disk, faults for instance.

        Raises:
            BrokenPromiseError: After one of them, or without one, the store does not keep its word.
        """
        disk = SimulatedDisk(image)
        history = History() if history is None else history
        with _quiet(), gc_paused():
            files: Files = disk if wrap is None else wrap(disk)
            session = SimulatedSession(disk, self._open(files), history)
            disk.before_change = lambda operation: self._cut(disk, history, operation, self._limit)
            try:
                run_now(workload(session))
            except PersistenceError as error:
                raise BrokenPromiseError(repr(error), cached_image(disk), "nothing") from error
            self._cut(disk, history, "the end", self._limit)

    def _cut(self, disk: SimulatedDisk, history: History, operation: str, limit: int) -> None:
        self.points += 1
        for image in self._states.images(disk, limit):
            if self.states >= self._most:
                return
            if self._is_new(image, history):
                self._recover(image, history, operation, again=self.states % _INTERRUPTED == 0)

    def _is_new(self, image: DiskImage, history: History) -> bool:
        state = hash((image, len(history.acknowledged), history.may_be_absent))
        if state in self._seen:
            return False
        self._seen.add(state)
        self.states += 1
        return True

    def _recover(
        self, image: DiskImage, history: History, operation: str, *, again: bool = False
    ) -> None:
        try:
            found, expected = run_now(self._recovered(image, history))
        except PersistenceError as error:
            raise BrokenPromiseError(repr(error), image, operation) from error
        except _Broken as error:
            raise BrokenPromiseError(str(error), image, operation) from error
        if again:
            self._interrupt(image, history, found, expected)

    async def _recovered(
        self, image: DiskImage, history: History
    ) -> tuple[list[Event] | None, list[Event]]:
        """Recover once; return what was found stored, and what was there in the end."""
        session = SimulatedSession(disk := SimulatedDisk(image), self._open(disk), History())
        found = log = await _found(session)
        if found is not None:
            log = session.history.acknowledged
        _require(history.fault(found))
        if log and self.states % _LISTED == 0:
            await _check_list(session.backend, log)
        turn = _next_turn(log or [])
        await session.append(turn)
        expected = [*(log or []), *turn]
        # Mostly as another process finds it, at times as after one more power cut.
        after = cached_image(disk) if self.states % _CUT_AGAIN else synced_image(disk)
        if await self._read(after) != expected:
            _require("what was appended after the recovery is not what is there")
        return found, expected

    async def _read(self, image: DiskImage) -> list[Event]:
        """Return the whole log that a store reads from an image, which needs no repair.

        Many states recover to the same image, and reading it does not depend on the way there.
        """
        if self._unread is not None:
            files = tuple(file for file in image.files if not file[0].endswith(self._unread))
            image = DiskImage(image.directories, files)
        known = self._read_before.get(image)
        if known is None:
            if len(self._read_before) >= _REMEMBERED:
                self._read_before.clear()
            reader = SimulatedSession(disk := SimulatedDisk(image), self._open(disk), History())
            loaded = await reader.load()
            if loaded.repaired is not None:
                _require("what was recovered had to be repaired once more")
            known = self._read_before[image] = list(loaded.log)
            if len(self._read_before) % _LISTED == 0:
                await _check_list(reader.backend, known)
        return known

    def _interrupt(
        self, image: DiskImage, history: History, found: list[Event] | None, expected: list[Event]
    ) -> None:
        """Cut the power during a recovery whose outcome is known."""
        self.interrupted += 1
        history = history.copy()
        if found is None:
            history.forget()
            history.first = expected
        history.possible.append(expected)
        disk = SimulatedDisk(image)

        def cut(operation: str) -> None:
            for again in self._states.images(disk, _STATES_AGAIN):
                if self._is_new(again, history):
                    self._recover(again, history, f"{operation} of a recovery")

        async def recover() -> None:
            session = SimulatedSession(disk, self._open(disk), History())
            if await _found(session) is not None:
                history.acknowledge(session.history.acknowledged)
            await session.append(expected[len(session.history.acknowledged) :])
            history.acknowledge(expected)

        disk.before_change = cut
        run_now(recover())
        cut("the end")


class _Broken(Exception):  # noqa: N818 - never leaves the module
    """A promise is broken."""


def _require(fault: str | None) -> None:
    if fault is not None:
        raise _Broken(fault)


async def _found(session: SimulatedSession) -> list[Event] | None:
    """Load, and return what was stored without the events that closed an interrupted turn."""
    try:
        loaded = await session.load()
    except SessionNotFoundError:
        return None
    closers = 0 if loaded.repaired is None else loaded.repaired.closer_count
    return list(loaded.log)[: len(loaded.log) - closers]


def _next_turn(log: Sequence[Event]) -> list[Event]:
    turns = sum(event.type == "turn/start" for event in log)
    start, _, end = turn_events(turns + 1, len(log))
    return [start, end._replace(seq=start.seq + 1)]


async def _check_list(backend: StorageBackend, log: Sequence[Event]) -> None:
    fold = SummaryFold(HEADER)
    fold.advance(log)
    entries = (await backend.list_page(None, None, 10)).entries
    if [entry.summary for entry in entries] != [fold.summary()]:
        _require(f"the list shows {[entry.summary for entry in entries]}, not {fold.summary()}")


def run_now(work: Awaitable[T]) -> T:
    """Run a coroutine that never has to wait."""
    coroutine: Coroutine[Any, Any, T] = work  # type: ignore[assignment]  # all of ours are
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    coroutine.close()
    msg = "a simulated store had to wait for something"
    raise RuntimeError(msg)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep a hundred thousand repairs out of the log."""
    logger = logging.getLogger("persistence")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)

"""Checks of sessions that several processes have open: looking takes no lock.

Rule: looking-takes-no-lock.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel

from persistence.errors import (
    CorruptLogError,
    SessionChangedError,
    SessionLiveError,
    SessionLockedError,
    SessionOvertakenError,
    StoreWriteError,
)
from persistence.repository import SessionRepository
from persistence.testing.harness import (
    CWD,
    FailingBackend,
    begin_turn,
    end_turn,
    expect,
    header,
    mark,
    refusing,
    turn_events,
    write_turn,
)
from session_core import Event, SessionStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from persistence.storage import StorageBackend
    from persistence.testing.harness import BackendHarness, Check
    from session_core import Session

_NO_WINDOW_MS = 3_600_000


class _Process:
    """A store and its persistence as a process of its own; it is idle when it is told so."""

    def __init__(self, backend: StorageBackend) -> None:
        self.store = SessionStore()
        self.busy = False
        self._idle = anyio.Event()
        self.persistence = SessionRepository(
            backend, self.store, window_ms=_NO_WINDOW_MS, sleep_until=self._until_idle
        )

    async def open(self) -> Session:
        return (await self.persistence.open("s")).session

    async def hold(self, session: Session) -> int | None:
        """Take the lock; return how many events there were before others' were read, if any."""
        known: list[int] = []
        is_busy = lambda: self.busy  # noqa: E731
        self.persistence.attend(session, is_busy=is_busy, read_on=known.append)
        await self.persistence.hold(session)
        return known[0] if known else None

    async def turn(self, session: Session, text: str = "hello") -> int | None:
        known = await self.hold(session)
        write_turn(session, text)
        await self.persistence.flush(session)
        return known

    async def become_idle(self) -> None:
        """Let every session's moment pass, once and again, until nobody waits for it."""
        for _ in range(2):
            await self._let_pass()

    async def _let_pass(self) -> None:
        idle, self._idle = self._idle, anyio.Event()
        idle.set()
        for _ in range(50):
            await anyio.lowlevel.checkpoint()
        # Giving back works in threads: the queue is free when it is over.
        await self.persistence.settled("s")

    async def _until_idle(self, _time: float) -> None:
        await self._idle.wait()


@asynccontextmanager
async def _process(backend: StorageBackend) -> AsyncIterator[_Process]:
    process = _Process(backend)
    async with process.persistence:
        yield process


async def _store(harness: BackendHarness, events: list[Event]) -> None:
    async with SessionRepository(harness.open(), SessionStore()) as persistence:
        await persistence.create(header("s"))
        await persistence.append("s", events)


async def _stored_events(harness: BackendHarness) -> list[Event]:
    async with SessionRepository(harness.open(), SessionStore()) as persistence:
        return list((await persistence.inspect("s")).log)


async def an_opened_session_is_live_and_goes_on(harness: BackendHarness) -> None:
    """Opening is one step: what a crash left is put right, and it owns its id from the start."""
    await _store(harness, [*turn_events(1, 0), *turn_events(2, 3)[:2]])
    async with _process(harness.open()) as one:
        opened = await one.persistence.open("s")
        session = opened.session
        expect(opened.repaired is not None and opened.repaired.closer_count, 1)
        expect(one.store.list(), [session])
        expect(one.persistence.durable_seq(session), 6)
        expect((await one.persistence.open("s")).session is session, wanted=True)
        expect(await one.turn(session), None)
    expect(await _stored_events(harness), list(session.events))


async def what_cannot_be_opened_is_left_alone(harness: BackendHarness) -> None:
    """A fault of the surface is named before the repair; the lock is free, the id unused."""
    broken = turn_events(2, 3)[1]._replace(seq=4, surface_op=None)
    begin = turn_events(2, 3)[0]
    await _store(harness, [*turn_events(1, 0), begin, broken])
    before = harness.contents("s")
    async with _process(harness.open()) as one, _process(harness.open()) as two:
        with refusing(CorruptLogError) as raised:
            await one.persistence.open("s")
        expect(raised.error.seq, 4)
        with refusing(CorruptLogError):
            await one.persistence.load("s")
        expect(harness.contents("s"), before)
        expect(one.store.list(), [])
        one.store.create("s", cwd=CWD)
        with refusing(CorruptLogError):
            await one.persistence.open("s")
        await two.persistence.delete("s")


async def a_header_that_is_refused_leaves_the_id_free(harness: BackendHarness) -> None:
    """What the caller says of the header comes before anything is changed."""
    await _store(harness, turn_events(1, 0)[:-1])
    before = harness.contents("s")

    def refuse(_header: object) -> None:
        raise LookupError

    async with _process(harness.open()) as one, _process(harness.open()) as two:
        with refusing(LookupError):
            await one.persistence.open("s", check_header=refuse)
        expect(harness.contents("s"), before)
        expect(one.store.list(), [])
        await two.persistence.open("s")


async def an_id_that_is_live_unstored_is_not_opened(harness: BackendHarness) -> None:
    """A session that somebody made of nothing does not become the stored one."""
    await _store(harness, turn_events(1, 0))
    before = harness.contents("s")
    async with _process(harness.open()) as one:
        session = one.store.create("s", cwd=CWD)
        with refusing(SessionLiveError):
            await one.persistence.open("s")
        expect(one.store.list(), [session])
    expect(harness.contents("s"), before)


async def looking_takes_no_lock_and_writing_does(harness: BackendHarness) -> None:
    """While one process has a turn open another one sees it, and can write nothing."""
    await _store(harness, turn_events(1, 0))
    async with _process(harness.open()) as one, _process(harness.open()) as two:
        mine = await one.open()
        turn = begin_turn(mine)
        await one.persistence.flush(mine)
        opened = await two.persistence.open("s")
        theirs = opened.session
        expect(type(opened.locked), SessionLockedError)
        expect(opened.repaired, None)
        expect(list(theirs.events), list(mine.events))
        before = harness.contents("s")
        with refusing(SessionLockedError) as raised:
            await two.persistence.hold(theirs)
        expect(type(raised.error.pid), int)
        expect(two.persistence.is_lost(theirs), wanted=False)
        await one.become_idle()
        with refusing(SessionLockedError):
            await two.persistence.hold(theirs)
        expect(harness.contents("s"), before)
        end_turn(mine, turn)
        await one.persistence.flush(mine)
        await one.become_idle()
        expect(await two.hold(theirs), 5)
        expect(list(theirs.events), list(mine.events))
        await two.persistence.release(theirs)


async def two_processes_take_turns(harness: BackendHarness) -> None:
    """Each reads on in place what the other has written, and writes behind it."""
    await _store(harness, turn_events(1, 0))
    async with _process(harness.open()) as one, _process(harness.open()) as two:
        sessions = [(one, await one.open()), (two, await two.open())]
        await one.become_idle()
        for number in range(6):
            process, session = sessions[number % 2]
            was = session.seq
            expect(await process.turn(session, f"turn {number}"), was if number else None)
            expect(await process.hold(session), None)
            await process.become_idle()
        mine, theirs = (session for _, session in sessions)
        await one.persistence.hold(mine)
        expect(list(mine.events), list(theirs.events))
        expect(mine.derive_messages(), theirs.derive_messages())
    expect(await _stored_events(harness), list(mine.events))


async def a_turn_whose_process_died_is_closed_by_the_next_writer(harness: BackendHarness) -> None:
    """Who saw an open turn closes it once nobody has it, and reads the closers."""
    await _store(harness, turn_events(1, 0))
    async with _process(harness.open()) as two:
        async with _process(harness.open()) as one:
            mine = await one.open()
            begin_turn(mine)
            await one.persistence.flush(mine)
            theirs = await two.open()
            one.store.detach(mine)
        expect(theirs.events[-1].type, "user/message")
        expect(await two.hold(theirs), 5)
        expect(theirs.events[-1].data["reason"], {"kind": "interrupted"})
        expect(await two.turn(theirs), None)
    expect(await _stored_events(harness), list(theirs.events))


async def what_is_pending_is_never_merged(harness: BackendHarness) -> None:
    """A session that went on elsewhere, with something here unstored, has to be loaded again."""
    await _store(harness, turn_events(1, 0))
    backend = FailingBackend(harness.open())
    async with _process(backend) as one, _process(harness.open()) as two:
        mine = await one.open()
        await one.become_idle()
        theirs = await two.open()
        await two.turn(theirs)
        # Without having asked for the lock, as an author may.
        write_turn(mine)
        with refusing(SessionLockedError):
            await one.persistence.flush(mine)
        expect(one.persistence.is_lost(mine), wanted=False)
        await two.become_idle()
        before = harness.contents("s")
        for _ in range(2):
            with refusing(SessionOvertakenError) as raised:
                await one.persistence.hold(mine)
        expect("load it again" in str(raised.error), wanted=True)
        expect(one.persistence.is_lost(mine), wanted=True)
        expect(harness.contents("s"), before)
        await one.persistence.release(mine)
        one.store.detach(mine)
        again = await one.open()
        expect(list(again.events), list(theirs.events))


async def the_lock_is_kept_while_something_is_unstored_or_busy(harness: BackendHarness) -> None:
    """An idle moment gives it back only if nobody could lose anything by it."""
    await _store(harness, turn_events(1, 0))
    backend = FailingBackend(harness.open())
    async with _process(backend) as one, _process(harness.open()) as two:
        mine, theirs = await one.open(), await two.open()
        one.busy = True
        await one.hold(mine)
        await one.become_idle()
        with refusing(SessionLockedError):
            await two.persistence.hold(theirs)
        one.busy = False
        backend.failing = True
        write_turn(mine)
        with refusing(StoreWriteError):
            await one.persistence.flush(mine)
        await one.become_idle()
        with refusing(SessionLockedError):
            await two.persistence.hold(theirs)
        backend.failing = False
        await one.persistence.flush(mine)
        await one.become_idle()
        expect(await two.hold(theirs), 3)


async def an_event_outside_of_turns_takes_the_lock_too(harness: BackendHarness) -> None:
    """It is appended behind what others wrote, or not at all."""
    await _store(harness, turn_events(1, 0))
    trigger, preset = {"kind": "config"}, {"preset": "ask"}
    async with _process(harness.open()) as one, _process(harness.open()) as two:
        mine, theirs = await one.open(), await two.open()
        await one.turn(mine)
        with refusing(SessionLockedError):
            await two.store.append_out_of_band(theirs, "permission/preset", preset, trigger)
        expect(theirs.seq, 3)
        await one.become_idle()
        event = await two.store.append_out_of_band(theirs, "permission/preset", preset, trigger)
        expect(event.seq, mine.seq + 1)
    expect(await _stored_events(harness), list(theirs.events))


@mark.rule("seed-must-reproduce-stored-log")
async def what_does_not_begin_with_what_was_read_is_not_read_on(harness: BackendHarness) -> None:
    """A log that was deleted, or replaced by another one, is another session's."""
    for replace in (False, True):
        await _store(harness, turn_events(1, 0))
        async with _process(harness.open()) as one:
            mine = await one.open()
            await one.become_idle()
            async with _process(harness.open()) as two:
                await two.persistence.delete("s")
            if replace:
                await _store(harness, [*turn_events(1, 0, text="HELLO"), *turn_events(2, 3)])
            before = harness.contents("s")
            with refusing(SessionChangedError):
                await one.persistence.hold(mine)
            expect(one.persistence.is_lost(mine), wanted=True)
            expect(len(mine.events), 3)
            expect(harness.contents("s"), before)


HOLDING_CHECKS: tuple[Check, ...] = (
    an_opened_session_is_live_and_goes_on,
    what_cannot_be_opened_is_left_alone,
    a_header_that_is_refused_leaves_the_id_free,
    an_id_that_is_live_unstored_is_not_opened,
    looking_takes_no_lock_and_writing_does,
    two_processes_take_turns,
    a_turn_whose_process_died_is_closed_by_the_next_writer,
    what_is_pending_is_never_merged,
    the_lock_is_kept_while_something_is_unstored_or_busy,
    an_event_outside_of_turns_takes_the_lock_too,
    what_does_not_begin_with_what_was_read_is_not_read_on,
)

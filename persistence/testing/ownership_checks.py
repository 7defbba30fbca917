"""Checks of who may write under an id: resume, fork, adopt, collide, lock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from persistence.errors import (
    SessionChangedError,
    SessionCollisionError,
    SessionLiveError,
    SessionLockedError,
)
from persistence.repository import SessionRepository
from persistence.storing import read_stored
from persistence.testing.harness import (
    CWD,
    begin_turn,
    end_turn,
    expect,
    header,
    mark,
    refusing,
    turn_events,
    write_turn,
)
from session_core import SessionStore, compute_closers

if TYPE_CHECKING:
    from persistence.testing.harness import BackendHarness, Check
    from session_core import Event

_NO_WINDOW_MS = 3_600_000


def _open(harness: BackendHarness, store: SessionStore | None = None) -> SessionRepository:
    return SessionRepository(harness.open(), store or SessionStore(), window_ms=_NO_WINDOW_MS)


async def _stored(harness: BackendHarness, events: list[Event]) -> None:
    async with _open(harness) as persistence:
        await persistence.create(header("s"))
        await persistence.append("s", events)


async def _stored_events(harness: BackendHarness) -> list[Event]:
    async with _open(harness) as persistence:
        return list((await persistence.inspect("s")).log)


@mark.rule("resume-continues-stored-log", "repaired-history-is-paired")
async def a_resumed_session_goes_on_where_it_stopped(harness: BackendHarness) -> None:
    """The seed is not stored again, seqs continue, the stored birth stays."""
    await _stored(harness, [*turn_events(1, 0), *turn_events(2, 3)[:2]])
    store = SessionStore()
    async with _open(harness, store) as persistence:
        loaded = await persistence.load("s")
        session = store.create("s", seed=loaded.log, header=loaded.header)
        expect(persistence.durable_seq(session), 6)
        write_turn(session)
        await persistence.flush(session)
        expect(session.events[6].data["turn"], 3)
    async with _open(harness) as persistence:
        inspected = await persistence.inspect("s")
        expect(list(inspected.log), list(session.events))
        expect(inspected.header.created_at, 1000)


@mark.rule("resume-continues-stored-log")
async def a_seed_equal_by_value_is_a_resume_too(harness: BackendHarness) -> None:
    """The claim compares values where the records are not the very same."""
    await _stored(harness, turn_events(1, 0))
    store = SessionStore()
    async with _open(harness, store) as persistence:
        loaded = await persistence.load("s")
        session = store.create("s", seed=list(loaded.log), header=loaded.header)
        write_turn(session)
        await persistence.flush(session)
        expect(persistence.durable_seq(session), session.seq)
    expect(await _stored_events(harness), list(session.events))


@mark.rule("fork-seed-is-stored-once", "forks-are-independent")
async def a_forked_seed_is_stored_once(harness: BackendHarness) -> None:
    """The child's log holds the inherited events and says how many they are."""
    store = SessionStore()
    async with _open(harness, store) as persistence:
        parent = store.create("parent", cwd=CWD)
        write_turn(parent)
        child = store.fork(parent, child_id="s")
        await persistence.flush(child)
        write_turn(child)
        await persistence.flush(child)
    async with _open(harness) as persistence:
        inspected = await persistence.inspect("s")
        expect(list(inspected.log), list(child.events))
        expect(inspected.header.seed_length, parent.seq)
        expect(inspected.header.parent_session, "parent")


@mark.rule("seed-must-reproduce-stored-log")
async def another_history_does_not_get_a_stored_id(harness: BackendHarness) -> None:
    """Neither a fresh session nor one that differs in a value may write there."""
    await _stored(harness, turn_events(1, 0))
    before = harness.contents("s")
    for seed in ((), turn_events(1, 0, text="HELLO"), turn_events(1, 0)[:2]):
        store = SessionStore()
        async with _open(harness, store) as persistence:
            session = store.create("s", seed=seed, cwd=CWD)
            if not seed:
                write_turn(session)
            with refusing(SessionCollisionError):
                await persistence.flush(session)
    expect(harness.contents("s"), before)


@mark.rule("seed-must-reproduce-stored-log")
async def another_history_does_not_get_a_loaded_id(harness: BackendHarness) -> None:
    """The claim of what `load` returned is checked as well."""
    await _stored(harness, turn_events(1, 0))
    before = harness.contents("s")
    store = SessionStore()
    async with _open(harness, store) as persistence:
        await persistence.load("s")
        session = store.create("s", seed=turn_events(1, 0, text="HELLO"), cwd=CWD)
        with refusing(SessionCollisionError):
            await persistence.flush(session)
    expect(harness.contents("s"), before)


@mark.rule("seed-must-reproduce-stored-log")
async def the_same_id_in_another_directory_is_another_session(harness: BackendHarness) -> None:
    """The working directory is part of what a claim compares."""
    await _stored(harness, turn_events(1, 0))
    store = SessionStore()
    async with _open(harness, store) as persistence:
        session = store.create("s", seed=turn_events(1, 0), cwd="/elsewhere")
        with refusing(SessionCollisionError):
            await persistence.flush(session)


@mark.rule("seed-must-reproduce-stored-log")
async def an_abandoned_id_can_be_used_again(harness: BackendHarness) -> None:
    """A session that never had an event leaves its id free; one that had does not."""
    store = SessionStore()
    async with _open(harness, store) as persistence:
        store.detach(store.create("s", cwd=CWD))
        session = store.create("s", cwd="/elsewhere")
        write_turn(session)
        await persistence.flush(session)
        store.detach(session)
        third = store.create("s", cwd=CWD)
        begin_turn(third)
        with refusing(SessionCollisionError):
            await persistence.flush(third)


@mark.rule("seed-must-reproduce-stored-log")
async def a_live_session_adopts_its_stored_part(harness: BackendHarness) -> None:
    """The torn tail is cut; the open turn is the live session's and gets no closers."""
    events = [*turn_events(1, 0), *turn_events(2, 3)[:2]]
    await _stored(harness, events)
    harness.tear("s")
    store = SessionStore()
    async with _open(harness, store) as persistence:
        session = store.create("s", seed=events, cwd=CWD)
        end_turn(session, 2)
        await persistence.flush(session)
        expect(persistence.durable_seq(session), session.seq)
    expect(await _stored_events(harness), list(session.events))


@mark.rule("load-of-live-session-reads-it")
async def a_live_session_is_loaded_only_between_turns(harness: BackendHarness) -> None:
    """Loading what is live here flushes it and repairs nothing."""
    store = SessionStore()
    async with _open(harness, store) as persistence:
        session = store.create("s", cwd=CWD)
        write_turn(session)
        await persistence.flush(session)
        turn = begin_turn(session)
        with refusing(SessionLiveError):
            await persistence.load("s")
        end_turn(session, turn)
        loaded = await persistence.load("s")
        expect(list(loaded.log), list(session.events))
        expect(loaded.repaired, None)
        with refusing(SessionLiveError):
            await persistence.delete("s")
        with refusing(SessionLiveError):
            await persistence.append("s", turn_events(3, session.seq))


async def a_session_that_just_went_is_loaded_cold(harness: BackendHarness) -> None:
    """A load right behind a detach waits for the rest to be stored."""
    store = SessionStore()
    async with _open(harness, store) as persistence:
        session = store.create("s", cwd=CWD)
        write_turn(session)
        await persistence.flush(session)
        begin_turn(session)
        store.detach(session)
        loaded = await persistence.load("s")
        expect(loaded.repaired is not None and loaded.repaired.closer_count, 1)
        again = store.create("s", seed=loaded.log, header=loaded.header)
        write_turn(again)
        await persistence.flush(again)
    expect(await _stored_events(harness), list(again.events))


async def a_session_has_one_writer_at_a_time(harness: BackendHarness) -> None:
    """A second process is told who holds it, may read, and gets it after the release."""
    await _stored(harness, turn_events(1, 0))
    async with _open(harness) as first, _open(harness) as second:
        await first.load("s")
        for refused in (second.load, second.delete):
            with refusing(SessionLockedError) as raised:
                await refused("s")
            expect(type(raised.error.pid), int)
        expect(len((await second.inspect("s")).log), 3)
        expect(len((await second.list()).entries), 1)
        await first.release("s")
        expect(len((await second.load("s")).log), 3)


@mark.rule("operations-queue-per-session")
async def a_waiting_load_gets_the_session_when_it_is_released(harness: BackendHarness) -> None:
    """An editor restart: the new process waits a moment for the old one."""
    await _stored(harness, turn_events(1, 0))
    async with _open(harness) as first, _open(harness) as second:
        await first.load("s")
        loaded: list[Any] = []

        async def load() -> None:
            loaded.append(await second.load("s"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(load)
            await anyio.lowlevel.checkpoint()
            await first.release("s")
        expect(len(loaded[0].log), 3)


async def a_writer_continues_where_a_former_one_has_left(harness: BackendHarness) -> None:
    """A position is all it needs, whether the log was published, repaired or appended to."""
    backend = harness.open()
    events = [*turn_events(1, 0), *turn_events(2, 3)[:2]]
    writer = await backend.acquire_writer("s", header("s"))
    expect(writer.position, None)
    await writer.append_batch(header("s"), events[:4])
    for batch in (events[4:], [], turn_events(3, 6)):
        position = writer.position
        await writer.release()
        writer = await backend.acquire_writer("s")
        await writer.continue_from(position)
        if batch:
            await writer.append_batch(header("s"), batch)
        else:
            stored = await read_stored(backend, "s")
            await writer.commit_repair(stored, compute_closers(stored.log))
    await backend.close()
    stored_events = await _stored_events(harness)
    expect([event.seq for event in stored_events], list(range(9)))
    expect(stored_events[-3:], turn_events(3, 6))


async def a_writer_does_not_continue_what_has_changed(harness: BackendHarness) -> None:
    """Neither a log that grew, nor one that is gone, nor what came in its place."""
    backend = harness.open()

    async def append(position: object | None, events: list[Event]) -> object | None:
        writer = await backend.acquire_writer("s", header("s"))
        if position is not None:
            await writer.continue_from(position)
        await writer.append_batch(header("s"), events)
        await writer.release()
        return writer.position

    async def refused(position: object | None) -> None:
        before = harness.contents("s")
        writer = await backend.acquire_writer("s", header("s"))
        with refusing(SessionChangedError):
            await writer.continue_from(position)
        await writer.release()
        expect(harness.contents("s"), before)

    first = await append(None, turn_events(1, 0))
    second = await append(first, turn_events(2, 3))
    await refused(first)
    harness.grow("s")
    await refused(second)
    await (await backend.acquire_writer("s")).delete()
    await refused(second)
    await append(None, turn_events(1, 0, text="HELLO"))
    await refused(first)
    await backend.close()


async def a_load_that_is_refused_by_its_caller_changes_nothing(harness: BackendHarness) -> None:
    """The caller looks at the header before the repair; the lock is free again."""
    await _stored(harness, turn_events(1, 0)[:2])
    before = harness.contents("s")

    def refuse(_header: object) -> None:
        raise LookupError

    async with _open(harness) as persistence, _open(harness) as other:
        with refusing(LookupError):
            await persistence.load("s", check_header=refuse)
        expect(harness.contents("s"), before)
        await other.load("s")


@mark.rule("operations-queue-per-session")
async def nobody_goes_live_while_a_load_is_under_way(harness: BackendHarness) -> None:
    """A cold load reserves its id."""
    await _stored(harness, turn_events(1, 0))
    store = SessionStore()

    def create_meanwhile(_header: object) -> None:
        store.create("s", cwd=CWD)

    async with _open(harness, store) as persistence:
        with refusing(SessionCollisionError):
            await persistence.load("s", check_header=create_meanwhile)
        expect(store.list(), [])
        await persistence.load("s")


OWNERSHIP_CHECKS: tuple[Check, ...] = (
    a_resumed_session_goes_on_where_it_stopped,
    a_seed_equal_by_value_is_a_resume_too,
    a_forked_seed_is_stored_once,
    another_history_does_not_get_a_stored_id,
    another_history_does_not_get_a_loaded_id,
    the_same_id_in_another_directory_is_another_session,
    an_abandoned_id_can_be_used_again,
    a_live_session_adopts_its_stored_part,
    a_live_session_is_loaded_only_between_turns,
    a_session_that_just_went_is_loaded_cold,
    a_session_has_one_writer_at_a_time,
    a_waiting_load_gets_the_session_when_it_is_released,
    a_writer_continues_where_a_former_one_has_left,
    a_writer_does_not_continue_what_has_changed,
    a_load_that_is_refused_by_its_caller_changes_nothing,
    nobody_goes_live_while_a_load_is_under_way,
)

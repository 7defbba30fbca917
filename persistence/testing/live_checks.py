"""Checks of live sessions: checkpoints, failures, write-behind, the end."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel

from persistence.errors import (
    SessionChangedError,
    SessionNotFoundError,
    StoreShutdownError,
    StoreWriteError,
)
from persistence.repository import SessionRepository
from persistence.testing.harness import (
    CWD,
    FailingBackend,
    begin_turn,
    end_turn,
    expect,
    mark,
    refusing,
    write_turn,
)
from session_core import SessionStore

if TYPE_CHECKING:
    from persistence.testing.harness import BackendHarness, Check
    from session_core import Event

# A window that no test outlives: what is stored then is stored by a checkpoint or at once.
_NO_WINDOW_MS = 3_600_000


async def _stored_events(harness: BackendHarness) -> list[Event]:
    async with SessionRepository(harness.open(), SessionStore()) as persistence:
        return list((await persistence.inspect("s")).log)


def _set(event: anyio.Event, _seq: int) -> None:
    event.set()


@mark.rule("fork-seed-is-stored-once")
async def a_flush_makes_everything_durable(harness: BackendHarness) -> None:
    """What was appended before the call is stored; a flush of nothing writes nothing."""
    backend, store = FailingBackend(harness.open()), SessionStore()
    async with SessionRepository(backend, store, window_ms=_NO_WINDOW_MS) as persistence:
        session = store.create("s", cwd=CWD)
        expect(persistence.durable_seq(session), 0)
        await persistence.flush(session)
        expect(backend.appends, 0)
        write_turn(session)
        heard: list[int] = []
        stop = persistence.on_durable(session, heard.append)
        await store.flush(session)
        expect(await _stored_events(harness), list(session.events))
        expect(persistence.durable_seq(session), session.seq)
        expect(heard, [session.seq])
        await persistence.flush(session)
        expect(backend.appends, 1)
        stop()
        write_turn(session)
        await persistence.flush(session)
        expect(heard[1:], [])


@mark.rule("failed-flush-keeps-events", "failed-write-is-cut-back")
async def a_failed_flush_keeps_everything_for_the_next(harness: BackendHarness) -> None:
    """The next flush writes the kept events once, without gap or repetition."""
    backend, store = FailingBackend(harness.open()), SessionStore()
    async with SessionRepository(backend, store, window_ms=_NO_WINDOW_MS) as persistence:
        session = store.create("s", cwd=CWD)
        for failing in (True, False, True, False):
            write_turn(session)
            backend.failing = failing
            if failing:
                with refusing(StoreWriteError) as raised:
                    await persistence.flush(session)
                expect(raised.error.reason, "disk full")
            else:
                await persistence.flush(session)
        expect(await _stored_events(harness), list(session.events))


@mark.rule("concurrent-flushes-write-once")
async def flushes_at_once_and_events_meanwhile_lose_and_repeat_nothing(
    harness: BackendHarness,
) -> None:
    """Concurrent flushes of a growing log store it once."""
    store = SessionStore()
    async with SessionRepository(harness.open(), store, window_ms=1) as persistence:
        session = store.create("s", cwd=CWD)
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                write_turn(session)
                tasks.start_soon(persistence.flush, session)
                tasks.start_soon(persistence.flush, session)
                await anyio.lowlevel.checkpoint()
        expect(persistence.durable_seq(session), session.seq)
        expect(await _stored_events(harness), list(session.events))


@mark.rule("cancelled-flush-writes-whole")
async def a_cancelled_flush_leaves_log_and_memory_agreed(harness: BackendHarness) -> None:
    """A cancel never abandons an append half-way (it would look changed).

    Rule: changed-log-is-never-overwritten.
    """
    backend, store = FailingBackend(harness.open()), SessionStore()
    async with SessionRepository(backend, store, window_ms=_NO_WINDOW_MS) as persistence:
        session = store.create("s", cwd=CWD)
        for _ in range(10):
            # Nothing in this turn starts the write-behind: it is the flush that writes.
            end_turn(session, begin_turn(session))
            backend.attempted = anyio.Event()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(persistence.flush, session)
                with anyio.fail_after(5):
                    await backend.attempted.wait()
                tasks.cancel_scope.cancel()
        await persistence.flush(session)
        expect(await _stored_events(harness), list(session.events))


@mark.rule("important-events-start-flush")
async def what_no_checkpoint_asks_for_is_stored_behind(harness: BackendHarness) -> None:
    """The window stores text, an event of the kind that must not wait starts it at once."""
    for window_ms, kind in ((1, "text"), (_NO_WINDOW_MS, "todo"), (_NO_WINDOW_MS, "kick")):
        store = SessionStore()
        async with SessionRepository(harness.open(), store, window_ms=window_ms) as persistence:
            session = store.create(f"s-{kind}", cwd=CWD)
            durable = anyio.Event()
            persistence.on_durable(session, partial(_set, durable))
            begin_turn(session)
            if kind == "todo":
                session.append("todo/write", {"todos": []})
            elif kind == "kick":
                persistence.flush_soon(session)
            with anyio.fail_after(5):
                await durable.wait()
            expect(persistence.durable_seq(session), session.seq)


async def a_failing_write_behind_waits_for_the_next_event(harness: BackendHarness) -> None:
    """It does not try again by itself, and the next event brings everything along."""
    backend, store = FailingBackend(harness.open()), SessionStore()
    async with SessionRepository(backend, store, window_ms=1) as persistence:
        session = store.create("s", cwd=CWD)
        durable = anyio.Event()
        persistence.on_durable(session, lambda _seq: durable.set())
        backend.failing = True
        turn = begin_turn(session)
        with anyio.fail_after(5):
            await backend.attempted.wait()
        # Nothing happens in many windows' time: there is no event of a thing that does not happen.
        await anyio.sleep(0.02)
        expect(backend.appends, 1)
        backend.failing = False
        end_turn(session, turn)
        with anyio.fail_after(5):
            await durable.wait()
        expect(await _stored_events(harness), list(session.events))


async def a_detached_session_is_stored_and_let_go(harness: BackendHarness) -> None:
    """Detaching drains in the background; another process may then open it."""
    store = SessionStore()
    async with SessionRepository(harness.open(), store, window_ms=_NO_WINDOW_MS) as persistence:
        session = store.create("s", cwd=CWD)
        write_turn(session)
        durable = anyio.Event()
        persistence.on_durable(session, lambda _seq: durable.set())
        store.detach(session)
        with anyio.fail_after(5):
            await durable.wait()
        async with SessionRepository(harness.open(), SessionStore()) as other:
            expect(len((await other.load("s")).log), session.seq)
        with refusing(SessionNotFoundError):
            await persistence.flush(session)


async def a_released_session_is_stored_and_let_go(harness: BackendHarness) -> None:
    """Release returns when all is stored and the lock is free; what comes later is not stored."""
    store = SessionStore()
    async with SessionRepository(harness.open(), store, window_ms=1) as persistence:
        session = store.create("s", cwd=CWD)
        write_turn(session)
        stored = session.seq
        await persistence.release(session)
        await persistence.release(session)
        # The write-behind of the answer is over by then, and has not taken the lock again.
        await anyio.sleep(0.02)
        async with SessionRepository(harness.open(), SessionStore()) as other:
            expect(len((await other.load("s")).log), stored)
            begin_turn(session)
            store.detach(session)
            await anyio.sleep(0.02)
            expect(len((await other.inspect("s")).log), stored)


@mark.rule("teardown-happens-once", "shutdown-drains-all-sessions")
async def the_end_stores_what_is_pending(harness: BackendHarness) -> None:
    """Leaving drains; what failed before, a detached session's rest included, is tried again."""
    backend, store = FailingBackend(harness.open()), SessionStore()
    async with SessionRepository(backend, store, window_ms=_NO_WINDOW_MS):
        session, detached = store.create("s", cwd=CWD), store.create("d", cwd=CWD)
        write_turn(session)
        write_turn(detached)
        backend.failing = True
        store.detach(detached)
        with anyio.fail_after(5):
            await backend.attempted.wait()
        backend.failing = False
    expect(await _stored_events(harness), list(session.events))
    async with SessionRepository(harness.open(), SessionStore()) as persistence:
        expect(len((await persistence.inspect("d")).log), detached.seq)


@mark.rule("shutdown-drains-all-sessions")
async def the_end_names_everything_it_lost(harness: BackendHarness) -> None:
    """Every session is tried; all failures come together."""
    backend, store = FailingBackend(harness.open()), SessionStore()
    with refusing(StoreShutdownError) as raised:
        async with SessionRepository(backend, store, window_ms=_NO_WINDOW_MS):
            for session_id in ("a", "b"):
                write_turn(store.create(session_id, cwd=CWD))
            backend.failing = True
    expect([error.session_id for error in raised.error.errors], ["a", "b"])


@mark.rule("lost-session-is-closed")
async def a_session_overtaken_by_another_writer_is_given_up(harness: BackendHarness) -> None:
    """Its pending events are dropped, and it can be loaded afresh (lost-session-is-closed)."""
    store = SessionStore()
    async with SessionRepository(harness.open(), store, window_ms=_NO_WINDOW_MS) as persistence:
        session = store.create("s", cwd=CWD)
        write_turn(session)
        await persistence.flush(session)
        harness.grow("s")
        before = harness.contents("s")
        write_turn(session)
        for _ in range(2):
            with refusing(SessionChangedError):
                await persistence.flush(session)
        expect(harness.contents("s"), before)
        await persistence.release(session)
        store.detach(session)
        loaded = await persistence.load("s")
        session = store.create("s", seed=loaded.log, header=loaded.header)
        write_turn(session)
        await persistence.flush(session)
        expect(await _stored_events(harness), list(session.events))


LIVE_CHECKS: tuple[Check, ...] = (
    a_flush_makes_everything_durable,
    a_failed_flush_keeps_everything_for_the_next,
    flushes_at_once_and_events_meanwhile_lose_and_repeat_nothing,
    a_cancelled_flush_leaves_log_and_memory_agreed,
    what_no_checkpoint_asks_for_is_stored_behind,
    a_failing_write_behind_waits_for_the_next_event,
    a_detached_session_is_stored_and_let_go,
    a_released_session_is_stored_and_let_go,
    the_end_stores_what_is_pending,
    the_end_names_everything_it_lost,
    a_session_overtaken_by_another_writer_is_given_up,
)

"""Checks of sessions that are not live: create, append, load, inspect, repair, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from persistence.errors import (
    CorruptLogError,
    SequenceError,
    SessionChangedError,
    SessionCollisionError,
    SessionNotFoundError,
)
from persistence.repository import SessionRepository
from persistence.testing.harness import expect, header, mark, refusing, turn_events
from session_core import SessionCoreError, SessionStore

if TYPE_CHECKING:
    from persistence.testing.harness import BackendHarness, Check


def _open(harness: BackendHarness) -> SessionRepository:
    return SessionRepository(harness.open(), SessionStore())


async def _stored_session(harness: BackendHarness, session_id: str = "s", turns: int = 1) -> None:
    async with _open(harness) as persistence:
        await persistence.create(header(session_id))
        for turn in range(turns):
            await persistence.append(session_id, turn_events(turn + 1, 3 * turn))


async def _stored_crash(harness: BackendHarness) -> None:
    """Store a closed turn and the beginning of a second one."""
    await _stored_session(harness)
    async with _open(harness) as persistence:
        await persistence.append("s", turn_events(2, 3)[:2])


@mark.rule("nothing-stored-before-first-append")
async def a_session_is_stored_by_its_first_event_and_not_before(harness: BackendHarness) -> None:
    """Creating, and appending nothing, leaves nothing behind."""
    async with _open(harness) as persistence:
        await persistence.create(header("s"))
        await persistence.append("s", [])
        expect((await persistence.list()).entries, [])
        expect(await persistence.has("s"), False)
        await persistence.append("s", turn_events(1, 0))
        expect([entry.header.id for entry in (await persistence.list()).entries], ["s"])
        expect(await persistence.has("s"), True)


async def what_was_appended_is_loaded_in_another_process(harness: BackendHarness) -> None:
    """Header and events come back equal, and nothing needs repair."""
    await _stored_session(harness, turns=2)
    async with _open(harness) as persistence:
        loaded = await persistence.load("s")
        expect(loaded.header.id, "s")
        expect(loaded.header.cwd, header("s").cwd)
        expect(loaded.header.created_at, 1000)
        expect(list(loaded.log), [*turn_events(1, 0), *turn_events(2, 3)])
        expect(loaded.repaired, None)


@mark.rule("appends-continue-at-cursor")
async def a_batch_that_does_not_continue_the_log_writes_nothing(harness: BackendHarness) -> None:
    """A gap, a gap inside and a repetition are refused whole."""
    await _stored_session(harness)
    before = harness.contents("s")
    async with _open(harness) as persistence:
        good = turn_events(2, 3)
        for batch in (turn_events(2, 4), [good[0], good[2]], turn_events(1, 0)):
            with refusing(SequenceError):
                await persistence.append("s", batch)
        expect(harness.contents("s"), before)
        await persistence.append("s", good)


@mark.rule("appends-continue-at-cursor")
async def a_batch_is_taken_at_the_call(harness: BackendHarness) -> None:
    """What the caller does to the batch afterwards is not stored."""
    async with _open(harness) as persistence:
        await persistence.create(header("s"))
        batch = turn_events(1, 0)
        appending = persistence.append("s", batch)
        batch.clear()
        await appending
        expect(list((await persistence.inspect("s")).log), turn_events(1, 0))


@mark.rule("created-ids-are-new")
async def an_id_is_created_once(harness: BackendHarness) -> None:
    """Neither a created nor a stored id can be created again."""
    async with _open(harness) as persistence:
        await persistence.create(header("s"))
        with refusing(SessionCollisionError):
            await persistence.create(header("s"))
        await persistence.append("s", turn_events(1, 0))
    async with _open(harness) as persistence:
        with refusing(SessionCollisionError):
            await persistence.create(header("s", cwd="/elsewhere"))


@mark.rule("created-ids-are-new")
async def an_id_that_another_process_stored_meanwhile_is_refused(harness: BackendHarness) -> None:
    """The first append finds it out, writes nothing and leaves the session to the other."""
    async with _open(harness) as persistence:
        await persistence.create(header("s"))
        await _stored_session(harness)
        before = harness.contents("s")
        with refusing(SessionCollisionError):
            await persistence.append("s", turn_events(1, 0))
        expect(harness.contents("s"), before)
        async with _open(harness) as other:
            await other.load("s")


@mark.rule("load-of-unknown-is-not-found")
async def an_unknown_session_is_not_found(harness: BackendHarness) -> None:
    """Every method says so, and reads nothing into odd ids."""
    async with _open(harness) as persistence:
        for session_id in ("nobody", "../nobody", "x" * 1000, ""):
            with refusing(SessionNotFoundError):
                await persistence.load(session_id)
            with refusing(SessionNotFoundError):
                await persistence.inspect(session_id)
            with refusing(SessionNotFoundError):
                await persistence.append(session_id, turn_events(1, 0))
            with refusing(SessionNotFoundError):
                await persistence.delete(session_id)
            expect(await persistence.has(session_id), False)


@mark.rule("removed-forms-are-refused")
async def removed_vocabulary_is_refused(harness: BackendHarness) -> None:
    """A store neither takes nor keeps the forms that left the format."""
    async with _open(harness) as persistence:
        await persistence.create(header("s"))
        for event_type in ("request/header-delta", "mode/set"):
            event: dict[str, Any] = {"type": event_type, "seq": 0, "time": 1, "data": {}}
            with refusing(SessionCoreError):
                persistence.append("s", [event])


@mark.rule("repair-happens-once", "open-turn-gets-closers")
async def an_interrupted_turn_is_closed_once(harness: BackendHarness) -> None:
    """The first load appends the closers, the second changes nothing."""
    await _stored_crash(harness)
    async with _open(harness) as persistence:
        loaded = await persistence.load("s")
        expect([event.type for event in loaded.log][-1], "turn/end")
        expect(loaded.log.event_at(5).data["reason"], {"kind": "interrupted"})
        expect(loaded.repaired is not None and loaded.repaired.closer_count, 1)
    after = harness.contents("s")
    async with _open(harness) as persistence:
        again = await persistence.load("s")
        expect(list(again.log), list(loaded.log))
        expect(again.repaired, None)
    expect(harness.contents("s"), after)


@mark.rule("inspect-changes-nothing")
async def inspecting_changes_nothing(harness: BackendHarness) -> None:
    """It shows the log as it is: no closers, no lock, no repair."""
    await _stored_crash(harness)
    harness.tear("s")
    before = harness.contents("s")
    async with _open(harness) as persistence:
        inspected = await persistence.inspect("s")
        expect(list(inspected.log), [*turn_events(1, 0), *turn_events(2, 3)[:2]])
        expect(harness.contents("s"), before)


@mark.rule("torn-tail-is-cut", "unterminated-record-is-kept")
async def a_torn_tail_is_cut(harness: BackendHarness) -> None:
    """What was complete stays, and later appends do not fuse with the fragment."""
    await _stored_session(harness)
    before = harness.contents("s")
    harness.tear("s")
    async with _open(harness) as persistence:
        loaded = await persistence.load("s")
        expect(list(loaded.log), turn_events(1, 0))
        expect(loaded.repaired is not None and loaded.repaired.torn is not None, True)
        expect(harness.contents("s"), before)
        await persistence.append("s", turn_events(2, 3))
    async with _open(harness) as persistence:
        expect(list((await persistence.load("s")).log), [*turn_events(1, 0), *turn_events(2, 3)])


@mark.rule("damage-refuses-the-load")
async def damage_is_named_and_left_alone(harness: BackendHarness) -> None:
    """A damaged log loads in no way, and stays as it is."""
    await _stored_session(harness, turns=3)
    harness.damage("s")
    before = harness.contents("s")
    async with _open(harness) as persistence:
        for read in (persistence.load, persistence.inspect):
            with refusing(CorruptLogError) as raised:
                await read("s")
            expect(raised.error.session_id, "s")
            expect(raised.error.seq is not None or raised.error.offset is not None, True)
        expect(await persistence.has("s"), True)
    expect(harness.contents("s"), before)


@mark.rule("changed-log-is-never-overwritten")
async def a_log_that_another_writer_changed_is_not_written_to(harness: BackendHarness) -> None:
    """What no lock can prevent is noticed before the next write.

    Rule: changed-log-is-never-overwritten.
    """
    await _stored_session(harness)
    async with _open(harness) as persistence:
        await persistence.load("s")
        harness.grow("s")
        before = harness.contents("s")
        with refusing(SessionChangedError):
            await persistence.append("s", turn_events(2, 3))
        expect(harness.contents("s"), before)


@mark.rule("loaded-objects-are-detached")
async def appends_after_a_load_go_to_the_right_place(harness: BackendHarness) -> None:
    """A load teaches the cursor; an append to a stored id loads it first."""
    await _stored_crash(harness)
    async with _open(harness) as persistence:
        # The load inside closes turn 2 at seq 5.
        await persistence.append("s", turn_events(3, 6))
        expect([event.seq for event in (await persistence.inspect("s")).log], list(range(9)))


@mark.rule("revision-changes-with-log")
async def the_revision_follows_the_log(harness: BackendHarness) -> None:
    """It changes with every append and with a recreation, and with nothing else."""

    async def revision() -> str:
        (entry,) = (await persistence.list()).entries
        return entry.revision

    async with _open(harness) as persistence:
        await persistence.create(header("s"))
        await persistence.append("s", turn_events(1, 0))
        first = await revision()
        await persistence.inspect("s")
        await persistence.list()
        expect(await revision(), first)
        await persistence.append("s", turn_events(2, 3))
        second = await revision()
        expect(second == first, False)
        await persistence.delete("s")
        await persistence.create(header("s"))
        await persistence.append("s", turn_events(1, 0))
        expect(await revision() in {first, second}, False)


@mark.rule("delete-needs-the-lock")
async def a_deleted_session_is_gone_for_every_process(harness: BackendHarness) -> None:
    """Its id can be used anew, and the new session has nothing of the old one."""
    await _stored_session(harness)
    async with _open(harness) as persistence, _open(harness) as other:
        await persistence.load("s")
        await persistence.delete("s")
        expect(harness.contents("s"), None)
        expect((await other.list()).entries, [])
        with refusing(SessionNotFoundError):
            await other.load("s")
        with refusing(SessionNotFoundError):
            await persistence.delete("s")
        await other.create(header("s"))
        await other.append("s", turn_events(1, 0, text="anew"))
        expect(list((await other.inspect("s")).log), turn_events(1, 0, text="anew"))


STORED_CHECKS: tuple[Check, ...] = (
    a_session_is_stored_by_its_first_event_and_not_before,
    what_was_appended_is_loaded_in_another_process,
    a_batch_that_does_not_continue_the_log_writes_nothing,
    a_batch_is_taken_at_the_call,
    an_id_is_created_once,
    an_id_that_another_process_stored_meanwhile_is_refused,
    an_unknown_session_is_not_found,
    removed_vocabulary_is_refused,
    an_interrupted_turn_is_closed_once,
    inspecting_changes_nothing,
    a_torn_tail_is_cut,
    damage_is_named_and_left_alone,
    a_log_that_another_writer_changed_is_not_written_to,
    appends_after_a_load_go_to_the_right_place,
    the_revision_follows_the_log,
    a_deleted_session_is_gone_for_every_process,
)

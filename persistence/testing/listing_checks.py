"""Checks of the list: order, pages, rows, damage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from persistence.errors import InvalidCursorError
from persistence.repository import SessionRepository
from persistence.storage import SessionSummary
from persistence.testing.harness import (
    begin_turn,
    expect,
    header,
    mark,
    refusing,
    turn_events,
    write_turn,
)
from session_core import SessionStore

if TYPE_CHECKING:
    from persistence.storage import SessionEntry
    from persistence.testing.harness import BackendHarness, Check

_LAST_TIME = 2**53 - 1
# [1.5, "a"], [true, "a"], [2**64, "a"], [-1, "a"]
_WRONG_CURSORS = (
    "WzEuNSwiYSJd",
    "W3RydWUsImEiXQ",
    "WzE4NDQ2NzQ0MDczNzA5NTUxNjE2LCJhIl0",
    "Wy0xLCJhIl0",
)


def _open(harness: BackendHarness) -> SessionRepository:
    return SessionRepository(harness.open(), SessionStore())


async def _store(
    persistence: SessionRepository, session_id: str, time: int, cwd: str = "/work/project"
) -> None:
    await persistence.create(header(session_id, cwd))
    await persistence.append(session_id, turn_events(1, 0, time=time, text=session_id))


@mark.rule("list-pages-newest-first")
async def the_latest_session_comes_first(harness: BackendHarness) -> None:
    """By the end of the last message turn, then by id; another process sees the same.

    Rule: list-rows-fold-the-log.
    """
    async with _open(harness) as persistence:
        for session_id, time in (("b", 5000), ("a", 5000), ("old", 3000), ("new", 9000)):
            await _store(persistence, session_id, time)
        page = await persistence.list()
        expect([entry.header.id for entry in page.entries], ["new", "a", "b", "old"])
        expect(page.next_cursor, None)
        await persistence.append("old", turn_events(2, 3, time=10_000))
        entries = (await persistence.list()).entries
        expect([entry.header.id for entry in entries], ["old", "new", "a", "b"])
    async with _open(harness) as persistence:
        expect((await persistence.list()).entries, entries)


@mark.rule("list-pages-newest-first")
async def pages_neither_repeat_nor_lose_a_session(harness: BackendHarness) -> None:
    """A cursor names a row, so that sessions which come or move do not shift the rest."""
    async with _open(harness) as persistence:
        for k in range(7):
            await _store(persistence, f"s{k}", 9000 - k)
        seen: list[str] = []
        cursor = None
        while True:
            page = await persistence.list(cursor=cursor, limit=3)
            seen += [entry.header.id for entry in page.entries]
            cursor = page.next_cursor
            if cursor is None:
                break
            await _store(persistence, f"late{len(seen)}", 20_000)
        expect(seen, [f"s{k}" for k in range(7)])


@mark.rule("list-pages-newest-first")
async def a_foreign_cursor_is_refused(harness: BackendHarness) -> None:
    """Whatever text it is."""
    async with _open(harness) as persistence:
        for cursor in ("", "x", "é", "bnVsbA", "WzEsMl0", *_WRONG_CURSORS):
            with refusing(InvalidCursorError):
                await persistence.list(cursor=cursor)


async def a_row_says_what_a_picker_shows(harness: BackendHarness) -> None:
    """Title, first prompt, times and counts, of the session as it is stored."""
    store = SessionStore(clock=iter(range(1000, 9000)).__next__)
    async with SessionRepository(harness.open(), store) as persistence:
        session = store.create("s", cwd="/work/project")
        write_turn(session, "first  words\nof it")
        session.append("turn/start", {"turn": 2, "trigger": {"kind": "plugin", "plugin": "t"}})
        title = {"title": "A title", "messageSeqs": [1], "source": {"kind": "fallback"}}
        session.append("session/title", title)
        session.append("turn/end", {"turn": 2, "reason": {"kind": "completed"}})
        await persistence.flush(session)
        (entry,) = (await persistence.list()).entries
        expect(entry.summary.title, "A title")
        expect(entry.summary.first_prompt, "first words of it")
        expect(entry.summary.turn_count, 2)
        expect(entry.summary.event_count, session.seq)
        ends = [event.time for event in session.events if event.type == "turn/end"]
        expect(entry.summary.updated_at, ends[0])
        begin_turn(session)
        await persistence.flush(session)
        (entry,) = (await persistence.list()).entries
        expect(entry.summary.event_count, session.seq)
        expect(entry.summary.updated_at, ends[0])


@mark.rule("list-pages-newest-first")
@mark.case("B59")
async def a_session_is_never_older_than_its_birth(harness: BackendHarness) -> None:
    """A clock that went back does not put a session before its creation."""
    async with _open(harness) as persistence:
        await persistence.create(header("s", created_at=8000))
        await persistence.append("s", turn_events(1, 0, time=100))
        (entry,) = (await persistence.list()).entries
        expect(entry.summary.updated_at, 8000)


@mark.rule("bad-entries-hide-no-others")
@mark.case("B50")
async def a_bad_session_hides_no_other(harness: BackendHarness) -> None:
    """It may be missing from the list or not; the good ones are in it."""
    async with _open(harness) as persistence:
        for session_id in ("bad", "good", "torn"):
            await _store(persistence, session_id, 5000)
            await persistence.append(session_id, turn_events(2, 3))
    harness.damage("bad")
    harness.tear("torn")
    async with _open(harness) as persistence:
        entries: dict[str, SessionEntry] = {
            entry.header.id: entry for entry in (await persistence.list()).entries
        }
        expect(entries.keys() - {"bad"}, {"good", "torn"})
        expect(entries["torn"].summary, SessionSummary(None, "torn", 2002, 6, 2))


@mark.rule("bad-entries-hide-no-others")
async def a_time_that_no_calendar_has_hides_no_session(harness: BackendHarness) -> None:
    """It is the largest integer of a log, and pages go on behind it."""
    async with _open(harness) as persistence:
        await persistence.create(header("born late", created_at=_LAST_TIME))
        await persistence.append("born late", turn_events(1, 0))
        await _store(persistence, "ended late", _LAST_TIME - 2)
        await _store(persistence, "good", 5000)
    async with _open(harness) as persistence:
        seen: list[tuple[str, int]] = []
        cursor = None
        while not seen or cursor is not None:
            page = await persistence.list(cursor=cursor, limit=1)
            seen += [(entry.header.id, entry.summary.updated_at) for entry in page.entries]
            cursor = page.next_cursor
        expect(seen, [("born late", _LAST_TIME), ("ended late", _LAST_TIME), ("good", 5000 + 2)])


@mark.rule("bad-entries-hide-no-others")
async def a_path_that_no_system_has_hides_no_session(harness: BackendHarness) -> None:
    """Neither the path of a stored session nor the one that is asked for."""
    nul = "/work/\0"
    async with _open(harness) as persistence:
        await _store(persistence, "bad", 5000, nul)
        await _store(persistence, "good", 5000)
        for cwd, wanted in (("/work/project", ["good"]), (None, ["bad", "good"])):
            entries = (await persistence.list(cwd=cwd)).entries
            expect([entry.header.id for entry in entries], wanted)
        await persistence.list(cwd=nul)


@mark.rule("list-rows-are-short")
async def a_long_text_makes_no_long_row(harness: BackendHarness) -> None:
    """Title and first prompt of a foreign log are one line of at most 200 characters."""
    text = "long \n\t text " * 100_000
    line = " ".join(text[:1000].split())[:200].rstrip()
    async with _open(harness) as persistence:
        await persistence.create(header("s"))
        await persistence.append("s", turn_events(1, 0, text=text))
        title = {"title": text, "messageSeqs": [], "source": {"kind": "user"}}
        await persistence.append(
            "s", [{"type": "session/title", "seq": 3, "time": 9, "data": title}]
        )
        for _ in range(2):
            (entry,) = (await persistence.list()).entries
            expect((entry.summary.title, entry.summary.first_prompt), (line, line))


async def a_session_without_a_directory_is_in_no_directory(harness: BackendHarness) -> None:
    """It is listed when no directory is asked for."""
    async with _open(harness) as persistence:
        await persistence.create(header("s", None))
        await persistence.append("s", turn_events(1, 0))
        expect(len((await persistence.list()).entries), 1)
        expect((await persistence.list(cwd="/")).entries, [])
        expect((await persistence.inspect("s")).header.cwd, None)


LISTING_CHECKS: tuple[Check, ...] = (
    the_latest_session_comes_first,
    pages_neither_repeat_nor_lose_a_session,
    a_foreign_cursor_is_refused,
    a_row_says_what_a_picker_shows,
    a_session_is_never_older_than_its_birth,
    a_bad_session_hides_no_other,
    a_time_that_no_calendar_has_hides_no_session,
    a_path_that_no_system_has_hides_no_session,
    a_long_text_makes_no_long_row,
    a_session_without_a_directory_is_in_no_directory,
)

"""Rows of one session: atomic batches, torn ends, damage, what the guard notices."""

from pathlib import Path
from typing import Any

import pytest

from persistence import (
    CorruptLogError,
    PersistenceError,
    SessionChangedError,
    SessionRepository,
    StoreWriteError,
    UnsupportedVersionError,
    open_backend,
)
from persistence.sqlite.harness import SqliteHarness
from persistence.storage import SessionSummary
from persistence.testing.harness import header, turn_events, write_turn
from session_core import Event, FrozenDict, Replace, SessionHeader, SessionId, SessionStore
from tests.persistence.repositories import opened, stored


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def revision(harness: SqliteHarness) -> str:
    async with opened(harness) as persistence:
        (entry,) = (await persistence.list()).entries
        return entry.revision


@pytest.mark.rule("database-appends-are-transactions")
@pytest.mark.parametrize("fails_at", [0, 1, 2])
async def test_a_first_batch_that_fails_leaves_no_session(
    harness: SqliteHarness, fails_at: int
) -> None:
    await stored(harness, "other")
    harness.execute(
        f"CREATE TRIGGER t BEFORE INSERT ON events WHEN new.seq = {fails_at}"
        " BEGIN SELECT RAISE(ABORT, 'no'); END"
    )
    backend = harness.open()
    writer = await backend.acquire_writer("s", header("s"))
    with pytest.raises(StoreWriteError):
        await writer.append_batch(header("s"), turn_events(1, 0))
    assert not writer.materialized
    assert harness.execute("SELECT id FROM sessions") == [("other",)]
    assert harness.contents("s") is None
    harness.execute("DROP TRIGGER t")
    await writer.append_batch(header("s"), turn_events(1, 0))
    assert writer.materialized
    await backend.close()


@pytest.mark.rule("database-appends-are-transactions")
async def test_a_later_batch_that_fails_changes_nothing_and_can_be_repeated(
    harness: SqliteHarness,
) -> None:
    await stored(harness)
    backend = harness.open()
    writer = await backend.acquire_writer("s")
    before = await backend.load_stored("s")
    assert before is not None
    await writer.commit_repair(before, ())
    harness.execute(
        "CREATE TRIGGER t BEFORE INSERT ON events WHEN new.seq = 4"
        " BEGIN SELECT RAISE(ABORT, 'no'); END"
    )
    rows = harness.contents("s")
    with pytest.raises(StoreWriteError):
        await writer.append_batch(header("s"), turn_events(2, 3))
    assert harness.contents("s") == rows
    harness.execute("DROP TRIGGER t")
    await writer.append_batch(header("s"), turn_events(2, 3))
    after = await backend.load_stored("s")
    assert after is not None
    assert list(after.log) == [*turn_events(1, 0), *turn_events(2, 3)]
    await backend.close()


@pytest.mark.rule("damage-refuses-the-load", "torn-tail-is-cut")
async def test_an_unreadable_row_behind_the_last_turn_end_is_dropped(
    harness: SqliteHarness,
) -> None:
    async with opened(harness) as persistence:
        await persistence.create(header("s"))
        await persistence.append("s", [*turn_events(1, 0), *turn_events(2, 3)[:2]])
    harness.execute("UPDATE events SET crc = NULL")
    harness.execute("UPDATE events SET data = '{' WHERE seq = 4")
    async with opened(harness) as persistence:
        loaded = await persistence.load("s")
        assert [event.type for event in loaded.log][3:] == ["turn/start", "turn/end"]
        assert loaded.repaired is not None
        assert loaded.repaired.closer_count == 1
    async with opened(harness) as persistence:
        assert list((await persistence.load("s")).log) == list(loaded.log)


@pytest.mark.rule("damage-refuses-the-load", "torn-tail-is-cut")
@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE events SET data = '{' WHERE seq = 4",
        "UPDATE events SET data = '{}' WHERE seq = 2",
        "UPDATE events SET type = 'turn/stop' WHERE seq = 5",
        "UPDATE events SET time = time + 1 WHERE seq = 3",
        "UPDATE events SET surface_op = NULL WHERE seq = 1",
        "UPDATE events SET seq = 1000 WHERE seq = 3",
        "UPDATE events SET last_seq = last_seq + 1 WHERE seq = 4",
        "UPDATE events SET crc = crc + 1 WHERE seq = 2",
        "UPDATE events SET source_event_seqs = '[0]' WHERE seq = 4",
        "UPDATE events SET type = CAST(X'ff' AS TEXT) WHERE seq = 0",
        "UPDATE sessions SET cwd = '/elsewhere'",
        "UPDATE sessions SET created_at = created_at + 1",
        "UPDATE sessions SET extra = '{\"a\": 1}'",
        "DELETE FROM events WHERE seq = 1",
        "DELETE FROM events WHERE seq >= 3",
        "DELETE FROM events",
    ],
)
async def test_damage_in_committed_rows_is_found(harness: SqliteHarness, damage: str) -> None:
    await stored(harness, turns=2)
    harness.execute(damage)
    before = harness.contents("s")
    async with opened(harness) as persistence:
        for read in (persistence.load, persistence.inspect):
            with pytest.raises(CorruptLogError) as raised:
                await read("s")
            assert raised.value.session_id == "s"
    assert harness.contents("s") == before


async def test_events_without_a_session_are_damage_and_can_be_deleted(
    harness: SqliteHarness,
) -> None:
    await stored(harness)
    harness.execute("DELETE FROM sessions")
    async with opened(harness) as persistence:
        with pytest.raises(CorruptLogError, match="missing"):
            await persistence.load("s")
        assert await persistence.has("s")
        await persistence.delete("s")
        assert not await persistence.has("s")
    assert harness.execute("SELECT count(*) FROM events") == [(0,)]


@pytest.mark.rule("batches-are-checksummed")
async def test_a_log_without_checksums_loads(harness: SqliteHarness) -> None:
    await stored(harness, turns=2)
    harness.execute("UPDATE events SET crc = NULL")
    async with opened(harness) as persistence:
        assert len((await persistence.load("s")).log) == 6
        await persistence.append("s", turn_events(3, 6))
    harness.execute("UPDATE events SET time = time + 1 WHERE seq = 0")
    async with opened(harness) as persistence:
        with pytest.raises(CorruptLogError):
            await persistence.load("s")


@pytest.mark.rule("refused-records-are-not-cut")
async def test_removed_vocabulary_in_an_open_turn_is_refused_and_not_cut(
    harness: SqliteHarness,
) -> None:
    await stored(harness)
    harness.execute("INSERT INTO events VALUES ('s', 3, 3, 'mode/set', 1, '{}', NULL, NULL, NULL)")
    async with opened(harness) as persistence:
        with pytest.raises(CorruptLogError, match="mode/set"):
            await persistence.load("s")


@pytest.mark.rule("revision-changes-with-log")
async def test_revisions_are_the_same_after_a_reopen_and_others_after_a_recreation(
    harness: SqliteHarness,
) -> None:
    await stored(harness)
    first = await revision(harness)
    assert await revision(harness) == first
    store_id = harness.execute("SELECT store_id FROM persistence_state")
    async with opened(harness) as persistence:
        await persistence.delete("s")
    await stored(harness)
    assert await revision(harness) != first
    assert harness.execute("SELECT store_id FROM persistence_state") == store_id


@pytest.mark.rule("database-appends-are-transactions")
async def test_an_empty_repair_keeps_the_revision_and_an_append_adds_one(
    harness: SqliteHarness,
) -> None:
    await stored(harness)
    numbers = "SELECT revision FROM sessions"
    (before,) = harness.execute(numbers)
    async with opened(harness) as persistence:
        await persistence.load("s")
        assert harness.execute(numbers) == [before]
        await persistence.append("s", turn_events(2, 3))
        assert harness.execute(numbers) == [(before[0] + 1,)]


@pytest.mark.rule("database-has-fixed-shape")
async def test_surface_operations_and_sources_come_back_as_they_were(
    harness: SqliteHarness,
) -> None:
    start, message, end = turn_events(1, 0)
    summary = Event("context/message", 2, 5, message.data, (0, 1), Replace(1, 1))
    plain = Event('x/unknown é"\\', 3, 6, FrozenDict({"a": [1, 1.0, True, None, "\u0000"]}))
    last = end._replace(seq=4)
    async with opened(harness) as persistence:
        await persistence.create(header("s"))
        await persistence.append("s", [start, message, summary, plain, last])
    rows = harness.execute("SELECT source_event_seqs, surface_op FROM events ORDER BY seq")
    assert rows[0] == (None, None)
    assert rows[2] == ("[0,1]", '{"op":"replace","start":1,"end":1}')
    async with opened(harness) as persistence:
        loaded = list((await persistence.inspect("s")).log)
        assert loaded == [start, message, summary, plain, last]
        assert repr(loaded[3].data) == repr(plain.data)


@pytest.mark.rule("database-has-fixed-shape")
async def test_deleting_the_session_row_deletes_its_events(harness: SqliteHarness) -> None:
    await stored(harness, "s")
    await stored(harness, "other")
    with harness.connected() as connection:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("DELETE FROM sessions WHERE id = 's'")
    assert harness.execute("SELECT DISTINCT session_id FROM events") == [("other",)]


@pytest.mark.rule("database-never-blocks-loop")
async def test_appends_to_two_sessions_do_not_mix(harness: SqliteHarness) -> None:
    async with opened(harness) as persistence:
        for session_id in "ab":
            await persistence.create(header(session_id))
        for turn in range(3):
            for session_id in "ab":
                events = turn_events(turn + 1, 3 * turn, text=f"{session_id}{turn}")
                await persistence.append(session_id, events)
    async with opened(harness) as persistence:
        for session_id in "ab":
            wanted = [
                event
                for turn in range(3)
                for event in turn_events(turn + 1, 3 * turn, text=f"{session_id}{turn}")
            ]
            assert list((await persistence.load(session_id)).log) == wanted


async def test_streamed_deltas_are_one_row_a_batch(harness: SqliteHarness) -> None:
    store = SessionStore()
    async with SessionRepository(harness.open(), store) as persistence:
        session = store.create("s", cwd="/work")
        write_turn(session, deltas=50)
        await persistence.flush(session)
    rows = harness.execute("SELECT seq, last_seq, crc IS NULL FROM events ORDER BY seq")
    assert (3, 52, 1) in rows
    assert [row[2] for row in rows] == [1] * (len(rows) - 1) + [0]
    async with opened(harness) as persistence:
        assert list((await persistence.load("s")).log) == list(session.events)


async def test_packing_off_gives_a_row_an_event(tmp_path: Path) -> None:
    store = SessionStore()
    backend = open_backend(f"sqlite:{tmp_path}/store.db", pack=False)
    async with SessionRepository(backend, store) as persistence:
        session = store.create("s", cwd="/work")
        write_turn(session, deltas=50)
        await persistence.flush(session)
        count = session.seq
    harness = SqliteHarness(tmp_path / "store.db")
    assert harness.execute("SELECT count(*) FROM events WHERE seq = last_seq") == [(count,)]
    async with opened(harness) as persistence:
        assert list((await persistence.load("s")).log) == list(session.events)


@pytest.mark.rule("only-version-zero-is-read")
@pytest.mark.case("B42")
@pytest.mark.parametrize("version", [1, -1, 10**9])
async def test_a_session_of_another_version_is_refused_listed_around_and_deletable(
    harness: SqliteHarness, version: int
) -> None:
    await stored(harness, "s")
    await stored(harness, "other")
    harness.execute(f"UPDATE sessions SET version = {version} WHERE id = 's'")
    async with opened(harness) as persistence:
        with pytest.raises(UnsupportedVersionError, match=f"{version}.*supports 0"):
            await persistence.load("s")
        entries = (await persistence.list()).entries
        assert [entry.header.id for entry in entries] == ["other"]
        assert await persistence.has("s")
        await persistence.delete("s")
        assert not await persistence.has("s")


@pytest.mark.rule("bad-entries-hide-no-others")
@pytest.mark.case("B50")
async def test_unreadable_session_rows_hide_no_other(
    harness: SqliteHarness, caplog: pytest.LogCaptureFixture
) -> None:
    for session_id in ("a", "b", "c", "d"):
        await stored(harness, session_id)
    harness.execute("UPDATE sessions SET cwd = CAST(X'00FF' AS TEXT) WHERE id = 'a'")
    harness.execute("UPDATE sessions SET extra = 'not json' WHERE id = 'b'")
    harness.execute("UPDATE sessions SET title = CAST(X'FF' AS TEXT) WHERE id = 'c'")
    async with opened(harness) as persistence:
        page = await persistence.list(limit=1)
        assert [entry.header.id for entry in page.entries] == ["c"]
        page = await persistence.list(cursor=page.next_cursor, limit=1)
        assert [entry.header.id for entry in page.entries] == ["d"]
        assert page.next_cursor is None
        for session_id in "ab":
            assert f"session '{session_id}' is damaged" in caplog.text
            with pytest.raises(CorruptLogError):
                await persistence.load(session_id)


@pytest.mark.rule("bad-entries-hide-no-others")
@pytest.mark.parametrize(
    ("column", "value"),
    [
        *(("id", value) for value in ("CAST(id AS BLOB)", "unicode(id)", "unicode(id) + 0.5")),
        *(("cwd", value) for value in ("X'61'", "7", "1.5", "'work'")),
        *(("created_at", value) for value in ("'x'", "X'61'", "1.5", "-1", "1 << 60")),
        *(("updated_at", value) for value in ("'x'", "X'61'", "1.5", "-1", "1 << 60", "9e999")),
        *(("event_count", value) for value in ("'x'", "1.5", "-1")),
        ("title", "7"),
        ("incarnation", "7"),
    ],
)
async def test_a_value_of_the_wrong_type_costs_its_row_and_is_named_once(
    harness: SqliteHarness, column: str, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    for session_id in ("a", "b", "c", "d"):
        await stored(harness, session_id)
    with harness.connected() as connection:
        # A flipped bit does not ask what a column may hold.
        connection.execute("PRAGMA writable_schema = ON")
        loose = (
            "replace(replace(replace(sql, 'STRICT, ', ''), ' TEXT', ' BLOB'), ' INTEGER', ' BLOB')"
        )
        connection.execute(f"UPDATE sqlite_schema SET sql = {loose} WHERE name = 'sessions'")
    with harness.connected() as connection:
        connection.execute(f"UPDATE sessions SET {column} = {value} WHERE id IN ('a', 'b')")
    async with opened(harness) as persistence:
        for cwd in (None, "/work/project", None):
            cursor = None
            seen: list[str] = []
            while not seen or cursor is not None:
                page = await persistence.list(cwd=cwd, cursor=cursor, limit=1)
                seen += [entry.header.id for entry in page.entries]
                cursor = page.next_cursor
            assert seen == ["c", "d"]
    assert len(caplog.messages) == 2, caplog.messages


@pytest.mark.rule("changed-log-is-never-overwritten")
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("UPDATE sessions SET revision = revision + 1", "another revision"),
        ("UPDATE sessions SET incarnation = 'x'", "another revision"),
        ("DELETE FROM events WHERE seq = 2", "other events"),
        ("DELETE FROM sessions", "gone"),
    ],
)
async def test_the_guard_notices_what_no_lock_prevents(
    harness: SqliteHarness, change: str, reason: str
) -> None:
    await stored(harness)
    async with opened(harness) as persistence:
        await persistence.load("s")
        harness.execute(change)
        before = harness.contents("s")
        with pytest.raises(SessionChangedError, match=reason):
            await persistence.append("s", turn_events(2, 3))
        assert harness.contents("s") == before


@pytest.mark.rule("summary-is-only-a-cache")
async def test_a_summary_is_exact_after_every_batch(harness: SqliteHarness) -> None:
    """Within a turn too, and after a repair."""
    async with opened(harness) as persistence:
        await persistence.create(header("s"))
        await persistence.append("s", turn_events(1, 0))
        await persistence.append("s", turn_events(2, 3, time=9000)[:2])
        (entry,) = (await persistence.list()).entries
        assert entry.summary == SessionSummary(None, "hello", 2002, 5, 2)
    async with opened(harness) as persistence:
        await persistence.load("s")
        (entry,) = (await persistence.list()).entries
        assert entry.summary == SessionSummary(None, "hello", 9001, 6, 2)


async def test_a_header_comes_back_as_it_was(harness: SqliteHarness) -> None:
    extra: dict[str, Any] = {"x": [1, {"y": None}], "z": "é"}
    made = SessionHeader(SessionId("s"), 7, "/w", SessionId("p"), 0, 2, extra=FrozenDict(extra))
    async with opened(harness) as persistence:
        await persistence.create(made)
        await persistence.append("s", turn_events(1, 0))
    async with opened(harness) as persistence:
        assert (await persistence.load("s")).header == made


@pytest.mark.parametrize("session_id", ["../x", "a/b", ".", "~", "\N{GRINNING FACE}", "a b?c#d%20"])
async def test_any_id_has_its_own_lock_file(harness: SqliteHarness, session_id: str) -> None:
    await stored(harness, session_id)
    suffixes = [Path(name).suffix for name in names_in(Path(f"{harness.path}.locks"))]
    assert suffixes == [".lock", ".pid"]
    async with opened(harness) as persistence:
        await persistence.delete(session_id)
    assert names_in(harness.path.parent) == ["store.db"]


@pytest.mark.parametrize("session_id", ["", "x" * 251, "\ud800"])
async def test_an_id_that_cannot_be_stored_is_refused(
    harness: SqliteHarness, session_id: str
) -> None:
    backend = harness.open()
    with pytest.raises(PersistenceError, match="cannot be stored"):
        await backend.acquire_writer(session_id, header("s"))
    assert await backend.load_stored(session_id) is None
    await backend.close()

"""What stands at the path before it is opened: an interrupted store of ours, or none of ours."""

import os
import sqlite3
import stat
from pathlib import Path

import pytest

from persistence import ForeignStoreError, SessionRepository
from persistence.sqlite import SqliteBackend, sql
from persistence.sqlite.harness import SqliteHarness
from persistence.testing.harness import header, turn_events
from session_core import SessionStore

PAGE = 4096


@pytest.fixture
def harness(tmp_path: Path) -> SqliteHarness:
    return SqliteHarness(tmp_path / "store.db")


def opened(harness: SqliteHarness) -> SessionRepository:
    return SessionRepository(harness.open(), SessionStore())


async def store_turn(harness: SqliteHarness, session_id: str = "s", text: str = "hello") -> None:
    async with opened(harness) as persistence:
        await persistence.create(header(session_id))
        await persistence.append(session_id, turn_events(1, 0, text=text))


def beside(harness: SqliteHarness, suffix: str) -> Path:
    return harness.path.with_name(f"{harness.path.name}{suffix}")


def files_under(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def leave_interrupted_checkpoint(harness: SqliteHarness) -> None:
    """Leave what a process leaves that dies once a checkpoint has written the first page."""
    await store_turn(harness)
    with harness.connected() as holder:
        holder.execute("SELECT * FROM sessions").fetchone()
        # As long as it is open, no other connection is the last one, which moves the -wal.
        await store_turn(harness, "large", text="x" * 100_000)
        before, wal = harness.path.read_bytes(), beside(harness, "-wal").read_bytes()
    after = harness.path.read_bytes()
    assert len(after) > len(before)
    harness.path.write_bytes(after[:PAGE] + before[PAGE:])
    beside(harness, "-wal").write_bytes(wal)


@pytest.mark.parametrize("tolerate", [True, False], ids=["tolerant", "intolerant"])
async def test_an_interrupted_checkpoint_is_mended(
    harness: SqliteHarness, monkeypatch: pytest.MonkeyPatch, tolerate: bool
) -> None:
    await leave_interrupted_checkpoint(harness)
    if not tolerate:
        # Some libraries ignore it.
        monkeypatch.setattr(sql, "TOLERATE_A_WRONG_SIZE", "SELECT 1")
    async with opened(harness) as persistence:
        assert len((await persistence.list()).entries) == 2
        log = (await persistence.load("large")).log
        assert list(log) == turn_events(1, 0, text="x" * 100_000)
        await persistence.append("large", turn_events(2, 3))


async def test_a_foreign_interrupted_checkpoint_is_left_alone(harness: SqliteHarness) -> None:
    await leave_interrupted_checkpoint(harness)
    data = bytearray(harness.path.read_bytes())
    data[68:72] = b"ELSE"
    harness.path.write_bytes(data)
    before = files_under(harness.path.parent)
    with pytest.raises(ForeignStoreError, match="application id is 0x454c5345"):
        harness.open()
    assert files_under(harness.path.parent) == before


async def test_a_newer_schema_in_the_wal_is_refused_and_kept(harness: SqliteHarness) -> None:
    await store_turn(harness)
    with harness.connected() as holder:
        holder.execute("PRAGMA user_version = 2")
        parts = {suffix: beside(harness, suffix).read_bytes() for suffix in ("", "-wal")}
    for suffix, data in parts.items():
        beside(harness, suffix).write_bytes(data)
    async with opened(harness) as persistence:
        for _ in range(2):
            with pytest.raises(ForeignStoreError, match="version 2"):
                await persistence.list()
    assert harness.execute("PRAGMA user_version") == [(2,)]
    assert len(harness.execute("SELECT * FROM sessions")) == 1


def hot_journal(path: Path) -> bytes:
    """Make a database of another program at `path`, and leave it as if killed in a commit."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("CREATE TABLE t (x)")
    connection.execute("INSERT INTO t VALUES (randomblob(100000))")
    # Small enough that pages are written before the commit.
    connection.execute("PRAGMA cache_size = 1")
    connection.execute("BEGIN")
    connection.execute("UPDATE t SET x = randomblob(200000)")
    data, journal = path.read_bytes(), Path(f"{path}-journal").read_bytes()
    connection.close()
    path.write_bytes(data)
    Path(f"{path}-journal").write_bytes(journal)
    assert journal[0]
    return journal


def test_a_foreign_database_with_a_hot_journal_is_left_alone(harness: SqliteHarness) -> None:
    hot_journal(harness.path)
    before = files_under(harness.path.parent)
    with pytest.raises(ForeignStoreError, match=r"store\.db-journal"):
        harness.open()
    assert files_under(harness.path.parent) == before


async def test_a_journal_that_is_not_its_own_is_never_played_back(harness: SqliteHarness) -> None:
    await store_turn(harness)
    backend = harness.open()
    journal = hot_journal(harness.path.with_name("other.db"))
    beside(harness, "-journal").write_bytes(journal)
    before = files_under(harness.path.parent)
    with pytest.raises(ForeignStoreError, match=r"store\.db-journal"):
        harness.open()
    async with SessionRepository(backend, SessionStore()) as persistence:
        with pytest.raises(ForeignStoreError, match=r"store\.db-journal"):
            await persistence.list()
        with pytest.raises(ForeignStoreError, match=r"store\.db-journal"):
            await persistence.load("s")
        assert files_under(harness.path.parent) == before
        # Refused once, it is looked at again with each request.
        beside(harness, "-journal").unlink()
        assert len((await persistence.list()).entries) == 1


async def test_a_journal_that_is_done_with_does_not_matter(harness: SqliteHarness) -> None:
    await store_turn(harness)
    beside(harness, "-journal").write_bytes(bytes(512))
    async with opened(harness) as persistence:
        assert len((await persistence.list()).entries) == 1


@pytest.mark.parametrize("suffix", ["-wal", "-journal"])
@pytest.mark.parametrize("database", ["missing", "empty", "linked"])
async def test_a_lost_database_is_not_an_empty_store(
    tmp_path: Path, suffix: str, database: str
) -> None:
    """What stands beside it may be the only copy of what was stored."""
    path = tmp_path / "store.db"
    target = tmp_path / "elsewhere" / "real.db" if database == "linked" else path
    target.parent.mkdir(exist_ok=True)
    if database == "linked":
        path.symlink_to(target)
    if database == "empty":
        path.touch()
    backend = SqliteBackend(str(path))
    copy = target.with_name(f"{target.name}{suffix}")
    copy.write_bytes(b"\0only copy")
    before = files_under(tmp_path)
    with pytest.raises(ForeignStoreError, match=copy.name):
        SqliteBackend(str(path))
    with pytest.raises(ForeignStoreError, match=copy.name):
        await backend.list_page(None, None, 50)
    with pytest.raises(ForeignStoreError, match=copy.name):
        await backend.load_stored("s")
    with pytest.raises(ForeignStoreError, match=copy.name):
        await backend.acquire_writer("s", header("s"))
    # What a lock leaves beside the database says nothing of it.
    after = {
        name: data for name, data in files_under(tmp_path).items() if not name.endswith(".pid")
    }
    assert {name: data for name, data in after.items() if data} == {
        name: data for name, data in before.items() if data
    }
    copy.unlink()
    writer = await backend.acquire_writer("s", header("s"))
    await writer.append_batch(header("s"), turn_events(1, 0))
    assert len((await backend.list_page(None, None, 50)).entries) == 1
    await backend.close()


async def test_a_database_is_created_where_a_link_leads_to(harness: SqliteHarness) -> None:
    target = harness.path.with_name("real.db")
    target.touch(0o640)
    target.chmod(0o640)
    harness.path.symlink_to(target)
    await store_turn(harness)
    assert harness.path.is_symlink()
    assert target.stat().st_size
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


async def test_what_a_killed_creation_left_is_cleared_away(harness: SqliteHarness) -> None:
    for suffix in ("-new", "-new-wal", "-new-shm"):
        beside(harness, suffix).write_bytes(os.urandom(5000))
    await store_turn(harness)
    names = {path.name for path in harness.path.parent.iterdir()}
    assert names == {"store.db", "store.db.locks"}
    async with opened(harness) as persistence:
        assert len((await persistence.list()).entries) == 1


async def test_a_store_in_rollback_mode_becomes_one_in_wal_mode(harness: SqliteHarness) -> None:
    """Such is the copy that `VACUUM INTO` makes."""
    await store_turn(harness)
    copy = SqliteHarness(harness.path.with_name("copy.db"))
    harness.execute(f"VACUUM INTO '{copy.path}'")
    assert copy.execute("PRAGMA journal_mode") == [("delete",)]
    async with opened(copy) as persistence:
        assert len((await persistence.list()).entries) == 1
        await persistence.load("s")
        await persistence.append("s", turn_events(2, 3))
    assert copy.execute("PRAGMA journal_mode") == [("wal",)]

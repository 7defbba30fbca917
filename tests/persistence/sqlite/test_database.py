"""The database file: whose it is, what it is opened with, and what the system may refuse."""

import contextlib
import os
import random
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest

from persistence import (
    CorruptLogError,
    ForeignStoreError,
    PersistenceError,
    SessionChangedError,
    SessionRepository,
    StoreReadError,
    StoreWriteError,
    open_backend,
)
from persistence.sqlite import SqliteBackend
from persistence.sqlite.database import Database, _read_store_id
from persistence.sqlite.harness import SqliteHarness
from persistence.testing.harness import header, turn_events
from session_core import SessionStore
from tests.persistence.processes import read_line, started
from tests.persistence.repositories import opened, stored

FULL_DISK = Path(__file__).parent / "full_disk_program.py"


@contextlib.asynccontextmanager
async def closing(backend: SqliteBackend) -> AsyncIterator[SqliteBackend]:
    try:
        yield backend
    finally:
        await backend.close()


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def files_under(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def test_an_empty_store_leaves_nothing_on_the_disk(harness: SqliteHarness) -> None:
    async with opened(harness) as persistence:
        await persistence.create(header("s"))
        assert (await persistence.list()).entries == []
        assert not await persistence.has("s")
    assert files_under(harness.path.parent) == {}


@pytest.mark.case("B56")
@pytest.mark.parametrize("name", ["a b.db", "a?b#c%20.db", "file:x?mode=memory", ":memory:", "é\n"])
async def test_a_path_is_taken_verbatim(tmp_path: Path, name: str) -> None:
    path = tmp_path / "new #folder?" / name
    async with SessionRepository(open_backend(f"sqlite:{path}"), SessionStore()) as persistence:
        assert persistence.locate(header("s")) is None
        await persistence.create(header("s"))
        await persistence.append("s", turn_events(1, 0))
    assert sorted(path.parent.iterdir()) == [path, path.with_name(f"{name}.locks")]


async def test_a_relative_path_is_fixed_when_the_store_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    backend = open_backend("sqlite:store.db")
    monkeypatch.chdir("/")
    async with SessionRepository(backend, SessionStore()) as persistence:
        await persistence.create(header("s"))
        await persistence.append("s", turn_events(1, 0))
    assert (tmp_path / "store.db").exists()


@pytest.mark.rule("database-is-durable-and-private")
async def test_what_is_created_is_private(tmp_path: Path) -> None:
    harness = SqliteHarness(tmp_path / "a" / "b" / "store.db")
    before = os.umask(0)
    try:
        async with opened(harness) as persistence:
            await persistence.create(header("s"))
            await persistence.append("s", turn_events(1, 0))
            modes = {path: mode_of(path) for path in (tmp_path / "a").rglob("*")}
    finally:
        os.umask(before)
    names = {path.name for path in modes}
    assert {"store.db", "store.db-wal", "store.db-shm", "store.db.locks", "s.lock"} <= names
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if not path.is_dir()} == {0o600}
    assert mode_of(tmp_path / "a") == 0o700


@pytest.mark.rule("database-is-durable-and-private")
async def test_existing_modes_are_kept(tmp_path: Path) -> None:
    harness = SqliteHarness(tmp_path / "store.db")
    before = mode_of(tmp_path)
    harness.path.touch(0o640)
    harness.path.chmod(0o640)
    await stored(harness)
    assert mode_of(harness.path) == 0o640
    assert mode_of(tmp_path) == before


@pytest.mark.rule("database-is-durable-and-private")
async def test_commits_are_durable_and_readers_do_not_block(harness: SqliteHarness) -> None:
    backend = harness.open()
    writer = await backend.acquire_writer("s", header("s"))
    await writer.append_batch(header("s"), turn_events(1, 0))

    def settings(database: Database, _give_up_at: float) -> list[Any]:
        names = ("synchronous", "journal_mode", "foreign_keys", "secure_delete", "trusted_schema")
        return [database.connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names]

    assert await backend._writing.run(settings) == [2, b"wal", 1, 1, 0]
    await backend.close()
    assert [*harness.execute("PRAGMA application_id")[0]] == [0x41435053]
    assert [*harness.execute("PRAGMA user_version")[0]] == [1]
    strict = harness.execute("SELECT name FROM pragma_table_list WHERE strict")
    assert {row[0] for row in strict} == {"persistence_state", "sessions", "events"}


def make_foreign(path: Path, how: str) -> None:
    match how:
        case "text":
            path.write_bytes(b"not a database at all\n" * 100)
        case "short":
            path.write_bytes(b"SQLite format 3\0")
        case "zeros":
            path.write_bytes(bytes(8192))
        case "directory":
            path.mkdir()
        case "crashed":
            # What a killed program leaves: SQLite would move the -wal into the database.
            other = path.with_name("other.db")
            connection = sqlite3.connect(other)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("CREATE TABLE t (x)")
            for suffix in ("", "-wal"):
                shutil.copy(f"{other}{suffix}", f"{path}{suffix}")
            connection.close()
            other.unlink()
        case _:
            connection = sqlite3.connect(path)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("CREATE TABLE t (x)")
            connection.execute(how)
            connection.close()


@pytest.mark.rule("foreign-database-is-refused", "only-version-zero-is-read")
@pytest.mark.case("B42")
@pytest.mark.parametrize(
    "how",
    [
        "text",
        "short",
        "zeros",
        "directory",
        "crashed",
        "PRAGMA application_id = 0",
        "PRAGMA application_id = 1",
        "PRAGMA user_version = 1",
    ],
)
async def test_a_foreign_file_is_refused_and_left_alone(tmp_path: Path, how: str) -> None:
    path = tmp_path / "store.db"
    make_foreign(path, how)
    before = files_under(tmp_path)
    with pytest.raises(ForeignStoreError):
        SqliteBackend(str(path))
    assert files_under(tmp_path) == before


@pytest.mark.rule("foreign-database-is-refused")
@pytest.mark.parametrize("how", ["text", "directory", "crashed", "PRAGMA user_version = 1"])
async def test_a_foreign_file_that_comes_later_is_refused_too(tmp_path: Path, how: str) -> None:
    path = tmp_path / "store.db"
    backend = SqliteBackend(str(path))
    writer = await backend.acquire_writer("s", header("s"))
    make_foreign(path, how)
    before = files_under(tmp_path)
    with pytest.raises(ForeignStoreError):
        await writer.append_batch(header("s"), turn_events(1, 0))
    with pytest.raises(ForeignStoreError):
        await backend.list_page(None, None, 50)
    assert files_under(tmp_path) == before
    await backend.close()


@pytest.mark.rule("foreign-database-is-refused", "only-version-zero-is-read")
@pytest.mark.case("B42")
@pytest.mark.parametrize("version", [0, 2, -1, 10**9])
async def test_another_schema_version_is_refused_by_its_number(
    harness: SqliteHarness, version: int
) -> None:
    await stored(harness)
    harness.execute(f"PRAGMA user_version = {version}")
    before = files_under(harness.path.parent)
    with pytest.raises(ForeignStoreError, match=f"version {version};.*supports 1"):
        harness.open()
    assert files_under(harness.path.parent) == before


@pytest.mark.parametrize("statement", ["DROP TABLE events", "DELETE FROM persistence_state"])
async def test_a_database_without_our_tables_is_refused(
    harness: SqliteHarness, statement: str
) -> None:
    await stored(harness)
    harness.execute(statement)
    before = files_under(harness.path.parent)
    backend = harness.open()
    with pytest.raises(ForeignStoreError):
        await backend.list_page(None, None, 50)
    with pytest.raises(ForeignStoreError):
        await backend.acquire_writer("s", header("s"))
    await backend.close()
    assert files_under(harness.path.parent) == before


@pytest.mark.parametrize("page", [2, 3, 4, 5, 6])
async def test_a_damaged_database_is_left_alone(harness: SqliteHarness, page: int) -> None:
    """Whatever page is overwritten: an error or the truth, and not a byte changed by reading."""
    await stored(harness, turns=2)
    data = bytearray(harness.path.read_bytes())
    data[(page - 1) * 4096 : page * 4096] = b"\xa5" * 4096
    harness.path.write_bytes(data)
    backend = harness.open()
    with contextlib.suppress(CorruptLogError, StoreReadError, ForeignStoreError):
        log = await backend.load_stored("s")
        assert log is not None
        assert list(log.log) == [*turn_events(1, 0), *turn_events(2, 3)]
    with contextlib.suppress(StoreReadError, ForeignStoreError):
        assert len((await backend.list_page(None, None, 50)).entries) == 1
    await backend.close()
    assert harness.path.read_bytes() == data


@pytest.mark.parametrize("seed", range(60))
async def test_a_flipped_bit_is_found_or_does_not_matter(harness: SqliteHarness, seed: int) -> None:
    """It never changes what is read, and reading never changes the file.

    Rule: batches-are-checksummed.
    """
    await stored(harness, turns=6)
    data = bytearray(harness.path.read_bytes())
    # Not in the free part of a page: most flips there can do no harm.
    places = [place for place, byte in enumerate(data) if byte]
    place = random.Random(seed).choice(places)
    data[place] ^= 1 << seed % 8
    harness.path.write_bytes(data)
    wanted = [event for turn in range(6) for event in turn_events(turn + 1, 3 * turn)]
    with contextlib.suppress(CorruptLogError, StoreReadError, ForeignStoreError):
        async with closing(harness.open()) as backend:
            log = await backend.load_stored("s")
            assert log is not None
            assert list(log.log) == wanted
            await backend.list_page(None, None, 50)
    assert harness.path.read_bytes() == data


async def test_a_schema_that_is_no_text_is_refused(harness: SqliteHarness) -> None:
    await stored(harness)
    data = harness.path.read_bytes()
    harness.path.write_bytes(data.replace(b"ON DELETE CASCADE", b"ON DELETE CASCAD\xac"))
    backend = harness.open()
    with pytest.raises(ForeignStoreError):
        await backend.list_page(None, None, 50)
    await backend.close()


async def test_a_parent_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ForeignStoreError):
        open_backend(f"sqlite:{tmp_path}/file/store.db")


async def test_an_empty_file_becomes_a_store(harness: SqliteHarness) -> None:
    harness.path.touch()
    async with opened(harness) as persistence:
        assert (await persistence.list()).entries == []
    await stored(harness)
    async with opened(harness) as persistence:
        assert len((await persistence.load("s")).log) == 3


async def test_stores_that_are_created_at_once_are_one(harness: SqliteHarness) -> None:
    backends = [harness.open() for _ in range(8)]

    async def fill(number: int) -> None:
        name = f"s{number}"
        writer = await backends[number].acquire_writer(name, header(name))
        await writer.append_batch(header(name), turn_events(1, 0))

    async with anyio.create_task_group() as tasks:
        for number in range(len(backends)):
            tasks.start_soon(fill, number)
    assert len((await backends[0].list_page(None, None, 50)).entries) == len(backends)
    for backend in backends:
        await backend.close()


async def test_a_full_disk_stores_nothing_and_writes_go_on_when_there_is_room(
    harness: SqliteHarness,
) -> None:
    """`max_page_count` is how SQLite plays a full disk."""
    backend = harness.open()
    store = SessionStore()
    async with SessionRepository(backend, store) as persistence:
        await persistence.create(header("s"))
        await persistence.append("s", turn_events(1, 0))

        def limit(pages: str) -> Any:
            return lambda database, _: database.connection.execute(
                f"PRAGMA max_page_count = {pages}"
            ).fetchone()

        await backend._writing.run(limit("1"))
        before = harness.contents("s")
        big = turn_events(2, 3, text="x" * 100_000)
        for _ in range(2):
            with pytest.raises(StoreWriteError) as raised:
                await persistence.append("s", big)
            assert raised.value.reason == "disk full"
            assert harness.contents("s") == before
        await backend._writing.run(limit("1000000"))
        await persistence.append("s", big)
    async with opened(harness) as persistence:
        assert list((await persistence.load("s")).log) == [*turn_events(1, 0), *big]


@pytest.mark.rule("delete-ends-then-removes")
async def test_a_session_can_be_deleted_although_no_file_may_grow(harness: SqliteHarness) -> None:
    with started(FULL_DISK, harness.path) as process:
        assert await anyio.to_thread.run_sync(read_line, process) == "deleted"
        process.wait(20)
    async with opened(harness) as persistence:
        assert [entry.header.id for entry in (await persistence.list()).entries] == ["t"]
        assert not await persistence.has("s")
        await persistence.load("t")


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
async def test_a_read_only_file_is_read_and_not_written(harness: SqliteHarness) -> None:
    await stored(harness)
    harness.path.chmod(0o400)
    async with opened(harness) as persistence:
        assert len((await persistence.inspect("s")).log) == 3
        with pytest.raises(StoreWriteError) as raised:
            await persistence.append("s", turn_events(2, 3))
        assert raised.value.reason == "read-only"


async def test_a_connection_that_may_only_read_says_so(harness: SqliteHarness) -> None:
    """What a read-only file gives, for those whom no mode stops."""
    await stored(harness)
    backend = harness.open()
    async with SessionRepository(backend, SessionStore()) as persistence:
        await persistence.load("s")

        def forbid(database: Database, _give_up_at: float) -> None:
            database.connection.execute("PRAGMA query_only = ON")

        await backend._writing.run(forbid)
        with pytest.raises(StoreWriteError) as raised:
            await persistence.append("s", turn_events(2, 3))
        assert raised.value.reason == "read-only"


@pytest.mark.parametrize("how", ["deleted", "restored"])
async def test_a_file_that_changed_behind_an_open_session_is_noticed(
    harness: SqliteHarness, how: str
) -> None:
    await stored(harness)
    copy = harness.path.with_name("copy")
    shutil.copy(harness.path, copy)
    async with opened(harness) as persistence:
        await persistence.load("s")
        if how == "deleted":
            harness.path.unlink()
        else:
            copy.rename(harness.path)
        with pytest.raises(SessionChangedError):
            await persistence.append("s", turn_events(2, 3))
        assert harness.path.exists() == (how == "restored")
        assert await persistence.has("s") == (how == "restored")
        await persistence.create(header("new"))
        await persistence.append("new", turn_events(1, 0))
    async with opened(harness) as persistence:
        ids = {entry.header.id for entry in (await persistence.list()).entries}
        assert ids == ({"new", "s"} if how == "restored" else {"new"})


@pytest.mark.rule("removed-wal-loses-nothing")
@pytest.mark.parametrize("looked_at", [False, True])
@pytest.mark.parametrize("how", ["removed", "emptied", "replaced"])
@pytest.mark.parametrize("when", ["before", "in the transaction"])
async def test_what_is_acknowledged_beside_a_lost_wal_is_stored(
    harness: SqliteHarness, tmp_path: Path, when: str, how: str, looked_at: bool
) -> None:
    wal = Path(f"{harness.path}-wal")
    copies = tmp_path / "copies"
    copies.mkdir()
    acknowledged = 0

    def lose(statement: str = "COMMIT") -> None:
        if statement == "COMMIT" and wal.exists():
            wal.unlink()
            if how == "replaced":
                wal.write_bytes(b"" if how == "emptied" else b"foreign")

    backend = harness.open()
    async with SessionRepository(backend, SessionStore()) as persistence:
        await persistence.create(header("s"))
        await persistence.append("s", turn_events(1, 0))
        if looked_at:
            assert len((await persistence.list()).entries) == 1
        if when == "before":
            lose()
        else:
            await backend._writing.run(
                lambda database, _: database.connection.set_trace_callback(lose)
            )
        for turn in (2, 3):
            with contextlib.suppress(PersistenceError):
                await persistence.append("s", turn_events(turn, 3 * turn - 3))
                acknowledged = turn
            if when != "before":
                await backend._writing.run(
                    lambda database, _: database.connection.set_trace_callback(None)
                )
        if how != "replaced":
            assert acknowledged == 3
            assert (await persistence.list()).entries[0].summary.turn_count == 3
        # What a kill now would leave; by another process, which drops none of this one's locks.
        files = [path for path in (harness.path, wal) if path.exists()]
        await anyio.run_process(["cp", *map(str, files), str(copies)])
    async with opened(SqliteHarness(copies / harness.path.name)) as persistence:
        if acknowledged:
            assert len((await persistence.load("s")).log) >= 3 * acknowledged


@pytest.mark.case("B61")
async def test_nothing_of_a_deleted_text_is_left_in_any_file(harness: SqliteHarness) -> None:
    secret = "the secret word is xyzzy"
    async with opened(harness) as persistence:
        for session_id in ("a", "s", "z"):
            await persistence.create(header(session_id))
            text = secret if session_id == "s" else "harmless"
            for turn in range(20):
                events = turn_events(turn + 1, 3 * turn, text=text * 30)
                await persistence.append(session_id, events)
    async with opened(harness) as persistence, opened(harness) as other:
        assert len((await other.list()).entries) == 3
        await persistence.load("z")
        await persistence.delete("s")
        # In another process: closing a descriptor here would drop this process's locks.
        grep = ["grep", "-rac", "xyzzy", str(harness.path.parent)]
        output = (await anyio.run_process(grep, check=False)).stdout.decode()
        counts = [int(line.rsplit(":", 1)[1]) for line in output.splitlines()]
        assert len(counts) >= 3
        assert sum(counts) == 0
        assert len((await other.list()).entries) == 2


async def test_a_delete_that_a_reader_holds_up_says_that_text_is_left(
    harness: SqliteHarness,
) -> None:
    await stored(harness)
    backend = SqliteBackend(str(harness.path), write_wait_s=0.3)
    async with SessionRepository(backend, SessionStore()) as persistence:
        with harness.connected() as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM events").fetchone()
            with pytest.raises(StoreWriteError) as raised:
                await persistence.delete("s")
            assert raised.value.reason == "locked"
            assert not await persistence.has("s")


@pytest.mark.case("B56")
async def test_a_writer_waits_for_a_lock_and_reads_do_not(harness: SqliteHarness) -> None:
    await stored(harness)
    async with opened(harness) as persistence:
        await persistence.load("s")
        with harness.connected() as holder:
            holder.execute("BEGIN IMMEDIATE")
            done = anyio.Event()

            async def append() -> None:
                await persistence.append("s", turn_events(2, 3))
                done.set()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(append)
                while persistence._backend._writing._limiter.borrowed_tokens == 0:  # type: ignore[attr-defined]
                    await anyio.lowlevel.checkpoint()
                with anyio.fail_after(1):
                    assert len((await persistence.list()).entries) == 1
                    assert len((await persistence.inspect("s")).log) == 3
                assert not done.is_set()
                holder.execute("ROLLBACK")
                with anyio.fail_after(5):
                    await done.wait()
        assert len((await persistence.inspect("s")).log) == 6


@pytest.mark.case("B56")
async def test_a_lock_that_is_never_given_back_is_an_error_within_the_wait(
    harness: SqliteHarness,
) -> None:
    """The wait is one for all that wait, not one for each."""
    for session_id in "abcd":
        await stored(harness, session_id)
    backend = SqliteBackend(str(harness.path), write_wait_s=0.5)
    async with SessionRepository(backend, SessionStore()) as persistence:
        with harness.connected() as holder:
            for session_id in "abcd":
                await persistence.load(session_id)
            holder.execute("BEGIN IMMEDIATE")
            errors: list[PersistenceError] = []

            async def append(session_id: str) -> None:
                with pytest.raises(StoreWriteError) as raised:
                    await persistence.append(session_id, turn_events(2, 3))
                errors.append(raised.value)

            with anyio.fail_after(1.8):
                async with anyio.create_task_group() as tasks:
                    for session_id in "abcd":
                        tasks.start_soon(append, session_id)
            assert [error.reason for error in errors] == ["locked"] * 4  # type: ignore[attr-defined]
            holder.execute("ROLLBACK")
        for session_id in "abcd":
            await persistence.append(session_id, turn_events(2, 3))


async def test_a_worker_that_does_not_become_free_is_an_error(harness: SqliteHarness) -> None:
    """However long the work in it takes, whoever waits for it waits no longer than said."""
    await stored(harness)
    backend = SqliteBackend(str(harness.path), write_wait_s=0.2)
    free = threading.Event()
    taken = anyio.Event()

    def hold(_database: Database, _give_up_at: float) -> None:
        anyio.from_thread.run_sync(taken.set)
        free.wait(5)

    async with SessionRepository(backend, SessionStore()) as persistence:
        await persistence.load("s")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(backend._writing.run, hold)
            await taken.wait()
            with pytest.raises(StoreWriteError) as raised:
                await persistence.append("s", turn_events(2, 3))
            assert raised.value.reason == "locked"
            assert not free.is_set()
            free.set()
        await persistence.append("s", turn_events(2, 3))


@pytest.mark.case("B56")
async def test_the_wal_is_short_again_when_a_long_reader_is_gone(harness: SqliteHarness) -> None:
    await stored(harness)
    wal = harness.path.with_name("store.db-wal")
    async with opened(harness) as persistence:
        with harness.connected() as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM events").fetchone()
            for turn in range(2, 22):
                text = "x" * 500_000
                await persistence.append("s", turn_events(turn, 3 * turn - 3, text=text))
            size = wal.stat().st_size
            assert size > 8 << 20
        for turn in range(22, 24):
            await persistence.append("s", turn_events(turn, 3 * turn - 3))
        assert wal.stat().st_size <= 4 << 20


def test_opening_a_store_imports_sqlite_and_nothing_before_does() -> None:
    code = (
        "import sys, persistence; assert 'sqlite3' not in sys.modules;"
        "persistence.open_backend('sqlite:/nonexistent/x'); assert 'sqlite3' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_store_id_whose_type_a_flipped_bit_has_changed_is_damage() -> None:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE persistence_state (singleton, store_id)")
        connection.execute("INSERT INTO persistence_state VALUES (1, 5)")
        with pytest.raises(ForeignStoreError, match="store id is damaged"):
            _read_store_id("/somewhere/store.db", connection)

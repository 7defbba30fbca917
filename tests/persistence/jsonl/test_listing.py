"""Finding and listing the sessions of a directory, and the summary index behind it."""

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

from persistence import (
    CorruptLogError,
    ForeignStoreError,
    PersistenceError,
    SessionCollisionError,
    SessionLockedError,
    SessionRepository,
    UnsupportedVersionError,
)
from persistence.files import OsFiles
from persistence.jsonl import JsonlBackend
from persistence.lock import FileLock
from persistence.testing.faulty_files import FaultyFiles
from persistence.testing.harness import header, turn_events, write_turn
from persistence.testing.harnesses import JsonlHarness
from session_core import SessionStore


@pytest.fixture
def harness(tmp_path: Path) -> JsonlHarness:
    return JsonlHarness(tmp_path / "store")


def opened(harness: JsonlHarness, files: FaultyFiles | None = None) -> SessionRepository:
    backend = JsonlBackend(str(harness.root), files=files, lock_wait_s=0.1)
    return SessionRepository(backend, SessionStore())


async def fill(harness: JsonlHarness, *ids: str, cwd: str = "/work", turns: int = 2) -> None:
    async with opened(harness) as persistence:
        for session_id in ids:
            await persistence.create(header(session_id, cwd))
            for turn in range(turns):
                events = turn_events(turn + 1, 3 * turn, text=f"prompt of {session_id}")
                await persistence.append(session_id, events)


async def listed(harness: JsonlHarness, cwd: str | None = None) -> list[str]:
    async with opened(harness) as persistence:
        return [entry.header.id for entry in (await persistence.list(cwd)).entries]


@pytest.mark.rule("session-is-one-folder")
async def test_a_root_that_is_a_file_is_refused_and_a_missing_one_is_empty(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ForeignStoreError):
        JsonlBackend(str(tmp_path / "file"))
    async with SessionRepository(JsonlBackend(str(tmp_path / "none")), SessionStore()) as store:
        assert (await store.list()).entries == []
        assert not await store.has("s")
    assert not (tmp_path / "none").exists()


def test_a_root_of_an_older_layout_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cwd-0123456789ab").mkdir()
    with pytest.raises(ForeignStoreError):
        JsonlBackend(str(tmp_path))


@pytest.mark.rule("store-paths-are-verbatim")
async def test_a_relative_root_stays_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    backend = JsonlBackend("store")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    async with SessionRepository(backend, SessionStore()) as persistence:
        await persistence.create(header("s"))
        await persistence.append("s", turn_events(1, 0))
        location = persistence.locate(header("s"))
    assert location is not None
    assert location.kind == "jsonl"
    log = tmp_path / "store/--work-project--/s/session.jsonl"
    assert location.path == str(log)
    assert log.exists()


@pytest.mark.rule("header-must-match-its-place")
async def test_an_id_in_two_buckets_is_an_error(harness: JsonlHarness) -> None:
    await fill(harness, "s")
    shutil.copytree(harness.root / "--work--", harness.root / "--other--")
    async with opened(harness) as persistence:
        for refused in (persistence.load, persistence.inspect, persistence.delete):
            with pytest.raises(SessionCollisionError):
                await refused("s")


@pytest.mark.rule("log-is-one-record-per-line")
async def test_a_header_longer_than_a_piece_is_listed(harness: JsonlHarness) -> None:
    cwd = "/" + "long/" * 4000 + "end"
    await fill(harness, "s", cwd=cwd)
    (harness.root / "index.jsonl").unlink()
    harness.damage("s")
    async with opened(harness) as persistence:
        (entry,) = (await persistence.list()).entries
        assert entry.header.cwd == cwd


@pytest.mark.rule("bad-entries-hide-no-others", "bad-header-refuses-the-log")
async def test_bad_sessions_are_named_once_and_hide_no_other(
    harness: JsonlHarness, caplog: pytest.LogCaptureFixture
) -> None:
    """B50: five good sessions, and what can become of some of them."""
    ids = ["good", "fine", "empty", "garbage", "future", "damaged", "moved"]
    await fill(harness, *ids)
    logs = {session_id: harness.log(session_id) for session_id in ids}
    (harness.root / "index.jsonl").unlink()
    logs["empty"].write_bytes(b"")
    logs["garbage"].write_bytes(b"garbage\n")
    logs["future"].write_bytes(logs["future"].read_bytes().replace(b'"version":0', b'"version":1'))
    harness.damage("damaged")
    logs["moved"].parent.rename(logs["moved"].parent.parent / "elsewhere")
    bucket = harness.root / "--work--"
    (bucket / ".DS_Store").write_text("x")
    (bucket / "directory" / "session.jsonl").mkdir(parents=True)
    (bucket / "dangling").symlink_to("nowhere")
    (harness.root / ".DS_Store").write_text("x")
    (harness.root / "--file--").write_text("x")
    before = {path: path.read_bytes() for path in harness.root.rglob("*.jsonl") if path.is_file()}
    async with opened(harness) as persistence:
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                entries = (await persistence.list()).entries
                names = [entry.header.id for entry in entries]
                assert sorted(names) == ["damaged", "fine", "good"]
        for session_id in ("garbage", "future", "damaged", "elsewhere"):
            about = [r for r in caplog.messages if f"/{session_id}/" in r]
            assert len(about) == 1, session_id
        good = next(entry for entry in entries if entry.header.id == "good")
        assert good.summary.first_prompt == "prompt of good"
        with pytest.raises(UnsupportedVersionError):
            await persistence.load("future")
        for session_id in ("empty", "garbage", "damaged", "elsewhere"):
            with pytest.raises(CorruptLogError):
                await persistence.load(session_id)
        await persistence.delete("future")
    del before[logs["future"]]
    assert all(path.read_bytes() == data for path, data in before.items())


@pytest.mark.rule("unreadable-is-never-empty")
async def test_a_session_that_cannot_be_read_says_so(
    harness: JsonlHarness, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(harness, "s", "t")
    (harness.root / "index.jsonl").unlink()
    files = FaultyFiles()
    async with opened(harness, files) as persistence:
        files.plan("read", 13)
        entries = (await persistence.list()).entries
        assert len(entries) == 1
        assert [r.levelname for r in caplog.records] == ["WARNING"]
        files.plan("read", 13, times=9)
        with pytest.raises(PersistenceError, match="Permission denied"):
            await persistence.load("s")


@pytest.mark.rule("list-pages-newest-first")
async def test_a_directory_is_found_however_it_is_spelled(
    harness: JsonlHarness, tmp_path: Path
) -> None:
    """B23: links, dots and trailing slashes; folders that share a bucket stay apart."""
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    await fill(harness, "linked", cwd=str(link))
    folders = ["/p/a-b", "/p/a/b", "/p/a_b", "/p/プロ ジェクト", "/p/A-B"]
    for k, folder in enumerate(folders):
        await fill(harness, f"s{k}", cwd=folder)
    for spelled in (link, real, f"{tmp_path}/./real/", f"{real}/", f"{real}/../real"):
        assert await listed(harness, str(spelled)) == ["linked"]
    for k, folder in enumerate(folders):
        assert await listed(harness, folder) == [f"s{k}"]
    async with opened(harness) as persistence:
        (entry,) = (await persistence.list("/p/a-b")).entries
        assert entry.header.cwd == "/p/a-b"


async def test_fresh_sessions_are_listed_without_opening_a_log(harness: JsonlHarness) -> None:
    await fill(harness, *(f"s{k}" for k in range(20)))
    files = FaultyFiles()
    async with opened(harness, files) as persistence:
        files.calls.clear()
        assert len((await persistence.list()).entries) == 20
        assert files.calls.count("open") == 1
        files.calls.clear()
        await persistence.list()
        assert files.calls.count("open") == 1


@pytest.mark.rule("summary-is-only-a-cache")
@pytest.mark.parametrize("harm", ["missing", "garbage", "of another time", "stale", "lying"])
async def test_the_index_is_rebuilt_and_never_trusted_over_the_log(
    harness: JsonlHarness, harm: str
) -> None:
    await fill(harness, "s", "t")
    index = harness.root / "index.jsonl"
    match harm:
        case "missing":
            index.unlink()
        case "garbage":
            index.write_bytes(b"\0" * 50 + b"\n{}\n[1]\n" + index.read_bytes()[:70])
        case "of another time":
            index.write_bytes(index.read_bytes().replace(b'"events":6', b'"events":5'))
            for session_id in ("s", "t"):
                log = harness.log(session_id)
                log.with_suffix(".copy").write_bytes(log.read_bytes())
                log.with_suffix(".copy").rename(log)
        case "lying":
            index.write_bytes(index.read_bytes().replace(b'"cwd":"/work"', b'"cwd":"work"'))
        case "stale":
            index.write_bytes(b"".join(index.read_bytes().splitlines(keepends=True)[:3:2]))
    for _ in range(2):
        async with opened(harness) as persistence:
            entries = (await persistence.list()).entries
            assert [entry.summary.event_count for entry in entries] == [6, 6]
            assert [entry.summary.first_prompt for entry in entries] == [
                "prompt of s",
                "prompt of t",
            ]
    assert index.read_bytes().count(b'"key":"--work--/s"') >= 1


@pytest.mark.rule("summary-is-only-a-cache", "bad-entries-hide-no-others")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("key", value) for value in (7, ["s"], None)),
        *(("inode", value) for value in ("1", 1.5, True)),
        *((name, value) for name in ("updatedAt", "events", "turns") for value in ("7", -1, 2**60)),
        *((name, value) for name in ("title", "firstPrompt") for value in (7, ["s"], "x" * 10_000)),
        *(("header", value) for value in (7, [["id", "s"]], {"id": 7}, {"id": "s"})),
        *(("header.cwd", value) for value in (7, ["/work"], {"a": 1}, "work")),
        *(("header.createdAt", value) for value in ("7", -1, 2**60, None)),
    ],
)
async def test_a_value_of_the_wrong_type_costs_its_row_and_nothing_else(
    harness: JsonlHarness, field: str, value: object
) -> None:
    await fill(harness, "s", "t")
    index = harness.root / "index.jsonl"
    async with opened(harness) as persistence:
        wanted = [entry.summary for entry in (await persistence.list()).entries]
    lines = [json.loads(line) for line in index.read_bytes().splitlines()]
    for line in lines:
        if line["key"].endswith("/s"):
            inner, _, name = field.rpartition(".")
            (line[inner] if inner else line)[name] = value
    index.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    async with opened(harness) as persistence:
        for cwd in (None, "/work"):
            entries = (await persistence.list(cwd=cwd)).entries
            assert [entry.summary for entry in entries] == wanted
    files = FaultyFiles()
    async with opened(harness, files) as persistence:
        files.calls.clear()
        assert len((await persistence.list()).entries) == 2
        assert files.calls.count("open") == 1, "the index was not rebuilt"


@pytest.mark.rule("summary-is-only-a-cache")
async def test_touching_a_log_keeps_its_index_row(harness: JsonlHarness) -> None:
    await fill(harness, "s")
    index = harness.root / "index.jsonl"
    before = index.read_bytes()
    harness.log("s").touch()
    await listed(harness)
    assert index.read_bytes() == before


async def test_the_index_is_compacted_when_most_of_it_is_superseded(
    harness: JsonlHarness,
) -> None:
    await fill(harness, "s", turns=100)
    index = harness.root / "index.jsonl"
    assert len(index.read_bytes().splitlines()) == 100
    assert await listed(harness) == ["s"]
    assert len(index.read_bytes().splitlines()) == 1
    shutil.rmtree(harness.root / "--work--")
    assert await listed(harness) == []
    assert index.read_bytes() == b""


async def test_a_broken_index_fails_neither_turn_nor_list(
    harness: JsonlHarness, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(harness, "s")
    (harness.root / "index.jsonl").unlink()
    (harness.root / "index.jsonl").mkdir()
    async with opened(harness) as persistence:
        await persistence.append("s", turn_events(3, 6))
        (entry,) = (await persistence.list()).entries
        assert entry.summary.turn_count == 3
    assert any("summary index" in message for message in caplog.messages)


async def test_a_deleted_session_leaves_no_text_behind(harness: JsonlHarness) -> None:
    """B61: nothing of it is on the disk, in the index neither; the others stay."""
    await fill(harness, "kept", "s")
    await listed(harness)
    async with opened(harness) as persistence:
        await persistence.delete("s")
        assert [entry.header.id for entry in (await persistence.list()).entries] == ["kept"]
    for path in harness.root.rglob("*"):
        assert path.name != "s"
        assert path.is_dir() or b"prompt of s" not in path.read_bytes()
    assert await listed(harness) == ["kept"]


async def test_deleting_the_last_session_of_a_directory_removes_its_bucket(
    harness: JsonlHarness,
) -> None:
    await fill(harness, "s")
    async with opened(harness) as persistence:
        await persistence.load("s")
        await persistence.delete("s")
    assert {path.name for path in harness.root.iterdir()} == {"index.jsonl", "index.lock"}


async def test_a_list_that_read_a_log_before_its_delete_does_not_bring_it_back(
    harness: JsonlHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(harness, "s", "t")
    index = harness.root / "index.jsonl"
    index.unlink()
    backend = JsonlBackend(str(harness.root))
    add_checked = backend._lister._index.add_checked

    def delete_first(*arguments: Any) -> None:
        shutil.rmtree(harness.log("s").parent)
        add_checked(*arguments)

    monkeypatch.setattr(backend._lister._index, "add_checked", delete_first)
    await backend.list_page(None, None, 50)
    assert b"prompt of s" not in index.read_bytes()
    assert b"prompt of t" in index.read_bytes()


async def test_a_delete_that_cannot_purge_the_index_says_so(
    harness: JsonlHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(harness, "s")
    monkeypatch.setattr("persistence.jsonl.index._LOCK_WAIT_S", 0.05)
    lock = FileLock(OsFiles(), f"{harness.root}/index.lock")
    assert lock.try_acquire()
    async with opened(harness) as persistence:
        with pytest.raises(PersistenceError, match="index is locked"):
            await persistence.delete("s")
        assert not await persistence.has("s")
    lock.release()


@pytest.mark.rule("delete-needs-the-lock")
async def test_a_delete_is_refused_while_another_store_has_the_session(
    harness: JsonlHarness,
) -> None:
    await fill(harness, "s")
    async with opened(harness) as holder, opened(harness) as persistence:
        await holder.load("s")
        before = harness.log("s").read_bytes()
        with pytest.raises(SessionLockedError):
            await persistence.delete("s")
        assert harness.log("s").read_bytes() == before


async def test_the_summary_of_a_live_session_is_in_the_index_after_each_turn(
    harness: JsonlHarness,
) -> None:
    store = SessionStore()
    async with SessionRepository(harness.open(), store) as persistence:
        session = store.create("s", cwd="/work")
        for turns in (1, 2):
            write_turn(session, "hello")
            await persistence.flush(session)
            row = json.loads((harness.root / "index.jsonl").read_bytes().splitlines()[-1])
            status = harness.log("s").stat()
            assert (row["inode"], row["size"]) == (status.st_ino, status.st_size)
            assert (row["events"], row["turns"]) == (session.seq, turns)

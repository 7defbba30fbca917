"""Changing a log on the disk: publish, append, roll back, repair; under failures."""

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from persistence import (
    CorruptLogError,
    SessionChangedError,
    SessionCollisionError,
    SessionRepository,
    StoreWriteError,
)
from persistence.files import OsFiles
from persistence.jsonl import JsonlBackend
from persistence.jsonl.integrity import decode_sidecar
from persistence.jsonl.position import LogPosition
from persistence.testing.faulty_files import FaultyFiles
from persistence.testing.harness import header, turn_events, write_turn
from persistence.testing.harnesses import JsonlHarness
from session_core import Event, SessionStore

FIRST, SECOND, THIRD = (turn_events(turn, 3 * turn - 3) for turn in (1, 2, 3))


class NoSync(OsFiles):
    """Spares tests that write thousands of times the wait for the disk."""

    def sync(self, handle: int) -> None:
        pass

    def sync_dir(self, path: str) -> None:
        pass


def stored(harness: JsonlHarness) -> list[dict[str, Any]]:
    """Return the records of the log, having seen that each is a line of its own."""
    data = harness.log("s").read_bytes()
    assert data.endswith(b"\n")
    return [json.loads(line) for line in data.split(b"\n")[:-1]][1:]


def as_json(*turns: list[Event]) -> list[dict[str, Any]]:
    return [event.to_json() for turn in turns for event in turn]


@pytest.fixture
def harness(tmp_path: Path) -> JsonlHarness:
    return JsonlHarness(tmp_path / "store")


@pytest.mark.rule("nothing-stored-before-first-append")
async def test_the_first_batch_makes_private_files(harness: JsonlHarness) -> None:
    async with SessionRepository(harness.open(), SessionStore()) as persistence:
        await persistence.create(header("s"))
        assert not harness.root.exists()
        await persistence.append("s", FIRST)
        directory = harness.log("s").parent
        names = {"session.jsonl", "session.crc", "writer.lock", "writer.pid"}
        assert {path.name for path in directory.iterdir()} == names
        assert (directory / "writer.pid").read_text() == str(os.getpid())
        for path in [harness.root, *harness.root.rglob("*")]:
            mode = stat.S_IMODE(path.stat().st_mode)
            assert mode == (0o700 if path.is_dir() else 0o600), path
    # It stays, so that whoever finds the log longer can say who has been there.
    assert (directory / "writer.pid").exists()
    first_line = harness.log("s").read_bytes().split(b"\n")[0]
    assert first_line == (
        b'{"type":"session","version":0,"id":"s","createdAt":1000,'
        b'"cwd":"/work/project","delegationDepth":0}'
    )


@pytest.mark.rule("reading-ignores-packing-switch")
@pytest.mark.parametrize(("pack", "lines"), [(True, 8), (False, 12)])
async def test_packing_is_the_writer_s_choice(
    harness: JsonlHarness, *, pack: bool, lines: int
) -> None:
    store = SessionStore()
    backend = JsonlBackend(str(harness.root), pack=pack)
    async with SessionRepository(backend, store) as persistence:
        session = store.create("s", cwd="/work")
        write_turn(session)
        await persistence.flush(session)
        assert len(harness.log("s").read_bytes().splitlines()) == lines
        assert list((await persistence.inspect("s")).log) == list(session.events)


@pytest.mark.rule("batches-are-checksummed")
async def test_every_flush_writes_one_checksum(harness: JsonlHarness) -> None:
    async with SessionRepository(harness.open(), SessionStore()) as persistence:
        await persistence.create(header("s"))
        sizes = []
        for turn in (FIRST, SECOND):
            await persistence.append("s", turn)
            sizes.append(harness.log("s").stat().st_size)
        sidecar = decode_sidecar((harness.log("s").parent / "session.crc").read_bytes())
        assert [checksum.end for checksum in sidecar.checksums] == sizes
        assert [checksum.seq for checksum in sidecar.checksums] == [3, 6]


async def test_a_flush_is_one_write_one_sync_and_one_checksum(harness: JsonlHarness) -> None:
    files, store = FaultyFiles(), SessionStore()
    backend = JsonlBackend(str(harness.root), files=files)
    async with SessionRepository(backend, store) as persistence:
        session = store.create("s", cwd="/work")
        write_turn(session)
        await persistence.flush(session)
        session.append("turn/start", {"turn": 2, "trigger": {"kind": "plugin", "plugin": "t"}})
        files.calls.clear()
        await persistence.flush(session)
        assert files.calls == ["open", "lock", "write", "sync", "stat", "open", "write"]
        await persistence.flush(session)
        assert len(files.calls) == 7
        session.append("turn/end", {"turn": 2, "reason": {"kind": "completed"}})


@pytest.mark.rule("failed-write-is-cut-back")
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (errno.ENOSPC, "disk full"),
        (errno.EDQUOT, "disk full"),
        (errno.EROFS, "read-only"),
        (errno.EIO, "i/o error"),
    ],
)
@pytest.mark.parametrize("operation", ["write", "sync", "torn write"])
async def test_a_failed_append_is_undone_and_can_be_repeated(
    harness: JsonlHarness, operation: str, code: int, reason: str
) -> None:
    files = FaultyFiles()
    backend = JsonlBackend(str(harness.root), files=files)
    async with SessionRepository(backend, SessionStore()) as persistence:
        await persistence.create(header("s"))
        await persistence.append("s", FIRST)
        before = harness.log("s").read_bytes()
        if operation == "torn write":
            files.plan_torn_write(40, code)
        else:
            files.plan(operation, code)
        with pytest.raises(StoreWriteError) as raised:
            await persistence.append("s", SECOND)
        assert raised.value.reason == reason
        assert harness.log("s").read_bytes() == before
        await persistence.append("s", SECOND)
        await persistence.append("s", THIRD)
    assert stored(harness) == as_json(FIRST, SECOND, THIRD)


@pytest.mark.rule("failed-write-is-cut-back")
async def test_nothing_is_appended_before_a_failed_rollback_is_made_good(
    harness: JsonlHarness,
) -> None:
    files = FaultyFiles()
    backend = JsonlBackend(str(harness.root), files=files)
    async with SessionRepository(backend, SessionStore()) as persistence:
        await persistence.create(header("s"))
        await persistence.append("s", FIRST)
        before = harness.log("s").read_bytes()
        files.plan_torn_write(40)
        files.plan("truncate", errno.EIO, times=2)
        with pytest.raises(StoreWriteError, match=r"No space left.*cutting the log back"):
            await persistence.append("s", SECOND)
        torn = harness.log("s").read_bytes()
        assert torn[:-40] == before
        with pytest.raises(StoreWriteError):
            await persistence.append("s", SECOND)
        assert harness.log("s").read_bytes() == torn
        await persistence.append("s", SECOND)
    assert stored(harness) == as_json(FIRST, SECOND)


async def test_a_write_that_takes_only_part_is_continued(harness: JsonlHarness) -> None:
    files = FaultyFiles()
    files.short_writes = 7
    backend = JsonlBackend(str(harness.root), files=files)
    async with SessionRepository(backend, SessionStore()) as persistence:
        await persistence.create(header("s"))
        await persistence.append("s", FIRST)
        await persistence.append("s", SECOND)
    assert stored(harness) == as_json(FIRST, SECOND)


@pytest.mark.parametrize(
    ("operation", "after"),
    [("mkdir", 0), ("mkdir", 2), ("write", 1), ("sync", 0), ("link", 0), ("sync_dir", 3)],
)
async def test_a_session_whose_first_batch_fails_is_not_stored(
    harness: JsonlHarness, operation: str, after: int
) -> None:
    files = FaultyFiles()
    backend = JsonlBackend(str(harness.root), files=files)
    async with SessionRepository(backend, SessionStore()) as persistence:
        await persistence.create(header("s"))
        # The first write is the pid's.
        files.plan(operation, errno.EIO, after=after)
        with pytest.raises(StoreWriteError):
            await persistence.append("s", FIRST)
        assert not await persistence.has("s")
        assert (await persistence.list()).entries == []
        await persistence.append("s", FIRST)
    assert stored(harness) == as_json(FIRST)
    assert not list(harness.root.rglob("*.tmp"))


async def test_a_session_that_never_got_stored_leaves_nothing(harness: JsonlHarness) -> None:
    files = FaultyFiles()
    backend = JsonlBackend(str(harness.root), files=files)
    async with SessionRepository(backend, SessionStore()) as persistence:
        await persistence.create(header("s"))
        files.plan("link")
        with pytest.raises(StoreWriteError):
            await persistence.append("s", FIRST)
    assert list(harness.root.iterdir()) == []


async def test_a_temp_file_that_stays_does_not_fail_the_append(harness: JsonlHarness) -> None:
    files = FaultyFiles()
    backend = JsonlBackend(str(harness.root), files=files)
    async with SessionRepository(backend, SessionStore()) as persistence:
        await persistence.create(header("s"))
        # The first two find nothing to remove.
        files.plan("unlink", errno.EIO, after=2)
        await persistence.append("s", FIRST)
        await persistence.append("s", SECOND)
        await persistence.delete("s")
    assert {path.name for path in harness.root.iterdir()} == {"index.jsonl", "index.lock"}


async def test_a_checksum_that_cannot_be_written_is_covered_by_the_next(
    harness: JsonlHarness,
) -> None:
    files = FaultyFiles()
    backend = JsonlBackend(str(harness.root), files=files)
    async with SessionRepository(backend, SessionStore()) as persistence:
        await persistence.create(header("s"))
        await persistence.append("s", FIRST)
        files.plan("write", errno.ENOSPC, after=1)
        await persistence.append("s", SECOND)
        await persistence.append("s", THIRD)
    data = bytearray(harness.log("s").read_bytes())
    data[data.index(b'"seq":4') + 6] ^= 1
    harness.log("s").write_bytes(data)
    async with SessionRepository(harness.open(), SessionStore()) as persistence:
        with pytest.raises(CorruptLogError):
            await persistence.load("s")


async def test_rubbish_behind_the_checksums_is_written_over(harness: JsonlHarness) -> None:
    async with SessionRepository(harness.open(), SessionStore()) as persistence:
        await persistence.create(header("s"))
        await persistence.append("s", FIRST)
    sidecar = harness.log("s").parent / "session.crc"
    sidecar.write_bytes(sidecar.read_bytes() + b"\0" * 500)
    async with SessionRepository(harness.open(), SessionStore()) as persistence:
        await persistence.append("s", SECOND)
    lines = sidecar.read_bytes().splitlines()
    assert [json.loads(line)["seq"] for line in lines] == [3, 6]


async def test_a_writer_that_gave_its_lock_back_touches_nothing(harness: JsonlHarness) -> None:
    backend, other = harness.open(), harness.open()
    gone = await backend.acquire_writer("s", header("s"))
    await gone.append_batch(header("s"), FIRST)
    await gone.delete()
    anew = await other.acquire_writer("s", header("s"))
    await gone.release()
    await anew.append_batch(header("s"), FIRST)
    assert stored(harness) == as_json(FIRST)
    await other.close()


@pytest.mark.parametrize("sidecar", ["of the other log", "torn", "missing"])
async def test_a_log_of_the_same_file_and_size_is_not_continued(
    harness: JsonlHarness, sidecar: str
) -> None:
    """A file system may give an inode again, and a deleted log may come back as long as it was."""
    backend = harness.open()
    positions = []
    for text in ("hello", "HELLO"):
        writer = await backend.acquire_writer("s", header("s"))
        await writer.append_batch(header("s"), turn_events(1, 0, text=text))
        positions.append(writer.position)
        data, checksums = harness.log("s").read_bytes(), harness.log("s").with_name("session.crc")
        lines = checksums.read_bytes()
        if text == "hello":
            await writer.delete()
    await writer.release()
    assert isinstance(positions[0], LogPosition)
    assert isinstance(positions[1], LogPosition)
    at = harness.log("s").stat()
    assert len(data) == at.st_size == positions[0].end
    size = positions[1].sidecar_size
    stale = positions[0]._replace(device=at.st_dev, inode=at.st_ino, sidecar_size=size)
    if sidecar == "torn":
        checksums.write_bytes(lines[:-5])
    elif sidecar == "missing":
        checksums.unlink()
    again = await backend.acquire_writer("s")
    with pytest.raises(SessionChangedError):
        await again.continue_from(stale)
    if sidecar == "of the other log":
        await again.continue_from(positions[1])
    await backend.close()


@pytest.mark.rule("first-write-never-overwrites")
async def test_publishing_never_overwrites(harness: JsonlHarness) -> None:
    backend = harness.open()
    writer = await backend.acquire_writer("s", header("s"))
    log = next(harness.root.glob("*/s")) / "session.jsonl"
    log.write_bytes(b"somebody's\n")
    (log.parent / "session.crc").write_bytes(b"checksums\n")
    with pytest.raises(SessionCollisionError):
        await writer.append_batch(header("s"), FIRST)
    assert log.read_bytes() == b"somebody's\n"
    assert (log.parent / "session.crc").read_bytes() == b"checksums\n"
    assert not list(harness.root.rglob("*.tmp"))
    log.unlink()
    await backend.close()


@pytest.mark.rule("changed-log-is-never-overwritten")
@pytest.mark.parametrize("change", ["grown", "shrunk", "replaced", "gone"])
async def test_a_changed_log_is_noticed_before_the_next_write(
    harness: JsonlHarness, change: str
) -> None:
    async with SessionRepository(harness.open(), SessionStore()) as persistence:
        await persistence.create(header("s"))
        await persistence.append("s", FIRST)
        log = harness.log("s")
        data = log.read_bytes()
        match change:
            case "grown":
                log.write_bytes(data + b"x")
            case "shrunk":
                log.write_bytes(data[:-1])
            case "replaced":
                log.with_suffix(".copy").write_bytes(data)
                log.with_suffix(".copy").rename(log)
            case "gone":
                log.unlink()
        after = log.read_bytes() if log.exists() else None
        with pytest.raises(SessionChangedError):
            await persistence.append("s", SECOND)
        assert (log.read_bytes() if log.exists() else None) == after


async def test_touching_a_log_is_no_change(harness: JsonlHarness) -> None:
    async with SessionRepository(harness.open(), SessionStore()) as persistence:
        await persistence.create(header("s"))
        await persistence.append("s", FIRST)
        os.utime(harness.log("s"), (1, 1))
        await persistence.append("s", SECOND)
    assert stored(harness) == as_json(FIRST, SECOND)


@pytest.mark.rule("repair-survives-its-own-crash")
async def test_a_crash_between_cut_and_closers_is_repaired_by_the_next_load(
    harness: JsonlHarness,
) -> None:
    async with SessionRepository(harness.open(), SessionStore()) as persistence:
        await persistence.create(header("s"))
        await persistence.append("s", FIRST)
        await persistence.append("s", SECOND[:2])
    harness.tear("s")
    files = FaultyFiles()
    backend = JsonlBackend(str(harness.root), files=files)
    async with SessionRepository(backend, SessionStore()) as persistence:
        # The pid's write succeeds, the closers' does not.
        files.plan("write", after=1)
        with pytest.raises(StoreWriteError):
            await persistence.load("s")
        assert stored(harness) == as_json(FIRST, SECOND[:2])
        loaded = await persistence.load("s")
        assert loaded.log.event_at(5).data["reason"] == {"kind": "interrupted"}
    assert len(stored(harness)) == 6


@pytest.mark.rule("complete-events-are-kept", "repaired-history-is-paired")
@pytest.mark.parametrize("checksums", ["kept", "lost"])
async def test_a_log_cut_at_any_byte_of_its_last_turn_goes_on(
    harness: JsonlHarness, checksums: str
) -> None:
    """B51: what a crash leaves of the last flush; the next turn is whole and alone on its lines."""

    def backend() -> JsonlBackend:
        return JsonlBackend(str(harness.root), files=NoSync())

    last = turn_events(2, 3, text="naïve 😀")
    async with SessionRepository(backend(), SessionStore()) as persistence:
        await persistence.create(header("s"))
        await persistence.append("s", FIRST)
        log = harness.log("s")
        sidecar = log.parent / "session.crc"
        start, checked = log.stat().st_size, sidecar.read_bytes()
        await persistence.append("s", last)
    data = log.read_bytes()
    for cut in range(start, len(data) + 1):
        log.write_bytes(data[:cut])
        sidecar.write_bytes(checked if checksums == "kept" else b"")
        # A record counts as soon as it is complete; its newline is written by the repair.
        kept = sum(1 for end in _record_ends(data, start) if end <= cut)
        async with SessionRepository(backend(), SessionStore()) as persistence:
            loaded = await persistence.load("s")
            assert list(loaded.log)[: 3 + kept] == [*FIRST, *last[:kept]]
            assert len(loaded.log) == 3 + kept + (kept in {1, 2})
            assert (loaded.repaired is None) is (cut in {start, len(data)})
            await persistence.append("s", turn_events(3, len(loaded.log)))
        records = stored(harness)
        assert [record["seq"] for record in records] == list(range(len(loaded.log) + 3))
        after = log.read_bytes()
        async with SessionRepository(backend(), SessionStore()) as persistence:
            again = await persistence.load("s")
            assert [event.to_json() for event in again.log] == records
            assert again.repaired is None
        assert log.read_bytes() == after


def _record_ends(data: bytes, start: int) -> list[int]:
    """Return the offset behind each record from `start` on, its newline not counted."""
    ends = []
    while start < len(data):
        newline = data.index(b"\n", start)
        ends.append(newline)
        start = newline + 1
    return ends


async def test_the_repair_writes_the_checksum_that_a_crash_took(harness: JsonlHarness) -> None:
    async with SessionRepository(harness.open(), SessionStore()) as persistence:
        await persistence.create(header("s"))
        await persistence.append("s", FIRST)
        await persistence.append("s", SECOND[:2])
    sidecar = harness.log("s").parent / "session.crc"
    sidecar.write_bytes(sidecar.read_bytes()[:70])
    async with SessionRepository(harness.open(), SessionStore()) as persistence:
        await persistence.load("s")
    last = decode_sidecar(sidecar.read_bytes()).last
    assert last is not None
    assert last.end == harness.log("s").stat().st_size

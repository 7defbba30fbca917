"""The writer lock between real processes, and processes that are killed while they write."""

import contextlib
import json
import os
import signal
import threading
from pathlib import Path

import anyio
import pytest

from persistence import SessionChangedError, SessionLockedError, SessionRepository
from persistence.files import OsFiles
from persistence.jsonl import JsonlBackend
from persistence.testing.harness import header, turn_events
from persistence.testing.harnesses import JsonlHarness
from session_core import SessionStore
from tests.persistence.processes import read_line, started

HOLDER = Path(__file__).parent / "holder_program.py"
PAUSED = Path(__file__).parent / "paused_writer_program.py"
WRITER = Path(__file__).parent / "writer_program.py"


@pytest.fixture
async def harness(tmp_path: Path) -> JsonlHarness:
    """A store with one session of one turn."""
    harness = JsonlHarness(tmp_path / "store")
    async with SessionRepository(harness.open(), SessionStore()) as persistence:
        await persistence.create(header("s"))
        await persistence.append("s", turn_events(1, 0))
    return harness


@pytest.mark.rule("writing-takes-the-lock")
async def test_another_process_that_holds_a_session_is_named(harness: JsonlHarness) -> None:
    with started(HOLDER, harness.root, "load") as holder:
        assert read_line(holder) == "ready"
        async with SessionRepository(harness.open(), SessionStore()) as persistence:
            for refused in (persistence.load, persistence.delete):
                with pytest.raises(SessionLockedError) as raised:
                    await refused("s")
                assert raised.value.pid == holder.pid
            assert len((await persistence.inspect("s")).log) == 3
            assert len((await persistence.list()).entries) == 1


@pytest.mark.rule("lock-is-held-by-kernel")
@pytest.mark.parametrize("end", ["close", "kill"])
async def test_the_lock_dies_with_its_process(harness: JsonlHarness, end: str) -> None:
    with started(HOLDER, harness.root, "load") as holder:
        assert read_line(holder) == "ready"
        if end == "kill":
            holder.kill()
        else:
            holder.communicate()
        holder.wait(5)
        async with SessionRepository(harness.open(), SessionStore()) as persistence:
            await persistence.load("s")
            await persistence.append("s", turn_events(2, 3))


class WaitingFiles(OsFiles):
    """Tells when the log's own lock is held by somebody else."""

    def __init__(self, refused: threading.Event) -> None:
        self._refused = refused

    def lock(self, handle: int) -> bool:
        if super().lock(handle):
            return True
        self._refused.set()
        return False


@pytest.mark.rule("changed-log-is-never-overwritten")
async def test_no_acknowledged_turn_is_overwritten_when_the_lock_file_is_removed(
    harness: JsonlHarness,
) -> None:
    acknowledged = ["hello"]
    go_on = threading.Event()
    backend = JsonlBackend(str(harness.root), files=WaitingFiles(go_on))
    with started(PAUSED, harness.root) as other:
        assert read_line(other) == "checked"
        for lock in harness.root.rglob("*.lock"):
            lock.unlink()
        async with SessionRepository(backend, SessionStore()) as persistence:
            await persistence.load("s")

            async def append() -> None:
                with contextlib.suppress(SessionChangedError):
                    await persistence.append("s", turn_events(2, 3, text="mine"))
                    acknowledged.append("mine")
                go_on.set()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(append)
                await anyio.to_thread.run_sync(go_on.wait)
                assert other.stdin is not None
                other.stdin.write("\n")
                other.stdin.flush()
                if await anyio.to_thread.run_sync(read_line, other) == "stored":
                    acknowledged.append("the other's")
    assert len(acknowledged) == 2
    async with SessionRepository(harness.open(), SessionStore()) as persistence:
        log = (await persistence.load("s")).log
        said = [e.data["content"][0]["text"] for e in log if e.type == "user/message"]
        assert said == acknowledged
        await persistence.append("s", turn_events(3, 6))


@pytest.mark.rule("changed-log-is-never-overwritten")
@pytest.mark.parametrize("how", ["removed", "replaced", "written"])
async def test_a_log_that_is_changed_while_it_is_written_is_not_acknowledged(
    harness: JsonlHarness, how: str
) -> None:
    log = harness.log("s")

    class MeddledFiles(OsFiles):
        def sync(self, handle: int) -> None:
            super().sync(handle)
            match how:
                case "removed":
                    log.unlink()
                case "replaced":
                    copy = log.with_suffix(".copy")
                    copy.write_bytes(log.read_bytes())
                    copy.rename(log)
                case "written":
                    with log.open("ab") as file:
                        file.write(b"x")

    backend = JsonlBackend(str(harness.root), files=MeddledFiles())
    async with SessionRepository(backend, SessionStore()) as persistence:
        await persistence.load("s")
        with pytest.raises(SessionChangedError):
            await persistence.append("s", turn_events(2, 3))


@pytest.mark.rule("lock-is-held-by-kernel")
async def test_a_stopped_process_keeps_its_session(harness: JsonlHarness) -> None:
    with started(HOLDER, harness.root, "load") as holder:
        assert read_line(holder) == "ready"
        os.kill(holder.pid, signal.SIGSTOP)
        async with SessionRepository(harness.open(), SessionStore()) as persistence:
            with pytest.raises(SessionLockedError):
                await persistence.load("s")


@pytest.mark.rule("writing-takes-the-lock")
async def test_a_new_process_waits_a_moment_for_the_old_one(harness: JsonlHarness) -> None:
    async with SessionRepository(harness.open(), SessionStore()) as persistence:
        await persistence.load("s")
        with started(HOLDER, harness.root, "load") as holder:
            # While it starts and waits, the event loop here stays free to release.
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(persistence.release, "s")
                assert await anyio.to_thread.run_sync(read_line, holder) == "ready"


@pytest.mark.rule("lock-is-held-by-kernel")
@pytest.mark.parametrize("leftover", ["pid of a dead process", "nonsense", "pid of a live one"])
async def test_what_stands_in_the_files_does_not_lock(harness: JsonlHarness, leftover: str) -> None:
    """B55: the kernel's lock decides, not what a file says."""
    text = {"nonsense": "?", "pid of a live one": str(os.getppid())}.get(leftover, "1")
    directory = harness.log("s").parent
    for name in ("writer.lock", "writer.pid"):
        (directory / name).write_text(text)
    async with SessionRepository(harness.open(), SessionStore()) as persistence:
        await persistence.load("s")
        assert (directory / "writer.pid").read_text() == str(os.getpid())


async def test_of_two_processes_that_make_one_session_one_does(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with (
        started(HOLDER, root, "create") as one,
        started(HOLDER, root, "create") as other,
    ):
        answers = sorted([read_line(one), read_line(other)])
    assert answers[1] == "ready"
    assert answers[0] in {"SessionLockedError", "SessionCollisionError"}
    async with SessionRepository(JsonlBackend(str(root)), SessionStore()) as persistence:
        assert list((await persistence.load("s")).log) == turn_events(1, 0)


@pytest.mark.rule("kill-loses-nothing-acknowledged")
@pytest.mark.parametrize("budget", [0, 1, 150, 260, 420, 421, 700, 1000, 1400, 2000])
async def test_a_writer_killed_at_any_byte_loses_nothing_it_acknowledged(
    tmp_path: Path, budget: int
) -> None:
    """The log it leaves loads, holds every acknowledged turn, and goes on."""
    root = tmp_path / "store"
    with started(WRITER, root, budget) as writer:
        output = writer.communicate(timeout=20)[0]
    assert writer.returncode == -signal.SIGKILL
    acknowledged = [json.loads(line) for line in output.splitlines()]
    async with SessionRepository(JsonlBackend(str(root)), SessionStore()) as persistence:
        if not acknowledged and not await persistence.has("s"):
            return
        loaded = await persistence.load("s")
        events = [event.to_json() for event in loaded.log]
        expected = [
            event.to_json()
            for turn in range(1, len(acknowledged) + 2)
            for event in turn_events(turn, 3 * turn - 3)
        ]
        assert len(events) >= 3 * len(acknowledged)
        closers = loaded.repaired.closer_count if loaded.repaired else 0
        whole = len(events) - closers
        assert events[:whole] == expected[:whole]
        await persistence.append("s", turn_events(events[-1]["data"]["turn"] + 1, len(events)))
    async with SessionRepository(JsonlBackend(str(root)), SessionStore()) as persistence:
        again = await persistence.load("s")
        assert len(again.log) == len(events) + 3
        assert again.repaired is None

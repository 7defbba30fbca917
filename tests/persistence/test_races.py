"""Real processes on one session, on every backend that processes can share."""

import errno
import fcntl
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from persistence import SessionLockedError, SessionRepository, open_backend
from persistence.testing.harness import header, turn_events
from session_core import SessionStore
from tests.persistence.processes import read_line, started

PROGRAM = Path(__file__).parent / "racer_program.py"


@pytest.fixture(params=["jsonl:{}/store", "sqlite:{}/store.db"])
def spec(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(request.param).format(tmp_path)


def racing(spec: str, name: str, rounds: int) -> AbstractContextManager[subprocess.Popen[str]]:
    return started(PROGRAM, spec, name, rounds)


def ask(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None
    process.stdin.write("append\n")
    process.stdin.flush()
    return read_line(process)


def opened(spec: str) -> SessionRepository:
    return SessionRepository(open_backend(spec), SessionStore())


async def stored(spec: str) -> None:
    async with opened(spec) as persistence:
        await persistence.create(header("s"))
        await persistence.append("s", turn_events(1, 0, text="xyzzy"))


async def texts(spec: str) -> list[str]:
    """Load the session as a third process; return the text of each turn."""
    async with opened(spec) as persistence:
        loaded = await persistence.load("s")
    assert [event.seq for event in loaded.log] == list(range(len(loaded.log)))
    starts = [event.data["turn"] for event in loaded.log if event.type == "turn/start"]
    assert starts == list(range(1, len(starts) + 1))
    prompts = [event for event in loaded.log if event.type == "user/message"]
    return [event.data["content"][0]["text"] for event in prompts]


@pytest.mark.case("B55")
async def test_two_writers_take_turns_and_lose_none(spec: str) -> None:
    """20 rounds each, from the creation of the session on."""
    with racing(spec, "a", 20) as one, racing(spec, "b", 20) as other:
        said = [
            (await anyio.to_thread.run_sync(process.communicate, None, 60))[0].split()
            for process in (one, other)
        ]
        assert [process.returncode for process in (one, other)] == [0, 0]
    assert said == [[f"{name}-{k}" for k in range(20)] for name in "ab"]
    found = await texts(spec)
    assert sorted(found) == sorted(said[0] + said[1])
    for name in "ab":
        assert [text for text in found if text.startswith(name)] == said["ab".index(name)]


def remove_behind_its_back(spec: str) -> None:
    place = Path(spec.partition(":")[2])
    if spec.startswith("jsonl"):
        (log,) = place.glob("*/s/session.jsonl")
        log.unlink()
        return
    connection = sqlite3.connect(place)
    connection.execute("PRAGMA foreign_keys = ON")
    with connection:
        connection.execute("DELETE FROM sessions")
    connection.close()


@contextmanager
def python(code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.case("B55")
async def test_a_second_process_does_not_write_over_the_first(spec: str) -> None:
    await stored(spec)
    with racing(spec, "a", 0) as one:
        assert read_line(one) == "ready"
        with racing(spec, "b", 0) as other:
            assert read_line(other) == "SessionLockedError"
        assert ask(one) == "done"
        os.kill(one.pid, signal.SIGSTOP)
        async with opened(spec) as persistence:
            with pytest.raises(SessionLockedError) as raised:
                await persistence.load("s")
            assert raised.value.pid == one.pid
        os.kill(one.pid, signal.SIGCONT)
        assert ask(one) == "done"
    assert await texts(spec) == ["xyzzy", "a", "a"]


@pytest.mark.case("B55")
async def test_a_killed_writer_keeps_nobody_out(spec: str) -> None:
    """What it acknowledged is there once; with SQLite the kernel may stop it in a commit."""
    acknowledged: list[str] = []
    dice = random.Random(7)
    for life in range(8):
        with racing(spec, f"{life}", 1000) as writer:
            acknowledged += [read_line(writer) for _ in range(dice.randrange(1, 6))]
            writer.kill()
            assert writer.stdout is not None
            acknowledged += writer.stdout.read().split()
        with anyio.fail_after(5):
            found = await texts(spec)
        assert [text for text in found if text in set(acknowledged)] == acknowledged
        # One turn a life may be stored and not yet said.
        assert len(found) <= len(acknowledged) + life + 1


@pytest.mark.case("B55")
@pytest.mark.parametrize("leftover", ["", "1", "?", "other-host:77"])
async def test_what_stands_in_a_lock_file_locks_nobody_out(spec: str, leftover: str) -> None:
    await stored(spec)
    folder = Path(spec.partition(":")[2]).parent
    locks = [path for path in folder.rglob("*.lock") if "index" not in path.name]
    assert len(locks) == 1
    locks[0].write_text(leftover)
    locks[0].with_suffix(".pid").write_text(leftover)
    assert await texts(spec) == ["xyzzy"]


@pytest.mark.rule("delete-needs-the-lock")
@pytest.mark.case("B61")
async def test_a_delete_from_a_second_process_is_refused_or_complete(spec: str) -> None:
    await stored(spec)
    with racing(spec, "a", 0) as one:
        assert read_line(one) == "ready"
        async with opened(spec) as persistence:
            with pytest.raises(SessionLockedError):
                await persistence.delete("s")
        assert ask(one) == "done"
    async with opened(spec) as persistence, opened(spec) as other:
        assert len((await other.inspect("s")).log) == 6
        await persistence.delete("s")
        assert not await other.has("s")
        folder = str(Path(spec.partition(":")[2]).parent)
        grep = await anyio.run_process(["grep", "-ra", "xyzzy", folder], check=False)
        assert grep.stdout == b""
    with racing(spec, "a", 0) as one:
        assert read_line(one) == "SessionNotFoundError"


@pytest.mark.case("B61")
async def test_a_file_removed_behind_a_writer_does_not_come_back(spec: str) -> None:
    await stored(spec)
    with racing(spec, "a", 0) as one:
        assert read_line(one) == "ready"
        remove_behind_its_back(spec)
        assert ask(one) in {"SessionChangedError", "SessionNotFoundError"}
    async with opened(spec) as persistence:
        assert not await persistence.has("s")


@pytest.mark.rule("writing-takes-the-lock")
@pytest.mark.case("B56")
async def test_a_lock_held_by_another_process_is_waited_for(tmp_path: Path) -> None:
    spec = f"sqlite:{tmp_path}/store.db"
    await stored(spec)
    code = (
        "import sqlite3, sys, time; c = sqlite3.connect(sys.argv[1], isolation_level=None);"
        "c.execute('BEGIN IMMEDIATE'); print('held', flush=True); time.sleep(1.5)"
    )
    async with opened(spec) as persistence:
        await persistence.load("s")
        with python(code, f"{tmp_path}/store.db") as holder:
            assert read_line(holder) == "held"
            with anyio.fail_after(8):
                await persistence.append("s", turn_events(2, 3, text="second"))
    assert await texts(spec) == ["xyzzy", "second"]


@pytest.mark.case("B56")
async def test_processes_that_start_together_make_one_store(tmp_path: Path) -> None:
    """All of them create the database; each has a session of its own name."""
    code = (
        "import sys, anyio; from persistence import *;"
        "from persistence.testing.harness import header, turn_events\n"
        "async def main(name):\n"
        "    backend = open_backend(sys.argv[1])\n"
        "    assert (await backend.list_page(None, None, 9)).entries is not None\n"
        "    writer = await backend.acquire_writer(name, header(name))\n"
        "    await writer.append_batch(header(name), turn_events(1, 0))\n"
        "    await backend.close()\n"
        "anyio.run(main, sys.argv[2])"
    )
    spec = f"sqlite:{tmp_path}/a #?b/store.db"
    with ExitStack() as stack:
        processes = [stack.enter_context(python(code, spec, f"s{k}")) for k in range(6)]
        for process in processes:
            assert await anyio.to_thread.run_sync(process.communicate) == ("", "")
            assert process.returncode == 0
    async with opened(spec) as persistence:
        assert len((await persistence.list()).entries) == len(processes)


@pytest.mark.rule("lock-is-held-by-kernel")
async def test_an_unlock_that_fails_does_not_keep_the_session(
    spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stored(spec)
    flock = fcntl.flock
    failures: list[int] = []

    def failing(descriptor: int, operation: int) -> None:
        if operation == fcntl.LOCK_UN and len(failures) < 2:
            failures.append(descriptor)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        flock(descriptor, operation)

    async with opened(spec) as persistence:
        await persistence.load("s")
        await persistence.append("s", turn_events(2, 3, text="one"))
        monkeypatch.setattr(fcntl, "flock", failing)
        await persistence.release("s")
        await persistence.load("s")
        await persistence.append("s", turn_events(3, 6, text="two"))
    async with opened(spec) as persistence:
        await persistence.delete("s")
    assert len(failures) == 2

"""The real server ends in time, whatever its agent, its threads and its standard error do."""

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson
import pytest

LIMIT_S: Final = 8
"""More than the 5 s that are promised: the machine may be busy."""

HANG_S: Final = 60
"""A test that fails must not wait for ever."""

AGENTS: Final = """
import multiprocessing, subprocess, sys, threading, time
from pathlib import Path
import anyio, os

HERE = Path(__file__).parent

def begun(turn):
    (HERE / f"begun-{turn.prompt}").write_text("begun")

def waits_for_fifo(turn):
    begun(turn)
    (HERE / "never").read_text()

async def sleeps(turn):
    begun(turn)
    time.sleep(1000)

async def spins(turn):
    begun(turn)
    while True:
        pass

async def holds_a_worker(turn):
    await anyio.to_thread.run_sync(waits_for_fifo, turn)

async def holds_a_thread(turn):
    threading.Thread(target=waits_for_fifo, args=[turn]).start()
    await anyio.sleep_forever()

async def shields(turn):
    with anyio.CancelScope(shield=True):
        begun(turn)
        await anyio.sleep_forever()

async def starts_children(turn):
    opened = f"exec 9> {HERE}/alive; echo up >&9;"
    subprocess.Popen(["sh", "-c", f"{opened} exec sleep 60"])
    subprocess.Popen(["sh", "-c", f"{opened} sleep 60 & wait"], start_new_session=True)
    begun(turn)
    time.sleep(1000)

async def forks(turn):
    context = multiprocessing.get_context("fork")
    up = context.Event()
    child = context.Process(target=lambda: (up.set(), time.sleep(60)))
    child.start()
    up.wait()
    child.terminate()
    child.join()
    begun(turn)
    await turn.text(f"child: {child.exitcode}")

async def chatters(turn):
    for number in range(20_000):
        print(f"{number:06}" * 10)
    os.write(2, b"raw\\n" * 50_000)
    subprocess.run([sys.executable, "-c", "print('child' * 50_000)"], check=True)
    begun(turn)
    await turn.text("done")
"""

WAYS: Final = ["eof", "SIGTERM", "SIGINT", "SIGHUP"]


class Running(NamedTuple):
    """A server in a turn, and what it is asked to end by."""

    process: "subprocess.Popen[bytes]"
    store: str
    way: str

    def end(self) -> None:
        if self.way == "eof":
            assert self.process.stdin is not None
            self.process.stdin.close()
        else:
            self.process.send_signal(signal.Signals[self.way])

    def returned(self) -> int:
        return self.process.wait(LIMIT_S)

    def answer(self, request_id: str) -> dict[str, Any]:
        """Read frames up to the answer to a request, and return its result."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            answer: dict[str, Any] = orjson.loads(line)
            if answer.get("id") == request_id:
                result: dict[str, Any] = answer["result"]
                return result
        msg = f"no answer to {request_id}"
        raise AssertionError(msg)


Start = Callable[..., Running]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start servers whose stderr nobody reads and whose agent has begun a turn."""
    (tmp_path / "agents.py").write_text(AGENTS)
    os.mkfifo(tmp_path / "never")
    with ExitStack() as stack:

        def start(agent: str, way: str, kind: str = "jsonl", *options: str) -> Running:
            store = f"{kind}:{tmp_path / 'store'}"
            spec = f"{tmp_path / 'agents.py'}:{agent}"
            argv = [sys.executable, "-m", "acp_server", "--agent", spec, "--store", store]
            process = stack.enter_context(
                subprocess.Popen(
                    [*argv, *options],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                )
            )
            stack.callback(process.kill)
            watchdog = threading.Timer(HANG_S, process.kill)
            watchdog.start()
            stack.callback(watchdog.cancel)
            server = Running(process, store, way)
            send(process, "initialize", {"protocolVersion": 1, "clientCapabilities": {}})
            send(process, "session/new", {"cwd": str(tmp_path), "mcpServers": []})
            session_id = server.answer("session/new")["sessionId"]
            begun = tmp_path / f"begun-{way}"
            os.mkfifo(begun)
            prompt = [{"type": "text", "text": way}]
            send(process, "session/prompt", {"sessionId": session_id, "prompt": prompt})
            wait_for_byte(begun)
            return server

        yield start


def wait_for_byte(fifo: Path) -> None:
    fd = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert select.select([fd], [], [], HANG_S)[0], f"nobody wrote to {fifo.name}"
    finally:
        os.close(fd)


def send(process: "subprocess.Popen[bytes]", method: str, params: dict[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(frame(method, params))
    process.stdin.flush()


def frame(method: str, params: dict[str, Any]) -> bytes:
    """Return a request whose id is its method."""
    return (
        orjson.dumps({"jsonrpc": "2.0", "id": method, "method": method, "params": params}) + b"\n"
    )


def assert_sound(servers: list[Running]) -> None:
    argv = [sys.executable, "-m", "acp_server", "sessions", "verify", "--json", "--store"]
    done = subprocess.run([*argv, servers[0].store], capture_output=True, timeout=HANG_S)
    assert (done.returncode, done.stderr) == (0, b"")
    reports = [orjson.loads(line) for line in done.stdout.splitlines()]
    assert len(reports) == len(servers)
    # Turn and prompt were acknowledged before the agent began.
    assert all(report["events"] >= 2 for report in reports)


@pytest.mark.rule("exit-needs-no-event-loop", "signals-end-like-input")
@pytest.mark.parametrize(
    ("agent", "kind"),
    [
        ("sleeps", "jsonl"),
        ("spins", "sqlite"),
        ("holds_a_worker", "jsonl"),
        ("holds_a_worker", "sqlite"),
        ("holds_a_thread", "jsonl"),
        ("shields", "sqlite"),
    ],
)
def test_the_server_ends_whatever_its_agent_does(agent: str, kind: str, start: Start) -> None:
    servers = [start(agent, way, kind) for way in WAYS]
    for server in servers:
        server.end()
    assert {server.way: server.returned() for server in servers} == {
        "eof": 0,
        "SIGTERM": 0,
        "SIGINT": 130,
        "SIGHUP": 0,
    }
    assert_sound(servers)


@pytest.mark.rule("exit-needs-no-event-loop", "stderr-never-blocks")
def test_a_full_stderr_blocks_neither_the_turn_nor_the_end(start: Start) -> None:
    servers = [start("chatters", way, "jsonl", "--log-level", "debug") for way in WAYS]
    for server in servers:
        assert server.answer("session/prompt")["stopReason"] == "end_turn"
        server.end()
    assert [server.returned() for server in servers] == [0, 0, 130, 0]
    assert_sound(servers)


@pytest.mark.rule("exit-needs-no-event-loop")
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are known from /proc")
def test_no_child_is_left_by_an_agent_that_blocks(start: Start, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "alive")
    server = start("starts_children", "eof")
    with (tmp_path / "alive").open() as alive:
        assert [alive.readline() for _ in range(2)] == ["up\n"] * 2
        server.end()
        assert server.returned() == 0
        # The end comes when the last process has gone that holds the other side.
        assert select.select([alive], [], [], LIMIT_S)[0]
        assert alive.read() == ""


@pytest.mark.rule("exit-needs-no-event-loop")
def test_a_signal_to_a_forked_child_is_none_to_the_server(start: Start, tmp_path: Path) -> None:
    server = start("forks", "eof")
    assert server.answer("session/prompt")["stopReason"] == "end_turn"
    send(server.process, "session/list", {})
    assert server.answer("session/list")["sessions"]
    log = next(tmp_path.rglob("session.jsonl")).read_text()
    assert f"child: {-signal.SIGTERM}" in log
    server.end()
    assert server.returned() == 0


@pytest.mark.rule("exit-needs-no-event-loop")
@pytest.mark.parametrize("way", WAYS)
def test_an_import_that_never_ends_outlives_nobody(way: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "begun")
    (tmp_path / "agents.py").write_text(
        "import time\nfrom pathlib import Path\n"
        "(Path(__file__).parent / 'begun').write_text('x')\ntime.sleep(1000)\n"
    )
    argv = [sys.executable, "-m", "acp_server", "--agent", f"{tmp_path / 'agents.py'}:never"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        wait_for_byte(tmp_path / "begun")
        server = Running(process, "", way)
        server.end()
        try:
            assert server.returned() == (130 if way == "SIGINT" else 0)
        finally:
            process.kill()
        assert process.stderr is not None
        assert process.stderr.read() == b""


@pytest.mark.rule("end-of-input-ends-server")
def test_a_file_as_input_is_answered_to_its_end(tmp_path: Path) -> None:
    requests = [("initialize", {"protocolVersion": 1}), ("session/list", {})]
    (tmp_path / "input").write_bytes(b"".join(frame(*request) for request in requests))
    argv = [sys.executable, "-m", "acp_server", "--store", "memory:"]
    with (tmp_path / "input").open("rb") as stdin:
        done = subprocess.run(argv, stdin=stdin, capture_output=True, timeout=HANG_S)
    assert (done.returncode, done.stderr) == (0, b"")
    answers = [orjson.loads(line)["id"] for line in done.stdout.splitlines()]
    assert answers == ["initialize", "session/list"]

"""Clients that do not read, do not answer, or go away; and what else could write on stdout."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest
from anyio.lowlevel import checkpoint

from acp_server.agents.agent import Agent
from acp_server.agents.turn import Turn
from acp_server.app import Server, ServerConfig
from acp_server.testing import (
    FILE_CAPABILITIES,
    AcpClient,
    AcpError,
    CountedIds,
    SteppingClock,
    running_server,
)
from acp_server.transport.memory import MemoryTransport, memory_transport_pair

AGENTS = Path(__file__).parents[2] / "fixtures" / "agents" / "edge.py"
MIB = 1024 * 1024
INTERRUPTED = "\n\n[Interrupted: the server stopped before this turn ended]\n\n"


def argv(store: Path, agent: str, *more: str) -> list[str]:
    command = [sys.executable, "-m", "acp_server", "serve", "--agent", f"{AGENTS}:{agent}"]
    return [*command, "--store", f"jsonl:{store}", *more]


def line(request_id: object, method: str, **params: Any) -> bytes:
    frame = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
    return orjson.dumps(frame) + b"\n"


def prompt_line(request_id: object, session_id: str, text: str) -> bytes:
    blocks = [{"type": "text", "text": text}]
    return line(request_id, "session/prompt", sessionId=session_id, prompt=blocks)


# A client that does not read.


@asynccontextmanager
async def unread_server(agent: Agent) -> AsyncIterator[tuple[MemoryTransport, MemoryTransport]]:
    """Yield (the client's end, the server's end); nothing is read unless the test does."""
    near, far = memory_transport_pair()
    config = ServerConfig(agent=agent, store="memory:", clock=SteppingClock(), ids=CountedIds())
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(near.run)
            tasks.start_soon(Server(config, far).serve)
            near.send(line("i", "initialize", protocolVersion=1))
            await frames_until(near, "i")
            near.send(line("l", "session/list"))
            await frames_until(near, "l")
            yield near, far
            tasks.cancel_scope.cancel()


async def frames_until(near: MemoryTransport, request_id: object) -> list[dict[str, Any]]:
    """Read up to the answer of a request."""
    frames: list[dict[str, Any]] = []
    while not any(f.get("id") == request_id and "method" not in f for f in frames):
        for frame in await near.receive() or ():
            assert isinstance(frame, bytes)
            frames.append(orjson.loads(frame))
    return frames


@pytest.mark.rule("producers-wait-for-readers")
async def test_a_client_that_never_reads_stops_the_agent_and_not_the_server() -> None:
    made = 0

    async def flood(turn: Turn) -> None:
        nonlocal made
        while True:
            await turn.text("x" * 4096)
            made += 1

    async with unread_server(Agent("flood", flood)) as (near, far):
        near.send(line("n", "session/new", cwd="/w", mcpServers=[]))
        opened = await frames_until(near, "n")
        (session_id,) = (f["result"]["sessionId"] for f in opened if f.get("id") == "n")
        near.send(prompt_line("p", session_id, "go"))
        while not far.congested:
            await checkpoint()
        await anyio.wait_all_tasks_blocked()
        assert MIB < made * 4096 < 10 * MIB
        assert far._outbox.unwritten_bytes < 10 * MIB
        stopped_at = made
        # What it says is still heard, and the turn ends when it is read again.
        near.send(orjson.dumps({"jsonrpc": "2.0", "method": "session/cancel"})[:-1])
        near.send(b',"params":{"sessionId":"%b"}}\n' % session_id.encode())
        await anyio.wait_all_tasks_blocked()
        assert made == stopped_at
        frames = await frames_until(near, "p")
        assert frames[-1]["result"] == {"stopReason": "cancelled"}


@pytest.mark.rule("producers-wait-for-readers")
async def test_requests_of_a_client_that_never_reads_pause_at_64_mib_of_answers() -> None:
    async def drive(turn: Turn) -> None:
        await turn.text("hi")

    async with unread_server(Agent("hi", drive)) as (near, far):
        # The id comes back: a megabyte asked, a megabyte answered.
        ids = [str(number) + "i" * MIB for number in range(90)]
        for request_id in ids:
            near.send(line(request_id, "_x"))
        while not far.overloaded:
            await checkpoint()
        await anyio.wait_all_tasks_blocked()
        assert 63 * MIB < far._outbox.unwritten_bytes < 68 * MIB
        frames = await frames_until(near, ids[-1])
        assert [f["id"] for f in frames if f.get("error", {}).get("code") == -32601] == ids


class Descriptors:
    """A server on pipes of which each end can be closed by itself."""

    def __init__(self, store: Path, agent: str) -> None:
        stdin, self.input = os.pipe()
        self.output, stdout = os.pipe()
        self.process = subprocess.Popen(argv(store, agent), stdin=stdin, stdout=stdout)
        os.close(stdin)
        os.close(stdout)
        self._rest = b""

    def write(self, data: bytes) -> None:
        os.write(self.input, data)

    def read(self) -> dict[str, Any]:
        """Return the next frame."""
        while b"\n" not in self._rest:
            self._rest += os.read(self.output, 65536)
        taken, _, self._rest = self._rest.partition(b"\n")
        frame: dict[str, Any] = orjson.loads(taken)
        return frame

    def flood(self) -> str:
        """Open a session, start a turn that floods, and read no more than its beginning."""
        self.write(line("i", "initialize", protocolVersion=1))
        self.read()
        self.write(line("n", "session/new", cwd="/", mcpServers=[]))
        session_id: str = self.read()["result"]["sessionId"]
        self.write(prompt_line("p", session_id, "go"))
        while b"agent_message_chunk" not in orjson.dumps(self.read()):
            pass
        return session_id


def last_reason(store: Path, session_id: str) -> dict[str, Any]:
    (log,) = store.glob(f"*/{session_id}/session.jsonl")
    reason: dict[str, Any] = orjson.loads(log.read_bytes().splitlines()[-1])["data"]["reason"]
    return reason


@pytest.mark.parametrize("way", ["closes stdout", "ends stdin and reads nothing", "closes both"])
@pytest.mark.rule(
    "bad-input-never-ends-server", "end-of-input-ends-server", "gone-client-stops-no-turn"
)
def test_a_client_that_goes_away_in_a_flood_ends_the_process(way: str, tmp_path: Path) -> None:
    server = Descriptors(tmp_path / "store", "flood")
    try:
        session_id = server.flood()
        if way != "ends stdin and reads nothing":
            os.close(server.output)
        if way != "closes stdout":
            os.close(server.input)
        assert server.process.wait(5) == 0
    finally:
        server.process.kill()
        server.process.wait()
    if way == "ends stdin and reads nothing":
        os.close(server.output)
    if way == "closes stdout":
        os.close(server.input)
    assert last_reason(tmp_path / "store", session_id) == {"kind": "disposed"}


# A client that does not answer.


@pytest.mark.rule("waiting-session-blocks-no-other", "cancel-withdraws-client-requests")
@pytest.mark.case("B27")
async def test_a_client_that_never_answers_blocks_only_what_waits_for_it(tmp_path: Path) -> None:
    async def drive(turn: Turn) -> None:
        if turn.prompt == "read":
            await turn.files.read("a.txt")
        elif turn.prompt == "ask":
            await turn.text("yes" if await turn.ask("May I?") else "no")
        else:
            await turn.text("free")

    async with running_server(
        Agent("asker", drive),
        capabilities=dict(FILE_CAPABILITIES),
        never_answer=["session/request_permission", "fs/read_text_file"],
    ) as client:
        waiting = [await client.new_session(tmp_path) for _ in range(2)]
        handles = [
            await client.start_prompt(session_id, text)
            for session_id, text in zip(waiting, ("read", "ask"), strict=True)
        ]
        await client.wait_for_agent_request("fs/read_text_file")
        await client.wait_for_agent_request("session/request_permission")
        other = await client.new_session(tmp_path)
        assert (await client.prompt(other, "x")).text == "free"
        await client.load_session(other, tmp_path)
        await client.list_sessions()
        await client.cancel_request(handles[0].pending.request_id)
        assert (await handles[0].result()).stop_reason == "cancelled"
        await client.notify("session/cancel", {"sessionId": waiting[1]})
        assert (await handles[1].result()).stop_reason == "cancelled"
        for session_id in waiting:
            assert (await client.prompt(session_id, "x")).text == "free"


# The end of input.


EOF_STAGES = ["start", "initialized", "no LF", "idle", "stream", "tool", "ask", "read"]


async def reach(client: AcpClient, stage: str, tmp_path: Path) -> str | None:
    """Bring a server to a stage; return the session, if there is one."""
    if stage == "start":
        return None
    await client.initialize(dict(FILE_CAPABILITIES))
    if stage == "no LF":
        await client.send_raw(b'{"jsonrpc":"2.0","method":"session/cancel"}')
    if stage in ("initialized", "no LF"):
        return None
    session_id = await client.new_session(tmp_path)
    if stage == "idle":
        await client.prompt(session_id, "hello")
        return session_id
    await client.start_prompt(session_id, stage)
    if stage == "stream":
        await client.wait_for_update(lambda update: "messageId" in update)
    elif stage == "tool":
        await client.wait_for_update(lambda update: update.get("status") == "in_progress")
    else:
        method = {"ask": "session/request_permission", "read": "fs/read_text_file"}[stage]
        await client.wait_for_agent_request(method)
    return session_id


@pytest.mark.parametrize("stage", EOF_STAGES)
@pytest.mark.rule(
    "end-of-input-ends-server", "bad-input-never-ends-server", "open-prompts-end-cancelled"
)
@pytest.mark.case("B05")
async def test_the_end_of_input_ends_the_process_in_order_at_any_stage(
    stage: str, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    asks = ["session/request_permission", "fs/read_text_file"]
    async with AcpClient.spawn(argv(store, "waiter"), never_answer=asks) as client:
        session_id = await reach(client, stage, tmp_path)
        await client.close_stdin()
        assert await client.wait(5) == 0
        assert client.stderr == ""
        # Every request was answered: leaving the block checks that.
    if session_id is None:
        assert list(store.glob("*/*")) == []
        return
    kind = "completed" if stage == "idle" else "disposed"
    assert last_reason(store, session_id) == {"kind": kind}
    if stage == "stream":
        await loads_interrupted(store, session_id, tmp_path)


async def loads_interrupted(store: Path, session_id: str, cwd: Path) -> None:
    async with AcpClient.spawn(argv(store, "waiter")) as client:
        await client.initialize()
        await client.load_session(session_id, cwd)
        users = [
            seen.update["content"]["text"]
            for seen in client.updates
            if seen.update["sessionUpdate"] == "user_message_chunk"
        ]
        shown = [
            seen.update["content"]["text"] for seen in client.updates if "messageId" in seen.update
        ]
        assert users == ["stream"]
        assert shown[-1] == INTERRUPTED
        assert shown[-2].startswith("word 0 ")
        assert (await client.prompt(session_id, "hello")).text == "hello"


# Stdout.


async def talk(client: AcpClient, cwd: Path) -> None:
    await client.initialize()
    session_id = await client.new_session(cwd)
    assert (await client.prompt(session_id, "go")).stop_reason == "end_turn"
    with pytest.raises(AcpError):
        await client.request("session/nope")
    await client.send_raw(b"garbage\n")
    await client.list_sessions()
    await client.close_stdin()
    await client.wait()


@pytest.mark.rule("stdout-has-frames-only")
@pytest.mark.case("B03")
async def test_warnings_and_debug_logs_stay_off_stdout(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONWARNINGS": "always", "PYTHONDEVMODE": "1"}
    command = argv(tmp_path / "store", "noisy", "--log-level", "debug")
    async with AcpClient.spawn(command, env=env) as client:
        await talk(client, tmp_path)
        assert "refused a frame" in client.stderr


@pytest.mark.rule("stdout-has-frames-only")
@pytest.mark.case("B03")
async def test_prints_around_the_program_stay_off_stdout(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    code = "import atexit\nprint('boo')\natexit.register(print, 'bye')\n"
    (site / "sitecustomize.py").write_text(code)
    env = {**os.environ, "PYTHONPATH": f"{site}:{Path.cwd()}"}
    # Unbuffered, it would be on the wire before any line of ours runs.
    env.pop("PYTHONUNBUFFERED", None)
    async with AcpClient.spawn(argv(tmp_path / "store", "echo"), env=env) as client:
        await talk(client, tmp_path)
        for word in ("boo", "bye"):
            assert word in client.stderr


@pytest.mark.rule("stdout-has-frames-only", "children-have-no-wire")
@pytest.mark.case("B03", "B04")
async def test_prints_of_tools_and_children_stay_off_stdout(tmp_path: Path) -> None:
    async with AcpClient.spawn(argv(tmp_path / "store", "noisy")) as client:
        await talk(client, tmp_path)
        for word in ("printed", "written, not flushed", "raw", "child", "in a tool"):
            assert word in client.stderr


@pytest.mark.rule("stderr-is-silent-unless-asked", "stdout-has-frames-only")
@pytest.mark.case("B03")
async def test_a_first_start_on_a_fresh_store_writes_frames_only(tmp_path: Path) -> None:
    store = tmp_path / "deep" / "er" / "store"
    async with AcpClient.spawn(argv(store, "echo")) as client:
        await talk(client, tmp_path)
        assert client.stderr == ""
    assert list(store.glob("*/*/session.jsonl"))

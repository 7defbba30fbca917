"""session/close, session/delete, and the end of the connection: what is stopped, kept and gone."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from acp_server.agents.agent import Agent
from acp_server.agents.turn import Turn
from acp_server.app import Server, ServerConfig
from acp_server.bridge.open_session import OpenSession
from acp_server.testing import AcpClient, AcpError, running_server
from acp_server.transport.memory import memory_transport_pair
from persistence import open_backend
from persistence.memory import MemoryBackend
from tests.acp_server.helpers import refused, stored_events

AGENTS = Path(__file__).parents[3] / "fixtures" / "agents" / "worker.py"


class Stuck:
    """Waits in a tool at the prompt `wait`, else answers with the prompt."""

    def __init__(self) -> None:
        self.agent = Agent("stuck", self.drive)
        self.prompts: list[str] = []

    async def drive(self, turn: Turn) -> None:
        self.prompts.append(turn.prompt)
        if turn.prompt == "wait":
            async with turn.tool("sleep", kind="execute"):
                await anyio.sleep_forever()
        if turn.prompt == "ask":
            await turn.ask("May I?")
        await turn.text(turn.prompt)


def answers_in_order(client: AcpClient, methods: tuple[str, ...]) -> list[str]:
    asked: dict[Any, str] = {}
    answered = []
    for frame in client.frames:
        value = json.loads(frame.data)
        if frame.sender == "client" and "id" in value:
            asked[value["id"]] = value.get("method", "")
        elif frame.sender == "agent" and "method" not in value:
            answered.append(asked[value["id"]])
    return [method for method in answered if method in methods]


@pytest.mark.rule("close-waits-for-the-end")
@pytest.mark.case("B85")
@pytest.mark.parametrize("prompt", ["wait", "ask"])
async def test_close_answers_the_prompts_first_and_leaves_a_whole_log(prompt: str) -> None:
    backend = open_backend("memory:")
    stuck = Stuck()
    async with running_server(
        stuck.agent, store=backend, never_answer=["session/request_permission"]
    ) as client:
        session_id = await client.new_session("/tmp/w")
        await client.prompt(session_id, "before")
        running = await client.start_prompt(session_id, prompt)
        queued = await client.start_prompt(session_id, "never")
        await client.wait_for_update(lambda u: u["sessionUpdate"] == "tool_call")
        with anyio.fail_after(5):
            assert await client.close_session(session_id) == {}
        for handle in (running, queued):
            assert (await handle.result()).stop_reason == "cancelled"
        assert answers_in_order(client, ("session/prompt", "session/close")) == [
            "session/prompt",
            "session/prompt",
            "session/prompt",
            "session/close",
        ]
        assert await client.close_session(session_id) == {}
        params = {"sessionId": session_id, "prompt": [{"type": "text", "text": "x"}]}
        assert (await refused(client, "session/prompt", params)).code == -32002
        assert (await stored_events(backend, session_id))[-1].data["reason"] == {"kind": "aborted"}
        await client.load_session(session_id, "/tmp/w")
        assert [card.status for card in client.transcript.cards] == ["failed"]
        assert client.transcript.text == "before"
        assert (await client.prompt(session_id, "after")).text == "after"
    assert stuck.prompts == ["before", prompt, "after"]


@pytest.mark.rule("close-waits-for-the-end")
@pytest.mark.case("B85")
async def test_close_waits_for_an_answer_that_takes_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def slow(_self: OpenSession) -> None:
        for _ in range(20):
            await anyio.lowlevel.checkpoint()

    monkeypatch.setattr(OpenSession, "wait_until_replayed", slow)
    async with running_server(Stuck().agent) as client:
        session_id = await client.new_session("/tmp/w")
        await client.start_prompt(session_id, "wait")
        await client.close_session(session_id)
        order = answers_in_order(client, ("session/prompt", "session/close"))
        assert order == ["session/prompt", "session/close"]


@pytest.mark.rule("close-waits-for-the-end")
@pytest.mark.case("B85")
async def test_close_gives_the_lock_to_the_next_process_and_waits_for_a_load() -> None:
    disk = MemoryBackend().disk
    stuck = Stuck()
    async with (
        running_server(stuck.agent, store=MemoryBackend(disk, lock_wait_s=0)) as one,
        running_server(stuck.agent, store=MemoryBackend(disk, lock_wait_s=0), series=1) as two,
    ):
        session_id = await one.new_session("/tmp/w")
        await one.prompt(session_id, "one")
        params = {"sessionId": session_id, "cwd": "/tmp/w"}
        result = await two.load_session(session_id, "/tmp/w")
        (warning,) = result["_meta"]["acp-session-server"]["warnings"]
        assert warning["code"] == "session-in-use"
        said = {"sessionId": session_id, "prompt": [{"type": "text", "text": "two"}]}
        read_only = {"sessionId": session_id, "modeId": "read-only"}
        before = list(disk.logs[session_id].lines)
        asked: dict[str, dict[str, Any]] = {
            "session/prompt": said,
            "session/set_mode": read_only,
            "session/delete": params,
        }
        for method, asked_for in asked.items():
            locked = await refused(two, method, asked_for)
            assert locked.code == -32603
            assert locked.data == {"sessionId": session_id, "pid": os.getpid()}
        assert disk.logs[session_id].lines == before
        load = await one.start_request("session/load", {**params, "mcpServers": []})
        await one.close_session(session_id)
        assert load.answered.is_set()
        assert (await two.prompt(session_id, "two")).text == "two"
        assert two.transcript_of(session_id).text == "onetwo"


@pytest.mark.rule("delete-ends-then-removes")
@pytest.mark.case("B61")
async def test_delete_ends_the_turn_and_leaves_nothing(tmp_path: Path) -> None:
    stuck = Stuck()
    async with running_server(stuck.agent, store=f"jsonl:{tmp_path / 'store'}") as client:
        session_id = await client.new_session(tmp_path)
        other = await client.new_session(tmp_path)
        await client.prompt(session_id, "needle-4711")
        await client.prompt(other, "kept")
        running = await client.start_prompt(session_id, "wait")
        await client.wait_for_update(lambda u: u["sessionUpdate"] == "tool_call")
        assert await client.delete_session(session_id) == {}
        assert (await running.result()).stop_reason == "cancelled"
        rows = (await client.list_sessions())["sessions"]
        assert [row["sessionId"] for row in rows] == [other]
        here = {"sessionId": session_id, "cwd": str(tmp_path)}
        assert (await refused(client, "session/load", here)).code == -32002
        said = {"sessionId": session_id, "prompt": [{"type": "text", "text": "x"}]}
        assert (await refused(client, "session/prompt", said)).code == -32002
        await client.cancel(session_id)
        assert await client.delete_session(session_id) == {}
        fresh = await client.new_session(tmp_path)
        assert await client.delete_session(fresh) == {}
    left = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert left
    assert [path for path in left if b"needle-4711" in path.read_bytes()] == []
    assert [path for path in left if session_id in str(path)] == []


@pytest.mark.rule("delete-ends-then-removes")
@pytest.mark.case("B61")
async def test_delete_needs_no_readable_log(tmp_path: Path) -> None:
    stuck = Stuck()
    store = f"jsonl:{tmp_path / 'store'}"
    async with running_server(stuck.agent, store=store) as client:
        session_id = await client.new_session(tmp_path)
        await client.prompt(session_id, "x")
    (log,) = (tmp_path / "store").rglob("session.jsonl")
    log.write_bytes(b"garbage\n" + log.read_bytes())
    async with running_server(stuck.agent, store=store, series=1) as client:
        here = {"sessionId": session_id, "cwd": str(tmp_path)}
        assert (await refused(client, "session/load", here)).code == -32603
        assert await client.delete_session(session_id) == {}
    assert not log.exists()


@pytest.mark.rule("unknown-session-is-not-found")
@pytest.mark.case("B15")
async def test_a_log_deleted_behind_our_back_is_not_found(tmp_path: Path) -> None:
    store = f"jsonl:{tmp_path / 'store'}"
    async with running_server(Stuck().agent, store=store) as client:
        session_id = await client.new_session(tmp_path)
        await client.prompt(session_id, "x")
        await client.close_session(session_id)
        (log,) = (tmp_path / "store").rglob("session.jsonl")
        shutil.rmtree(log.parent)
        here = {"sessionId": session_id, "cwd": str(tmp_path)}
        assert (await refused(client, "session/load", here)).code == -32002


async def test_a_session_changed_by_somebody_else_is_lost_here_and_loads_afresh() -> None:
    backend = MemoryBackend()
    async with running_server(Stuck().agent, store=backend) as client:
        session_id = await client.new_session("/tmp/w")
        await client.prompt(session_id, "kept")
        handles = [await client.start_prompt(session_id, text) for text in ("wait", "b", "c")]
        await client.wait_for_update(lambda u: u["sessionUpdate"] == "tool_call")
        backend.disk.logs[session_id].changes += 1
        # The running turn finds out at its next checkpoint, and all that wait are told.
        await client.cancel_request(handles[0].pending.request_id)
        for handle in handles:
            with pytest.raises(AcpError) as caught:
                await handle.result()
            assert caught.value.code == -32603
        said = {"sessionId": session_id, "prompt": [{"type": "text", "text": "x"}]}
        assert (await refused(client, "session/prompt", said)).code == -32002
        await client.load_session(session_id, "/tmp/w")
        assert client.transcript.text == "kept"
        assert (await client.prompt(session_id, "on")).text == "on"


async def test_a_setting_that_cannot_be_stored_is_an_error_and_the_session_can_be_closed() -> None:
    backend = MemoryBackend()
    async with running_server(Stuck().agent, store=backend) as client:
        session_id = await client.new_session("/tmp/w")
        await client.prompt(session_id, "kept")
        backend.disk.logs[session_id].changes += 1
        params = {"sessionId": session_id, "modeId": "read-only"}
        assert (await refused(client, "session/set_mode", params)).code == -32603
        assert await client.close_session(session_id) == {}
        result = await client.load_session(session_id, "/tmp/w")
        assert result["modes"]["currentModeId"] == "ask"


@pytest.mark.rule("end-of-input-ends-server", "open-prompts-end-cancelled", "teardown-happens-once")
async def test_the_end_of_input_ends_turns_disposed_and_starts_no_queued_prompt() -> None:
    backend = open_backend("memory:")
    stuck = Stuck()
    async with running_server(stuck.agent, store=backend) as client:
        session_id = await client.new_session("/tmp/w")
        await client.start_prompt(session_id, "wait")
        await client.start_prompt(session_id, "never")
        await client.wait_for_update(lambda u: u["sessionUpdate"] == "tool_call")
    assert stuck.prompts == ["wait"]
    events = await stored_events(backend, session_id)
    assert events[-1].data["reason"] == {"kind": "disposed"}
    async with running_server(stuck.agent, store=backend, series=1) as client:
        await client.load_session(session_id, "/tmp/w")
    assert await stored_events(backend, session_id) == events


@pytest.mark.rule("end-of-input-ends-server", "open-prompts-end-cancelled")
async def test_at_the_end_of_input_each_open_prompt_is_answered(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "acp_server", "--store", f"jsonl:{tmp_path / 'store'}"]
    async with AcpClient.spawn([*argv, "--agent", f"{AGENTS}:stuck_tool"]) as client:
        await client.initialize()
        session_id = await client.new_session(tmp_path)
        handles = [await client.start_prompt(session_id, "go") for _ in range(3)]
        await client.wait_for_update(lambda u: u["sessionUpdate"] == "tool_call")
        await client.close_stdin()
        assert [(await h.result()).stop_reason for h in handles] == ["cancelled"] * 3
        assert await client.wait() == 0


@pytest.mark.rule("teardown-happens-once")
async def test_one_teardown_for_all_who_ask_and_nothing_new_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[OpenSession] = []
    go_on, disposing = anyio.Event(), anyio.Event()
    real = OpenSession.dispose

    async def slow(self: OpenSession) -> None:
        opened.append(self)
        disposing.set()
        await go_on.wait()
        await real(self)

    monkeypatch.setattr(OpenSession, "dispose", slow)
    made: list[str] = []

    async def drive(turn: Turn) -> None:
        made.append(turn.prompt)

    near, far = memory_transport_pair()
    server = Server(ServerConfig(agent=Agent("a", drive), store="memory:"), far)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve)
        async with AcpClient.over(near) as client:
            await client.initialize()
            session_id = await client.new_session("/tmp/w")
            service = server._service
            assert service is not None
            done: list[int] = []

            async def shut_down(number: int) -> None:
                await service.shut_down()
                done.append(number)

            async with anyio.create_task_group() as callers:
                callers.start_soon(shut_down, 1)
                callers.start_soon(shut_down, 2)
                await disposing.wait()
                here = {"sessionId": session_id, "cwd": "/tmp/w"}
                text = [{"type": "text", "text": "x"}]
                asked: dict[str, dict[str, Any]] = {
                    "session/new": here,
                    "session/load": here,
                    "session/resume": here,
                    "session/close": here,
                    "session/delete": here,
                    "session/set_mode": {**here, "modeId": "ask"},
                    "session/prompt": {**here, "prompt": text},
                }
                for method, params in asked.items():
                    assert (await refused(client, method, params)).code == -32603
                assert done == []
                go_on.set()
            assert sorted(done) == [1, 2]
            assert len(opened) == 1
            assert made == []


@pytest.mark.rule("teardown-happens-once")
async def test_a_session_that_does_not_end_in_order_stops_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend = open_backend("memory:")
    real = OpenSession.dispose
    failing: list[str] = []

    async def dispose(self: OpenSession) -> None:
        if self.session.id in failing:
            message = "no"
            raise RuntimeError(message)
        await real(self)

    monkeypatch.setattr(OpenSession, "dispose", dispose)
    async with running_server(Stuck().agent, store=backend) as client:
        sessions = [await client.new_session("/tmp/w") for _ in range(3)]
        failing.append(sessions[0])
        for session_id in sessions:
            await client.start_prompt(session_id, "wait")
            await client.wait_for_update(
                lambda u: u["sessionUpdate"] == "tool_call", after=len(client.updates) - 1
            )
    for session_id in sessions[1:]:
        events = await stored_events(backend, session_id)
        assert events[-1].data["reason"] == {"kind": "disposed"}

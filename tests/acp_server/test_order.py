"""The order of frames, unknown and forgotten sessions, and cancels in the worst of moments."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest
from anyio.lowlevel import checkpoint

from acp_server.agents.agent import Agent
from acp_server.agents.turn import Turn
from acp_server.testing import AcpClient, running_server
from persistence import open_backend
from tests.acp_server.helpers import ECHO, refused

AGENTS = Path(__file__).parents[2] / "fixtures" / "agents" / "edge.py"
UNKNOWN = "00000000-dead-4bad-8bad-000000000000"
OUT_OF_TURN = {
    "available_commands_update",
    "current_mode_update",
    "config_option_update",
    "session_info_update",
    "usage_update",
}


def server(store: Path, agent: str) -> AcpClient:
    argv = [sys.executable, "-m", "acp_server", "serve", "--agent", f"{AGENTS}:{agent}"]
    return AcpClient.spawn([*argv, "--store", f"jsonl:{store}"])


def parsed(client: AcpClient) -> list[dict[str, Any]]:
    """Return the agent's frames."""
    return [orjson.loads(frame.data) for frame in client.frames if frame.sender == "agent"]


def session_of(frame: Mapping[str, Any]) -> str | None:
    """Return the session that a frame of the agent names."""
    named: str | None = (frame.get("result") or frame.get("params") or {}).get("sessionId")
    return named


# Sessions that are not there.


@pytest.mark.rule("unknown-session-is-not-found", "idle-cancel-does-nothing")
@pytest.mark.case("B15")
async def test_an_unknown_session_is_named_by_each_method_and_nothing_is_created(
    tmp_path: Path,
) -> None:
    async with server(tmp_path / "store", "echo") as client:
        await client.initialize()
        opening = {"sessionId": UNKNOWN, "cwd": str(tmp_path), "mcpServers": []}
        text = [{"type": "text", "text": "hi"}]
        asked: dict[str, dict[str, Any]] = {
            "session/load": opening,
            "session/resume": opening,
            "session/prompt": {"sessionId": UNKNOWN, "prompt": text},
            "session/set_mode": {"sessionId": UNKNOWN, "modeId": "ask"},
            "session/set_config_option": {
                "sessionId": UNKNOWN,
                "configId": "mode",
                "value": "ask",
            },
        }
        for method, params in asked.items():
            error = await refused(client, method, params)
            assert (error.code, error.data) == (-32002, {"sessionId": UNKNOWN}), method
        assert await client.close_session(UNKNOWN) == {}
        assert await client.delete_session(UNKNOWN) == {}
        before = len(client.frames)
        await client.cancel(UNKNOWN)
        assert await client.list_sessions() == {"sessions": []}
        assert len(client.frames) == before + 3  # the cancel, the list and its answer
    assert [path for path in (tmp_path / "store").rglob("*") if UNKNOWN in path.name] == []


@pytest.mark.rule(
    "nothing-stored-before-first-append",
    "new-answers-then-lists-commands",
    "kill-loses-nothing-acknowledged",
)
@pytest.mark.case("B16")
async def test_a_session_is_there_after_a_kill_once_it_has_had_a_turn(tmp_path: Path) -> None:
    async with server(tmp_path / "store", "echo") as client:
        await client.initialize()
        empty = await client.new_session(tmp_path)
        used = await client.new_session(tmp_path)
        await client.prompt(used, "remember me")
        client.kill()
        await client.wait()
    async with server(tmp_path / "store", "echo") as client:
        await client.initialize()
        rows = (await client.list_sessions())["sessions"]
        assert [row["sessionId"] for row in rows] == [used]
        opening = {"sessionId": empty, "cwd": str(tmp_path), "mcpServers": []}
        assert (await refused(client, "session/load", opening)).code == -32002
        assert (await refused(client, "session/resume", opening)).code == -32002
        await client.load_session(used, tmp_path)
        assert client.transcript.text == "remember me"


# What comes first and what comes last.


@pytest.mark.rule("session-updates-follow-introduction", "new-answers-then-lists-commands")
@pytest.mark.case("B17")
@pytest.mark.parametrize("pipelined", [False, True])
async def test_nothing_names_a_session_before_the_response_that_introduces_it(
    pipelined: bool,
    tmp_path: Path,
) -> None:
    async with running_server(ECHO) as client:
        if pipelined:
            # All are asked for before the first is answered.
            opening = {"cwd": str(tmp_path), "mcpServers": []}
            pending = [await client.start_request("session/new", opening) for _ in range(20)]
            for one in pending:
                await one.answered.wait()
        else:
            for _ in range(20):
                await client.new_session(tmp_path)
        await client.list_sessions()
        frames = parsed(client)
    introduced = [f["result"]["sessionId"] for f in frames if "sessionId" in f.get("result", {})]
    assert len(set(introduced)) == 20
    for session_id in introduced:
        of_it = [frame for frame in frames if session_of(frame) == session_id]
        assert "result" in of_it[0]
        variants = {frame["params"]["update"]["sessionUpdate"] for frame in of_it[1:]}
        assert variants
        assert variants <= OUT_OF_TURN


@pytest.mark.rule("session-updates-follow-introduction")
@pytest.mark.case("B17", "B49")
async def test_a_resumed_session_shows_no_history_and_nothing_before_its_response(
    tmp_path: Path,
) -> None:
    backend = open_backend("memory:")
    async with running_server(ECHO, store=backend) as client:
        session_id = await client.new_session(tmp_path)
        await client.prompt(session_id, "long ago")
    async with running_server(ECHO, store=backend, series=1) as client:
        before = len(client.frames)
        await client.resume_session(session_id, tmp_path)
        await client.list_sessions()
        answers = [f.data for f in client.frames[before:] if f.sender == "agent"]
        assert b'"result"' in answers[0]
        assert {seen.update["sessionUpdate"] for seen in client.updates} <= OUT_OF_TURN
        assert (await client.prompt(session_id, "now")).text == "now"


class SlowPipe:
    """Reads at the pace of a client that does something with each frame."""

    def __init__(self, client: AcpClient) -> None:
        self._channel = client._channel
        self._receive = client._channel.receive

    async def receive(self) -> bytes | None:
        for _ in range(3):
            await checkpoint()
        return await self._receive()


@pytest.mark.rule(
    "response-is-last-of-turn", "session-updates-follow-introduction", "call-ends-exactly-once"
)
@pytest.mark.case("B18")
async def test_the_response_is_the_last_frame_of_its_turn_for_a_slow_reader(
    tmp_path: Path,
) -> None:
    async def fast(turn: Turn) -> None:
        for number in range(500):
            await turn.text(f"w{number} ")
        async with turn.tool("shell", kind="execute") as call:
            for number in range(300):
                call.update(title=f"l{number}")
            call.result("done")
        await turn.text("end")

    said = "".join(f"w{number} " for number in range(500)) + "end"
    async with running_server(Agent("fast", fast)) as client:
        client._channel.receive = SlowPipe(client).receive  # type: ignore[method-assign]
        session_id = await client.new_session(tmp_path)
        for _ in range(10):
            before = len(client.frames)
            result = await client.prompt(session_id, "go")
            assert result.text == said
            assert [card.status for card in result.transcript.cards] == ["completed"]
            seen = len(client.updates)
            await client.list_sessions()
            assert len(client.updates) == seen
            assert len(client.frames) > before


@pytest.mark.rule("response-is-last-of-turn")
@pytest.mark.case("B18")
async def test_no_frame_is_lost_to_a_reader_with_a_pipe_that_is_full(tmp_path: Path) -> None:
    async with server(tmp_path / "store", "fast") as client:
        await client.initialize()
        session_id = await client.new_session(tmp_path)
        for _ in range(3):
            result = await client.prompt(session_id, "go")
            assert result.text == "".join(f"w{number} " for number in range(500)) + "end"


# Sessions side by side.


@pytest.mark.rule("sessions-stay-apart", "waiting-session-blocks-no-other")
@pytest.mark.case("B27")
async def test_a_session_that_waits_for_its_client_blocks_no_other(tmp_path: Path) -> None:
    backend = open_backend("memory:")

    async def drive(turn: Turn) -> None:
        if turn.prompt == "ask":
            async with turn.tool("shell", kind="execute", ask=True) as call:
                call.result("ran")
        else:
            await turn.text(turn.prompt)

    agent = Agent("asker", drive)
    answer = anyio.Event()

    async def allow(params: Mapping[str, Any]) -> Any:
        await answer.wait()
        option = next(o for o in params["options"] if o["kind"] == "allow_once")
        return {"outcome": {"outcome": "selected", "optionId": option["optionId"]}}

    async with running_server(agent, store=backend, series=1) as client:
        old = await client.new_session(tmp_path)
        await client.prompt(old, "long ago")
    async with running_server(agent, store=backend, series=2, permissions=allow) as client:
        waiting = await client.new_session(tmp_path)
        handle = await client.start_prompt(waiting, "ask")
        await client.wait_for_agent_request("session/request_permission")
        assert (await refused(client, "_test/ping", {})).code == -32601
        other = await client.new_session(tmp_path)
        assert (await client.prompt(other, "here")).text == "here"
        await client.cancel(other)
        await client.load_session(old, tmp_path)
        assert client.transcript.text == "long ago"
        assert not handle.done
        # Asked about one session, told nothing of it in another.
        mixed = [u for sid in (other, old) for u in client.updates_of(sid) if "toolCallId" in u]
        assert mixed == []
        answer.set()
        result = await handle.result()
        assert result.stop_reason == "end_turn"
        assert [card.status for card in result.transcript.cards] == ["completed"]


# Cancel.


class Deaf:
    """Accepts a prompt and says nothing, as a provider that hangs; answers `next` at once."""

    async def drive(self, turn: Turn) -> None:
        if turn.prompt == "next":
            await turn.text("fine")
            return
        await anyio.sleep_forever()


def packet(session_id: str, prompt_id: str) -> tuple[bytes, bytes]:
    """Return a prompt and the cancel of its session, each with its LF."""
    text = [{"type": "text", "text": "x"}]
    prompt = {"jsonrpc": "2.0", "id": prompt_id, "method": "session/prompt"}
    cancel = {"jsonrpc": "2.0", "method": "session/cancel"}
    return (
        orjson.dumps({**prompt, "params": {"sessionId": session_id, "prompt": text}}) + b"\n",
        orjson.dumps({**cancel, "params": {"sessionId": session_id}}) + b"\n",
    )


@pytest.mark.rule("cancel-stops-prompt-before-it", "requests-start-in-order")
@pytest.mark.case("B29")
async def test_a_cancel_any_number_of_steps_behind_its_prompt_stops_that_prompt(
    tmp_path: Path,
) -> None:
    async with running_server(Agent("deaf", Deaf().drive)) as client:
        session_id = await client.new_session(tmp_path)
        for steps in range(200):
            prompt, cancel = packet(session_id, f"p{steps}")
            if steps == 0:
                await client.send_raw(prompt + cancel)
            else:
                await client.send_raw(prompt)
                for _ in range(steps % 50):
                    await checkpoint()
                await client.send_raw(cancel)
            answer = await answer_to(client, f"p{steps}")
            assert answer.get("result") == {"stopReason": "cancelled"}, steps
            if steps % 20 == 0:
                assert (await client.prompt(session_id, "next")).stop_reason == "end_turn"
        assert (await client.prompt(session_id, "next")).text == "fine"


async def answer_to(client: AcpClient, request_id: str) -> dict[str, Any]:
    marker = b'"id":"%b"' % request_id.encode()
    with anyio.fail_after(5):
        while True:
            changed = client._connection.changed
            for frame in reversed(client.frames):
                if frame.sender == "agent" and marker in frame.data:
                    answer: dict[str, Any] = orjson.loads(frame.data)
                    return answer
            await changed.wait()


@pytest.mark.rule("cancel-sent-as-request-works")
@pytest.mark.case("B29")
async def test_a_cancel_sent_as_a_request_is_answered_and_nothing_hangs(tmp_path: Path) -> None:
    async with running_server(Agent("deaf", Deaf().drive)) as client:
        session_id = await client.new_session(tmp_path)
        handle = await client.start_prompt(session_id, "x")
        assert await client.request("session/cancel", {"sessionId": session_id}) == {}
        assert (await handle.result()).stop_reason == "cancelled"
        assert (await refused(client, "session/cancel", {"sessionId": 7})).code == -32602
        assert (await client.prompt(session_id, "next")).text == "fine"


@pytest.mark.rule("cancel-stops-prompt-before-it")
@pytest.mark.case("B29")
async def test_a_cancel_in_one_write_with_its_prompt_stops_it_in_a_real_process(
    tmp_path: Path,
) -> None:
    async with server(tmp_path / "store", "waiter") as client:
        await client.initialize()
        session_id = await client.new_session(tmp_path)
        for number in range(20):
            await client.send_raw(b"".join(packet(session_id, f"p{number}")))
            answer = await answer_to(client, f"p{number}")
            assert answer["result"] == {"stopReason": "cancelled"}
        assert (await client.prompt(session_id, "hello")).text == "hello"

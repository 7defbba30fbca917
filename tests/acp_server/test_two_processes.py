"""Two editors, each with a server of its own, on one session: both look, one at a time writes."""

import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_server.agents.agent import Agent
from acp_server.agents.turn import Turn
from acp_server.testing import AcpClient, AcpError, running_server
from persistence import SessionRepository, open_backend, verify
from session_core import Event, SessionStore

AGENTS = Path(__file__).parents[2] / "fixtures" / "agents" / "worker.py"

Server = Callable[[], AbstractAsyncContextManager[AcpClient]]


@pytest.fixture(params=["jsonl:{}/store", "sqlite:{}/store.db"])
def spec(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(request.param).format(tmp_path)


@pytest.fixture
def server(spec: str) -> Server:
    argv = [sys.executable, "-m", "acp_server", "serve", "--agent", f"{AGENTS}:patient"]

    @asynccontextmanager
    async def started() -> AsyncIterator[AcpClient]:
        async with AcpClient.spawn([*argv, "--store", spec]) as client:
            await client.initialize()
            yield client

    return started


async def patient(turn: Turn) -> None:
    """Wait in a tool at the prompt `wait`, else answer with the prompt and the mode."""
    if turn.prompt == "wait":
        async with turn.tool("wait", kind="execute"):
            await anyio.sleep_forever()
    await turn.text(f"{turn.prompt} ({turn.mode}). ")


@pytest.fixture
def near_server(spec: str) -> Server:
    """A server in this process: its locks are its own all the same, and it starts at once."""
    agent, series = Agent("patient", patient), count()
    return lambda: running_server(agent, store=spec, series=next(series))


async def stored(spec: str, session_id: str) -> list[Event]:
    """Return what is stored, having seen that it is sound."""
    backend = open_backend(spec)
    assert (await verify(backend, session_id)).problems == ()
    async with SessionRepository(backend, SessionStore()) as persistence:
        return list((await persistence.inspect(session_id)).log)


async def stored_call(spec: str, session_id: str) -> list[Event]:
    """Return what is stored once the checkpoint in front of a tool's body is made."""
    with anyio.fail_after(20):
        while (events := await stored(spec, session_id))[-1].type != "tool/call":
            pass
    return events


async def two_on_one(one: AcpClient, two: AcpClient, cwd: Path) -> str:
    """Let both open a session in which there was one turn."""
    session_id = await one.new_session(cwd)
    await one.prompt(session_id, "first")
    await two.load_session(session_id, cwd)
    return session_id


async def refused(client: AcpClient, method: str, session_id: str, **params: Any) -> AcpError:
    with pytest.raises(AcpError) as caught:
        await client.request(method, {"sessionId": session_id, **params})
    return caught.value


def said(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]


def is_call(update: dict[str, Any]) -> bool:
    return bool(update["sessionUpdate"] == "tool_call")


def user_texts(client: AcpClient, session_id: str) -> list[str]:
    return [str(block["text"]) for block in client.transcript_of(session_id).user]


async def what_a_load_shows(server: Server, session_id: str, cwd: Path) -> Any:
    async with server() as reader:
        await reader.load_session(session_id, cwd)
        return reader.transcript_of(session_id)


@pytest.mark.rule("taken-lock-catches-up")
async def test_each_sees_the_turns_of_the_other_once(
    server: Server, spec: str, tmp_path: Path
) -> None:
    async with server() as one, server() as two:
        session_id = await two_on_one(one, two, tmp_path)
        await two.prompt(session_id, "second")
        await one.prompt(session_id, "third")
        await two.prompt(session_id, "fourth")
        whole = await what_a_load_shows(server, session_id, tmp_path)
        words = [f"{number} (ask). " for number in ("first", "second", "third", "fourth")]
        assert whole.text == "".join(words)
        assert two.transcript_of(session_id) == whole
        assert one.transcript_of(session_id).text == "".join(words[:3])
        # What a client said itself it is not sent, nor twice what another one said.
        assert user_texts(two, session_id) == ["first", "third"]
        assert user_texts(one, session_id) == ["second"]
    starts = [e.data["turn"] for e in await stored(spec, session_id) if e.type == "turn/start"]
    assert starts == list(range(1, len(starts) + 1))


@pytest.mark.rule("other-process-turn-refuses-prompt")
async def test_of_two_prompts_at_once_one_is_refused_by_name(
    server: Server, spec: str, tmp_path: Path
) -> None:
    async with server() as one, server() as two:
        session_id = await two_on_one(one, two, tmp_path)
        running = await one.start_prompt(session_id, "wait")
        await one.wait_for_update(is_call)
        before = await stored_call(spec, session_id)
        error = await refused(two, "session/prompt", session_id, prompt=said("now"))
        assert error.code == -32603
        assert error.data == {"sessionId": session_id, "pid": one.pid}
        error = await refused(two, "session/set_mode", session_id, modeId="read-only")
        assert error.data == {"sessionId": session_id, "pid": one.pid}
        error = await refused(two, "session/delete", session_id)
        assert error.data == {"sessionId": session_id, "pid": one.pid}
        assert await stored(spec, session_id) == before
        with anyio.fail_after(10):
            # It waits for the lock, and can be cancelled there.
            waiting = await two.start_prompt(session_id, "never")
            await two.cancel(session_id)
            assert (await waiting.result()).stop_reason == "cancelled"
        await one.cancel(session_id)
        assert (await running.result()).stop_reason == "cancelled"
        assert (await two.prompt(session_id, "later")).stop_reason == "end_turn"
        assert two.transcript_of(session_id) == await what_a_load_shows(
            server, session_id, tmp_path
        )
        assert two.transcript_of(session_id).text == "first (ask). later (ask). "


@pytest.mark.rule("looking-takes-no-lock")
async def test_a_running_turn_is_looked_at_as_it_is(
    near_server: Server, spec: str, tmp_path: Path
) -> None:
    async with near_server() as one, near_server() as two, near_server() as three:
        session_id = await two_on_one(one, two, tmp_path)
        running = await one.start_prompt(session_id, "wait")
        await one.wait_for_update(is_call)
        before = await stored_call(spec, session_id)
        await three.load_session(session_id, tmp_path)
        (card,) = three.transcript_of(session_id).cards
        assert card.status in ("pending", "in_progress")
        assert "Interrupted" not in str(three.updates_of(session_id))
        help_shown = await three.prompt(session_id, "/help")
        assert "/title" in help_shown.text
        assert "Error: " in (await three.prompt(session_id, "/title mine")).text
        assert await stored(spec, session_id) == before
        assert await three.close_session(session_id) == {}
        await three.load_session(session_id, tmp_path)
        await one.cancel(session_id)
        await running.result()
        seen = len(three.updates)
        await three.prompt(session_id, "later")
        caught_up = [entry.update for entry in three.updates[seen:]]
        kinds = [update["sessionUpdate"] for update in caught_up]
        # The card that was there changes; it does not come again.
        assert kinds.count("tool_call_update") == 1
        assert kinds.count("tool_call") == kinds.count("user_message_chunk") == 0
        (card,) = three.transcript_of(session_id).cards
        assert card.status == "failed"
        assert three.transcript_of(session_id) == await what_a_load_shows(
            near_server, session_id, tmp_path
        )


@pytest.mark.rule("looking-takes-no-lock")
async def test_a_session_that_is_open_is_loaded_again_as_it_is_stored(
    near_server: Server, spec: str, tmp_path: Path
) -> None:
    async with near_server() as one, near_server() as two:
        session_id = await two_on_one(one, two, tmp_path)
        await two.prompt(session_id, "second")
        running = await two.start_prompt(session_id, "wait")
        await two.wait_for_update(is_call)
        await stored_call(spec, session_id)
        await one.load_session(session_id, tmp_path)
        shown = one.transcript_of(session_id)
        assert shown.text == "first (ask). second (ask). "
        assert [card.status for card in shown.cards] in (["pending"], ["in_progress"])
        await two.cancel(session_id)
        await running.result()
        await two.close_session(session_id)
        await one.resume_session(session_id, tmp_path)
        assert one.transcript_of(session_id) == shown
        await one.load_session(session_id, tmp_path)
        assert one.transcript_of(session_id) == await what_a_load_shows(
            near_server, session_id, tmp_path
        )
        assert user_texts(one, session_id) == ["first", "second", "wait"]


@pytest.mark.rule("taken-lock-catches-up")
async def test_the_turn_of_a_killed_process_is_closed_by_the_next_prompt(
    server: Server, spec: str, tmp_path: Path
) -> None:
    async with server() as two:
        async with server() as one:
            session_id = await two_on_one(one, two, tmp_path)
            await one.start_prompt(session_id, "wait")
            await one.wait_for_update(is_call)
            acknowledged = await stored(spec, session_id)
            one.kill()
            await one.ended()
        assert (await two.prompt(session_id, "second")).stop_reason == "end_turn"
        assert user_texts(two, session_id) == ["first", "wait"]
        assert two.transcript_of(session_id) == await what_a_load_shows(
            server, session_id, tmp_path
        )
        # The card may have been shown and not stored yet.
        assert {card.status for card in two.transcript_of(session_id).cards} <= {"failed"}
    events = await stored(spec, session_id)
    assert events[: len(acknowledged)] == acknowledged
    ends = [event.data["reason"]["kind"] for event in events if event.type == "turn/end"]
    assert ends == ["completed", "interrupted", "completed"]


@pytest.mark.rule("taken-lock-catches-up")
async def test_a_setting_of_one_is_in_force_in_the_other(
    near_server: Server, spec: str, tmp_path: Path
) -> None:
    async with near_server() as one, near_server() as two:
        session_id = await two_on_one(one, two, tmp_path)
        await one.set_mode(session_id, "read-only")
        seen = len(two.updates)
        assert (await two.prompt(session_id, "second")).text == "second (read-only). "
        modes = [
            entry.update["currentModeId"]
            for entry in two.updates[seen:]
            if entry.update["sessionUpdate"] == "current_mode_update"
        ]
        assert modes == ["read-only"]
        # The mode that was set first is in force for a prompt of the same packet.
        await one.start_request("session/set_mode", {"sessionId": session_id, "modeId": "ask"})
        third = await one.prompt(session_id, "third")
        assert third.text == "second (read-only). third (ask). "
        assert user_texts(one, session_id) == ["second"]
    await stored(spec, session_id)


@pytest.mark.rule("idle-sessions-keep-no-descriptor")
@pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors in /proc")
async def test_an_idle_session_keeps_no_descriptor(server: Server, tmp_path: Path) -> None:
    async with server() as client:
        sessions = [await client.new_session(tmp_path) for _ in range(20)]
        await client.prompt(sessions[0], "first")
        descriptors = Path(f"/proc/{client.pid}/fd")
        for session_id in sessions:
            await client.prompt(session_id, "hello")

        def locks() -> int:
            held = 0
            for entry in descriptors.iterdir():
                try:
                    held += ".lock" in os.readlink(entry)  # noqa: PTH115
                except FileNotFoundError:
                    continue
            return held

        with anyio.fail_after(10):
            while locks():
                await anyio.lowlevel.checkpoint()
        assert (await client.prompt(sessions[3], "again")).stop_reason == "end_turn"
        assert locks() == 1

"""The client of the official Python SDK drives the real server with its demo agent."""

import sys
from pathlib import Path
from typing import Any, cast

import acp
import anyio
import pytest
from acp.client.connection import ClientSideConnection
from acp.interfaces import Client
from acp.schema import AllowedOutcome, RequestPermissionResponse

from acp_server.testing import Transcript, fold_transcript

EDGE = Path(__file__).parents[2] / "fixtures" / "agents" / "edge.py"


class Recorder:
    """Keeps the updates and allows everything."""

    def __init__(self) -> None:
        self.updates: list[dict[str, Any]] = []
        self.changed = anyio.Event()

    async def session_update(self, session_id: str, update: Any, **_kwargs: Any) -> None:
        dumped = update.model_dump(mode="json", by_alias=True, exclude_unset=True)
        self.updates.append(dumped)
        self.changed.set()
        self.changed = anyio.Event()

    async def request_permission(
        self, session_id: str, tool_call: Any, options: Any, **_kw: Any
    ) -> Any:
        chosen = next(option for option in options if option.kind == "allow_once")
        outcome = AllowedOutcome(outcome="selected", option_id=chosen.option_id)
        return RequestPermissionResponse(outcome=outcome)

    async def until(self, variant: str, count: int) -> None:
        """Wait until so many updates of a variant have come."""
        with anyio.fail_after(10):
            while sum(u["sessionUpdate"] == variant for u in self.updates) < count:
                await self.changed.wait()

    async def quiet(self, total: int) -> None:
        """Wait until so many updates have come; the SDK hands them over in tasks of their own."""
        with anyio.fail_after(10):
            while len(self.updates) < total:
                await self.changed.wait()

    @property
    def transcript(self) -> Transcript:
        return fold_transcript(self.updates)


def as_client(recorder: Recorder) -> Client:
    # The protocol class asks for methods that are called only when they are advertised.
    return cast("Client", recorder)


def argv(store: Path, agent: str = "demo") -> list[str]:
    return [
        sys.executable,
        "-m",
        "acp_server",
        "serve",
        "--agent",
        agent,
        "--store",
        f"jsonl:{store}",
    ]


async def test_the_sdk_client_prompts_cancels_and_loads_the_same_transcript(tmp_path: Path) -> None:
    store = tmp_path / "store"
    (tmp_path / "README.md").write_text("# here\n", encoding="utf-8")
    live = Recorder()
    async with acp.spawn_agent_process(as_client(live), *argv(store)) as (connection, _process):
        await connection.initialize(protocol_version=1)
        session = await connection.new_session(cwd=str(tmp_path), mcp_servers=[])
        answer = await connection.prompt(
            session_id=session.session_id, prompt=[acp.text_block("hello")]
        )
        assert answer.stop_reason == "end_turn"
        chunks = sum(u["sessionUpdate"] == "agent_message_chunk" for u in live.updates)
        async with anyio.create_task_group() as tasks:
            stop_reasons: list[str] = []

            async def prompt_again() -> None:
                again = await connection.prompt(
                    session_id=session.session_id, prompt=[acp.text_block("more")]
                )
                stop_reasons.append(again.stop_reason)

            tasks.start_soon(prompt_again)
            await live.until("agent_message_chunk", chunks + 5)
            await connection.cancel(session_id=session.session_id)
        assert stop_reasons == ["cancelled"]
    loaded = Recorder()
    async with acp.spawn_agent_process(as_client(loaded), *argv(store)) as (connection, _process):
        await connection.initialize(protocol_version=1)
        listed = await connection.list_sessions(cwd=str(tmp_path))
        assert [row.session_id for row in listed.sessions] == [session.session_id]
        await connection.load_session(
            session_id=session.session_id, cwd=str(tmp_path), mcp_servers=[]
        )
        await loaded.until("available_commands_update", 1)
        assert loaded.transcript == live.transcript
        assert (tmp_path / "acp-demo-scratch.txt").is_file()


async def page_ids(connection: ClientSideConnection, cwd: Path) -> list[list[str]]:
    pages: list[list[str]] = []
    cursor: str | None = None
    while cursor is not None or not pages:
        listed = await connection.list_sessions(cwd=str(cwd), cursor=cursor)
        pages.append([row.session_id for row in listed.sessions])
        cursor = listed.next_cursor
    return pages


async def raw_error(connection: ClientSideConnection, method: str, params: Any) -> int:
    """Send what the SDK has no method for, and return the code of the refusal."""
    with pytest.raises(acp.RequestError) as caught:
        await connection._conn.send_request(method, params)
    return int(caught.value.code)


async def test_the_sdk_client_lists_resumes_sets_closes_and_deletes(tmp_path: Path) -> None:
    store = tmp_path / "store"
    cwd = str(tmp_path)
    made: list[str] = []
    spec = f"{EDGE}:waiter"
    async with acp.spawn_agent_process(as_client(Recorder()), *argv(store, spec)) as (client, _):
        await client.initialize(protocol_version=1)
        for _ in range(101):
            made.append((await client.new_session(cwd=cwd, mcp_servers=[])).session_id)
            answer = await client.prompt(session_id=made[-1], prompt=[acp.text_block("hello")])
            assert answer.stop_reason == "end_turn"
        assert await page_ids(client, tmp_path) == [
            made[:50:-1],
            made[50:0:-1],
            made[0:1],
        ]
        assert await raw_error(client, "logout", {}) == -32601
        assert await raw_error(client, "session/nope", {}) == -32601
        assert await raw_error(client, "session/load", {"sessionId": made[0]}) == -32602
    seen = Recorder()
    async with acp.spawn_agent_process(as_client(seen), *argv(store, spec)) as (client, _):
        await client.initialize(protocol_version=1)
        resumed = await client.resume_session(session_id=made[0], cwd=cwd, mcp_servers=[])
        assert resumed.modes is not None
        mode = resumed.modes.available_modes[-1].id
        await client.set_session_mode(session_id=made[0], mode_id=mode)
        options = await client.set_config_option("mode", made[0], resumed.modes.current_mode_id)
        assert options.config_options[0].id == "mode"
        await client.prompt(session_id=made[0], prompt=[acp.text_block("hello")])
        assert [u["sessionUpdate"] for u in seen.updates].count("user_message_chunk") == 0
        async with anyio.create_task_group() as tasks:
            stop_reasons: list[str] = []

            async def prompt_and_wait() -> None:
                waiting = await client.prompt(session_id=made[0], prompt=[acp.text_block("stream")])
                stop_reasons.append(waiting.stop_reason)

            chunks = sum(u["sessionUpdate"] == "agent_message_chunk" for u in seen.updates)
            tasks.start_soon(prompt_and_wait)
            await seen.until("agent_message_chunk", chunks + 1)
            # Closing ends what runs, as a cancel does.
            await client.close_session(session_id=made[0])
        assert stop_reasons == ["cancelled"]
        prompt = {"sessionId": made[0], "prompt": [{"type": "text", "text": "x"}]}
        assert await raw_error(client, "session/prompt", prompt) == -32002
        for session_id in (made[0], made[1], "unknown"):
            assert (
                await client._conn.send_request("session/delete", {"sessionId": session_id}) == {}
            )
        assert await page_ids(client, tmp_path) == [made[:50:-1], made[50:1:-1]]

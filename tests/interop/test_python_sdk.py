"""The client of the official Python SDK drives the real server with its demo agent."""

import sys
from pathlib import Path
from typing import Any, cast

import acp
import anyio
from acp.interfaces import Client
from acp.schema import AllowedOutcome, RequestPermissionResponse

from acp_server.testing import Transcript, fold_transcript


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


def argv(store: Path) -> list[str]:
    return [
        sys.executable,
        "-m",
        "acp_server",
        "serve",
        "--agent",
        "demo",
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

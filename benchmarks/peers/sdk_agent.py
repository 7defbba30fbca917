"""The peer to beat: an agent on the official Python SDK, as its quickstart suggests. No store."""

import os
from typing import Any
from uuid import uuid4  # noqa: TID251 - a program of its own, not a part of ours

import acp
import anyio
from acp.schema import AgentCapabilities

HISTORY = [
    acp.update_agent_message(acp.text_block(f"chunk {n:07d} abcdef"))
    for n in range(int(os.environ.get("BENCH_HISTORY", "0")))
]


class StreamAgent(acp.Agent):
    """Answers `stream N` with N chunks, anything else with one; replays HISTORY on load."""

    connection: Any

    def on_connect(self, conn: Any) -> None:
        self.connection = conn

    async def initialize(self, protocol_version: int, **_kwargs: Any) -> Any:
        capabilities = AgentCapabilities(load_session=True)
        return acp.InitializeResponse(
            protocol_version=protocol_version, agent_capabilities=capabilities
        )

    async def new_session(self, cwd: str, **_kwargs: Any) -> Any:
        return acp.NewSessionResponse(session_id=uuid4().hex)

    async def load_session(self, cwd: str, session_id: str, **_kwargs: Any) -> Any:
        for update in HISTORY:
            await self.connection.session_update(session_id=session_id, update=update)
        return acp.LoadSessionResponse()

    async def prompt(self, session_id: str, prompt: Any, **_kwargs: Any) -> Any:
        word, _, count = prompt[0].text.partition(" ")
        for n in range(int(count) if word == "stream" else 1):
            update = acp.update_agent_message(acp.text_block(f"chunk {n:07d} abcdef"))
            await self.connection.session_update(session_id=session_id, update=update)
        return acp.PromptResponse(stop_reason="end_turn")


anyio.run(acp.run_agent, StreamAgent())

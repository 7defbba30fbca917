"""The client against an agent made with the official Python SDK."""

import sys
from pathlib import Path
from textwrap import dedent

import anyio
import pytest

from acp_server.testing import AcpClient, AcpError, Message

ECHO = dedent("""
    import asyncio

    from acp import (
        Agent, InitializeResponse, NewSessionResponse, PromptResponse, RequestError, run_agent,
        text_block, update_agent_message,
    )

    class Echo(Agent):
        def on_connect(self, conn):
            self.conn = conn

        async def initialize(self, protocol_version, **others):
            return InitializeResponse(protocol_version=protocol_version)

        async def new_session(self, cwd, mcp_servers=None, **others):
            if cwd == "/refused":
                raise RequestError.invalid_params({"cwd": cwd})
            return NewSessionResponse(session_id="echo")

        async def prompt(self, prompt, session_id, **others):
            for block in prompt:
                update = update_agent_message(text_block(block.text))
                await self.conn.session_update(session_id=session_id, update=update)
            return PromptResponse(stop_reason="end_turn")

    asyncio.run(run_agent(Echo()))
""")


async def test_the_echo_agent_of_the_sdk_is_driven_and_passes_the_checker(tmp_path: Path) -> None:
    script = tmp_path / "echo.py"
    script.write_text(ECHO)
    with anyio.fail_after(30):
        async with AcpClient.spawn([sys.executable, str(script)], timeout=20) as client:
            assert await client.initialize() == {"protocolVersion": 1}
            session = await client.new_session(tmp_path)
            result = await client.prompt(session, "hello")
            assert (result.stop_reason, result.text) == ("end_turn", "hello")
            assert client.transcript.entries == (Message("text", None, "hello"),)
            with pytest.raises(AcpError) as caught:
                await client.new_session("/refused")
            assert caught.value.code == -32602
        assert client.exit_code == 0

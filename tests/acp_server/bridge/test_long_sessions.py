"""What a long session costs the event loop at once: little, whatever its length."""

import threading
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from acp_server.agents.agent import Agent
from acp_server.testing import running_server
from persistence.memory import MemoryBackend
from session_core import EventLogBuilder, SessionHeader, SessionId, log_state, projection
from tests.acp_server.helpers import echo

TURNS = 400
MOST = 300
"""Events that may be worked through between two turns of the loop; the log has four times as many
messages."""


def long_log() -> list[dict[str, Any]]:
    user = {"kind": "user"}
    log: list[dict[str, Any]] = []
    for turn in range(1, TURNS + 1):
        said = {"content": [{"type": "text", "text": "hi"}], "source": user}
        message = {"type": "user/message", "data": said, "surfaceOp": "append"}
        start = {"turn": turn, "trigger": {"kind": "message", "source": user}}
        end = {"turn": turn, "reason": {"kind": "completed"}}
        log.append({"type": "turn/start", "data": start})
        log += [message] * 3
        log.append({"type": "turn/end", "data": end})
    return [{**event, "seq": seq, "time": seq} for seq, event in enumerate(log)]


@pytest.mark.rule("long-sessions-are-worked-in-slices")
async def test_a_prompt_and_a_fork_of_a_long_session_let_others_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worked = longest = 0
    loop_thread = threading.get_ident()

    def counting(fn: Any) -> Any:
        def call(*args: Any) -> Any:
            nonlocal worked, longest
            if threading.get_ident() == loop_thread:
                worked += 1
                longest = max(longest, worked)
            return fn(*args)

        return call

    async def begin_anew() -> None:
        nonlocal worked
        while True:
            worked = 0
            await anyio.lowlevel.checkpoint()

    backend = MemoryBackend()
    builder = EventLogBuilder()
    builder.extend(long_log())
    header = SessionHeader(SessionId("long"), 0, cwd="/w")
    writer = await backend.acquire_writer("long", header)
    await writer.append_batch(header, list(builder.build().records()))
    await writer.release()
    async with running_server(Agent("echo", echo), store=backend) as client:
        await client.resume_session("long", "/w")
        monkeypatch.setattr(
            projection, "derive_event_message", counting(projection.derive_event_message)
        )
        monkeypatch.setattr(log_state.LogState, "follow", counting(log_state.LogState.follow))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(begin_anew)
            assert (await client.prompt("long", "go")).stop_reason == "end_turn"
            assert "fork" in (await client.prompt("long", "/fork")).text.lower()
            tasks.cancel_scope.cancel()
    assert 0 < longest <= MOST

"""kill -9 at any moment of a turn: what was complete is kept and the next prompt runs."""

import os
import sys
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest

from acp_server.testing import AcpClient

AGENTS = Path(__file__).parents[2] / "fixtures" / "agents" / "worker.py"
ROUNDS = 25


def server(store: Path) -> AcpClient:
    argv = [sys.executable, "-m", "acp_server", "serve", "--agent", f"{AGENTS}:worker"]
    return AcpClient.spawn([*argv, "--store", f"jsonl:{store}"])


def log_of(store: Path) -> Path:
    (path,) = store.rglob("session.jsonl")
    return path


def complete_lines(path: Path) -> list[bytes]:
    return path.read_bytes().split(b"\n")[:-1]


async def first_turn(store: Path, cwd: Path) -> str:
    async with server(store) as client:
        await client.initialize()
        session_id = await client.new_session(cwd)
        assert (await client.prompt(session_id, "first")).stop_reason == "end_turn"
    return session_id


async def kill_at_frame(client: AcpClient, already: int, number: int) -> None:
    seen = 0

    def reached(_update: dict[str, Any]) -> bool:
        nonlocal seen
        seen += 1
        return seen >= number

    await client.wait_for_update(reached, after=already)


async def kill_at_byte(log: Path, size: int) -> None:
    with anyio.fail_after(10):
        while os.stat(log).st_size < size:  # noqa: PTH116 - a thread would be too slow
            await anyio.lowlevel.checkpoint()


@pytest.mark.rule("stored-before-shown-or-done", "kill-loses-nothing-acknowledged")
@pytest.mark.parametrize("chosen_by", ["frame", "byte"])
async def test_a_kill_at_any_moment_of_a_turn_loses_nothing_complete(
    chosen_by: str, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    session_id = await first_turn(store, tmp_path)
    log = log_of(store)
    turn_bytes = log.stat().st_size
    for round_number in range(ROUNDS):
        kept = complete_lines(log)
        async with server(store) as client:
            await client.initialize()
            await client.load_session(session_id, tmp_path)
            lines = complete_lines(log)
            assert lines[: len(kept)] == kept, "a complete record was lost or rewritten"
            assert orjson.loads(lines[-1])["type"] == "turn/end"
            assert (await client.prompt(session_id, "works")).stop_reason == "end_turn"
            already = len(client.updates)
            await client.start_prompt(session_id, "second")
            if chosen_by == "frame":
                await kill_at_frame(client, already, 1 + round_number * 50 // ROUNDS)
            else:
                part = (round_number + 1) * turn_bytes // (ROUNDS + 1)
                await kill_at_byte(log, log.stat().st_size + part)
            client.kill()
            await client.wait()
    async with server(store) as client:
        await client.initialize()
        await client.load_session(session_id, tmp_path)
        prompts = [
            update["content"]["text"]
            for update in client.updates_of(session_id)
            if update["sessionUpdate"] == "user_message_chunk"
        ]
        assert prompts == ["first", *["works", "second"] * ROUNDS]

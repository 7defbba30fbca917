"""SIGKILL, SIGTERM and SIGINT at each stage of a turn; the agent stops there for ever."""

import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from acp_server.builtin_agents.loading import load_agent
from acp_server.testing import AcpClient, running_server

SPEC = f"{Path(__file__).parents[2] / 'fixtures' / 'agents' / 'edge.py'}:staged"
STAGES = ["prompt", "text", "permission", "body", "result", "done"]
EXIT_CODES = {"SIGKILL": -9, "SIGTERM": 0, "SIGINT": 130}
CHUNKS = "chunk 0 chunk 1 chunk 2 "


def server(store: Path) -> AcpClient:
    argv = [sys.executable, "-m", "acp_server", "serve", "--agent", SPEC]
    asks = ["session/request_permission"]
    return AcpClient.spawn([*argv, "--store", f"jsonl:{store}"], never_answer=asks)


def tool_results(store: Path) -> list[dict[str, Any]]:
    (log,) = store.glob("*/*/session.jsonl")
    events = [orjson.loads(line) for line in log.read_bytes().splitlines()[1:]]
    return [event["data"] for event in events if event["type"] == "tool/result"]


def shows(update: dict[str, Any], text: str) -> bool:
    content = update.get("content")
    return isinstance(content, dict) and text in content.get("text", "")


async def reach(client: AcpClient, session_id: str, stage: str) -> None:
    """Start a turn and return when it has come to its stage."""
    if stage == "done":
        await client.prompt(session_id, stage)
        return
    await client.start_prompt(session_id, stage)
    if stage == "prompt":
        await client.wait_for_update(lambda update: update.get("title") == "the agent runs")
    elif stage == "text":
        await client.wait_for_update(lambda update: shows(update, "chunk 2 "))
    elif stage == "permission":
        await client.wait_for_agent_request("session/request_permission")
    elif stage == "body":
        await client.wait_for_update(lambda update: update.get("title") == "has written")
    else:
        await client.wait_for_update(lambda update: shows(update, "behind the result "))


def end(client: AcpClient, signal: str) -> None:
    {"SIGKILL": client.kill, "SIGTERM": client.terminate, "SIGINT": client.interrupt}[signal]()


@pytest.mark.rule(
    "unstarted-calls-may-be-retried",
    "started-calls-have-unknown-outcome",
    "stored-before-shown-or-done",
    "checkpoints-stand-before-effects",
    "signals-end-like-input",
    "kill-loses-nothing-acknowledged",
    "replayed-calls-are-final",
)
@pytest.mark.parametrize("signal", EXIT_CODES)
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.case("B53")
async def test_a_signal_at_a_stage_loses_nothing_that_was_shown_as_done(
    stage: str, signal: str, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    async with server(store) as client:
        await client.initialize()
        session_id = await client.new_session(tmp_path)
        await reach(client, session_id, stage)
        end(client, signal)
        assert await client.wait(5) == EXIT_CODES[signal]
        assert client.stderr == ""
        live = client.transcript
    # In this process: the start of another would take most of the time.
    async with running_server(load_agent(SPEC), store=f"jsonl:{store}", series=1) as client:
        await client.load_session(session_id, tmp_path)
        loaded = client.transcript
        users = [
            seen.update["content"]["text"]
            for seen in client.updates
            if seen.update["sessionUpdate"] == "user_message_chunk"
        ]
        assert users == [stage]
        finished = [card for card in live.cards if card.status in ("completed", "failed")]
        assert [card for card in loaded.cards if card in finished] == finished
        if stage == "done":
            assert loaded == live
        elif stage == "text" and signal != "SIGKILL":
            assert loaded.text == CHUNKS
        check_calls(store, stage, signal, loaded.cards)
        result = await client.prompt(session_id, "plain")
        assert (result.stop_reason, result.text) == ("end_turn", CHUNKS)
    side = tmp_path / "side"
    ran = side.read_text() if side.exists() else ""
    assert ran == ("x\n" if stage in ("body", "result", "done") else "")


def check_calls(store: Path, stage: str, signal: str, cards: tuple[Any, ...]) -> None:
    statuses = [card.status for card in cards]
    results = tool_results(store)
    if stage in ("prompt", "text"):
        assert (statuses, results) == ([], [])
    elif stage in ("result", "done"):
        assert statuses == ["completed"]
        assert [result["content"] for result in results] == [[{"type": "text", "text": "wrote x"}]]
    else:
        assert statuses == ["failed"]
        (result,) = results
        assert result["isError"] is True
        if signal == "SIGKILL":
            expected = {"permission": "TOOL_NOT_STARTED", "body": "TOOL_OUTCOME_UNKNOWN"}
            assert result["error"]["code"] == expected[stage]

"""The real server in a real process: what crosses the process border."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest

from acp_server.testing import AcpClient, AcpError

AGENTS = Path(__file__).parents[2] / "fixtures" / "agents" / "worker.py"


def server(store: Path, agent: str, *, kind: str = "jsonl", **options: Any) -> AcpClient:
    spec = agent if ":" in agent or agent == "demo" else f"{AGENTS}:{agent}"
    argv = [sys.executable, "-m", "acp_server", "serve", "--agent", spec]
    return AcpClient.spawn([*argv, "--store", f"{kind}:{store}"], **options)


def stored_events(store: Path, session_id: str) -> list[dict[str, Any]]:
    (path,) = store.glob(f"*/{session_id}/session.jsonl")
    lines = path.read_bytes().splitlines()[1:]
    return [orjson.loads(line) for line in lines]


def types_of(events: Sequence[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]


async def test_a_four_line_agent_is_durable(tmp_path: Path) -> None:
    (tmp_path / "that.py").write_text(
        "from acp_server import agent\n\n@agent\nasync def hello(turn):\n"
        '    await turn.text(f"hello {turn.prompt}")\n'
    )
    spec = f"{tmp_path / 'that.py'}:hello"
    async with server(tmp_path / "store", spec) as client:
        await client.initialize()
        session_id = await client.new_session(tmp_path)
        assert (await client.prompt(session_id, "world")).text == "hello world"
        live = client.transcript
        client.kill()
        await client.wait()
    async with server(tmp_path / "store", spec) as client:
        await client.initialize()
        listed = (await client.list_sessions())["sessions"]
        assert [row["sessionId"] for row in listed] == [session_id]
        await client.load_session(session_id, tmp_path)
        assert client.transcript == live
        assert (await client.prompt(session_id, "again")).text == "hello again"


@pytest.mark.parametrize("example", ["hello.py:hello", "reviewer.py:review"])
async def test_the_printed_examples_run(example: str, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# title\n", encoding="utf-8")
    examples = Path(__file__).parents[2] / "examples"
    client = server(tmp_path / "store", f"{examples}/{example}", permissions=["allow_once"])
    async with client:
        await client.initialize({"fs": {"readTextFile": True, "writeTextFile": True}})
        session_id = await client.new_session(tmp_path)
        result = await client.prompt(session_id, "go")
        assert result.stop_reason == "end_turn"
        if "reviewer" in example:
            cards = [(card.title, card.status) for card in result.transcript.cards]
            assert cards == [
                ("Read README.md", "completed"),
                ("Rewrite README.md?", "completed"),
                ("write", "completed"),
            ]
            assert [[e["content"] for e in plan.entries] for plan in result.transcript.plans] == [
                ["read", "rewrite"]
            ]
            assert (tmp_path / "README.md").read_text(encoding="utf-8") == "# TITLE\n"


@pytest.mark.rule("policy-blocks-prompt-first")
async def test_a_forbidden_prompt_is_cancelled_shown_and_kept_from_the_model(
    tmp_path: Path,
) -> None:
    async with server(tmp_path / "store", "strict") as client:
        await client.initialize()
        session_id = await client.new_session(tmp_path)
        result = await client.prompt(session_id, "a forbidden thing")
        assert result.stop_reason == "cancelled"
        assert result.text == "\n\n[Prompt blocked: not today]\n\n"
        assert (await client.prompt(session_id, "fine")).text == "user: fine\n"
    events = stored_events(tmp_path / "store", session_id)
    assert types_of(events)[:3] == ["turn/start", "prompt/blocked", "turn/end"]
    assert events[2]["data"]["reason"] == {"kind": "rejected", "reason": "not today"}


async def test_cancel_in_mid_stream_answers_cancelled_and_keeps_what_was_shown(
    tmp_path: Path,
) -> None:
    async with server(tmp_path / "store", "endless") as client:
        await client.initialize()
        session_id = await client.new_session(tmp_path)
        handle = await client.start_prompt(session_id, "go")
        await client.wait_for_update(
            lambda update: update["sessionUpdate"] == "agent_message_chunk"
        )
        await client.cancel(session_id)
        result = await handle.result()
        assert result.stop_reason == "cancelled"
        live = client.transcript
    events = stored_events(tmp_path / "store", session_id)
    assert events[-1]["data"]["reason"] == {"kind": "aborted"}
    assert "assistant/message" not in types_of(events)
    async with server(tmp_path / "store", "endless") as client:
        await client.initialize()
        await client.load_session(session_id, tmp_path)
        assert client.transcript == live


@pytest.mark.parametrize("end", ["eof", "SIGTERM", "SIGINT"])
async def test_the_end_of_the_client_ends_the_turn_disposed(end: str, tmp_path: Path) -> None:
    async with server(tmp_path / "store", "endless") as client:
        await client.initialize()
        session_id = await client.new_session(tmp_path)
        await client.start_prompt(session_id, "go")
        await client.wait_for_update(
            lambda update: update["sessionUpdate"] == "agent_message_chunk"
        )
        if end == "eof":
            await client.close_stdin()
            expected = 0
        elif end == "SIGTERM":
            client.terminate()
            expected = 0
        else:
            client.interrupt()
            expected = 130
        assert await client.wait() == expected
        assert client.stderr == ""
    events = stored_events(tmp_path / "store", session_id)
    assert events[-1]["data"]["reason"] == {"kind": "disposed"}
    before = (tmp_path / "store").rglob("session.jsonl")
    sizes = {path: path.stat().st_size for path in before}
    async with server(tmp_path / "store", "endless") as client:
        await client.initialize()
        await client.load_session(session_id, tmp_path)
        chunks = [u for u in client.updates_of(session_id) if "messageId" in u]
        assert (
            chunks[-1]["content"]["text"]
            == "\n\n[Interrupted: the server stopped before this turn ended]\n\n"
        )
    assert {path: path.stat().st_size for path in sizes} == sizes


async def test_an_idle_server_ends_at_once_on_eof(tmp_path: Path) -> None:
    async with server(tmp_path / "store", "echo") as client:
        await client.initialize()
        await client.close_stdin()
        assert await client.wait() == 0
        assert client.stderr == ""


@pytest.mark.rule("failing-agent-is-named-only")
async def test_a_failing_agent_is_answered_without_its_secrets(tmp_path: Path) -> None:
    async with server(tmp_path / "store", "failing") as client:
        await client.initialize()
        session_id = await client.new_session(tmp_path)
        with pytest.raises(AcpError) as caught:
            await client.prompt(session_id, "go")
        assert caught.value.code == -32603
        assert "ValueError" in str(caught.value)
        assert all(b"secret-token-123" not in frame.data for frame in client.frames)
        assert (await client.list_sessions())["sessions"]


@pytest.mark.rule("wrong-agent-is-told-plainly")
async def test_a_wrong_agent_says_what_it_looked_for(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "acp_server", "serve", "--agent", f"{AGENTS}:nobody"]
    done = await anyio.run_process(argv, check=False)
    assert done.returncode == 2
    message = done.stderr.decode()
    assert "has no 'nobody'" in message
    assert "worker" in message
    assert done.stdout == b""


async def test_prints_of_an_agent_do_not_touch_the_frames(tmp_path: Path) -> None:
    (tmp_path / "noisy.py").write_text(
        "import os, subprocess\nprint('at import')\n"
        "async def noisy(turn):\n    print('in turn', flush=True)\n"
        "    os.write(1, b'raw\\n')\n    subprocess.run(['echo', 'child'])\n"
        "    await turn.text('done')\n"
    )
    async with server(tmp_path / "store", f"{tmp_path / 'noisy.py'}:noisy") as client:
        await client.initialize()
        session_id = await client.new_session(tmp_path)
        assert (await client.prompt(session_id, "go")).text == "done"
        assert all(json.loads(frame.data) for frame in client.frames)
        await client.close_stdin()
        await client.wait()
        for word in ("in turn", "raw", "child"):
            assert word in client.stderr


@pytest.mark.rule("unusable-store-is-told")
async def test_a_store_that_cannot_be_opened_is_refused_in_words_and_the_process_lives(
    tmp_path: Path,
) -> None:
    (tmp_path / "store").write_text("not a folder", encoding="utf-8")
    async with server(tmp_path / "store", "echo") as client:
        await client.initialize()
        for _ in range(2):
            with pytest.raises(AcpError) as caught:
                await client.new_session(tmp_path)
            assert caught.value.code == -32603
            assert "store" in caught.value.message
    assert (tmp_path / "store").read_text(encoding="utf-8") == "not a folder"


@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
async def test_a_store_that_did_not_open_is_tried_again_at_each_request(
    kind: str, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    store.write_text("something else" * 100, encoding="utf-8")
    async with server(store, "echo", kind=kind) as client:
        await client.initialize()
        with pytest.raises(AcpError):
            await client.list_sessions()
        store.unlink()
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(client.list_sessions)
        session_id = await client.new_session(tmp_path)
        assert (await client.prompt(session_id, "hello")).text
    async with server(store, "echo", kind=kind) as client:
        await client.initialize()
        rows = (await client.list_sessions())["sessions"]
        assert [row["sessionId"] for row in rows] == [session_id]

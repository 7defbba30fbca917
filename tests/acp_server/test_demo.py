"""`acp-server demo` plays its whole talk, and the demo agent keeps its promises."""

import json
import os
import sys
from pathlib import Path

import anyio
import pytest

from acp_server.builtin_agents.demo import SCRATCH, demo
from acp_server.testing import running_server


async def test_the_demo_command_shows_the_whole_talk_and_its_frames() -> None:
    with anyio.fail_after(60):
        done = await anyio.run_process(
            [sys.executable, "-m", "acp_server", "demo", "--frames"], check=False
        )
    out = done.stdout.decode()
    assert done.returncode == 0, out + done.stderr.decode()
    assert done.stderr == b""
    for shown in (
        "[>] Look at the workspace",
        "[x] Look at the workspace",
        "Allow once, Reject)  ->  Allow once",
        "killed: exit code -9",
        "[Interrupted: the server stopped before this turn ended]",
        "stop reason: cancelled",
        "[Prompt blocked:",
    ):
        assert shown in out
    frames = [
        line[5:].strip() for line in out.splitlines() if line.startswith(("   <- ", "   -> "))
    ]
    assert len(frames) > 100
    assert {json.loads(frame)["jsonrpc"] for frame in frames} == {"2.0"}


@pytest.mark.parametrize("answer", ["allow_once", "reject_once"])
async def test_the_demo_agent_writes_its_scratch_file_only_when_allowed(
    answer: str, tmp_path: Path
) -> None:
    (tmp_path / "README.md").write_text("# mine\n", encoding="utf-8")
    async with running_server(demo, permissions=[answer]) as client:
        session_id = await client.new_session(tmp_path)
        result = await client.prompt(session_id, "hello")
    assert result.stop_reason == "end_turn"
    names = sorted(os.listdir(tmp_path))  # noqa: PTH208 - names, not paths
    expected = ["README.md", SCRATCH] if answer == "allow_once" else ["README.md"]
    assert names == expected
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == "# mine\n"
    edit = result.transcript.cards[-1]
    assert edit.status == ("completed" if answer == "allow_once" else "failed")
    assert [entry["status"] for entry in result.transcript.plans[-1].entries] == ["completed"] * 3


async def test_the_demo_agent_works_in_an_empty_folder(tmp_path: Path) -> None:
    async with running_server(demo, permissions=["allow_once"]) as client:
        session_id = await client.new_session(tmp_path)
        result = await client.prompt(session_id, "hello")
    assert [card.title for card in result.transcript.cards] == [
        "List the workspace",
        f"Edit {SCRATCH}",
    ]
    assert result.stop_reason == "end_turn"

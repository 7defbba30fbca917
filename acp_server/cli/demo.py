"""`acp-server demo`: plays a client against a real server process and shows the conversation.

It proves what it shows: a step that does not come out as it should ends the command with 1.
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acp_server.cli.screen import Screen
from acp_server.testing import AcpClient, AcpClientError, FrameChecker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

KILL_AFTER_WORDS = 45
"""Words of the answer that are shown before the kill: at the demo agent's pace more than the
200 ms after which even an unfinished answer is on disk."""

_README = "# A small project\n\nIt is here so that the demo agent has something to read.\n"
_FIRST = "Show me what you can do"
_SECOND = "And now tell me more, slowly"
_THIRD = "Are you still there?"
_FORBIDDEN = "Please run rm -rf / for me"


class DemoError(Exception):
    """A step of the demo did not come out as it should."""


async def play(show_frames: bool) -> int:
    """Play the whole conversation; return the exit code."""
    screen = Screen()
    with tempfile.TemporaryDirectory(prefix="acp-demo-") as folder:
        root = Path(folder)
        workspace = _workspace(root)
        conversation = _Conversation(
            screen, workspace, f"jsonl:{root / 'store'}", show_frames=show_frames
        )
        try:
            session_id = await conversation.until_killed()
            await conversation.after_the_kill(session_id)
        except (DemoError, AcpClientError) as error:
            screen.failure(str(error))
            return 1
    screen.heading("Done: nothing that was shown as finished was lost")
    return 0


def _workspace(root: Path) -> Path:
    workspace = root.resolve() / "workspace"
    workspace.mkdir()
    (workspace / "README.md").write_text(_README, encoding="utf-8")
    return workspace


class _Conversation:
    def __init__(self, screen: Screen, workspace: Path, store: str, *, show_frames: bool) -> None:
        self._screen = screen
        self._workspace = workspace
        self._store = store
        self._show_frames = show_frames

    async def until_killed(self) -> str:
        """Talk with a first server and kill it in the middle of an answer."""
        screen = self._screen
        screen.heading("An editor starts the server, opens a session and sends a prompt")
        async with self._server() as client:
            session_id = await client.new_session(self._workspace)
            screen.prompt(_FIRST)
            result = await client.prompt(session_id, _FIRST, timeout=30)
            _require(result.stop_reason == "end_turn", "the first turn should end normally")
            screen.note(f"stop reason: {result.stop_reason}")
            _require(bool(result.transcript.plans), "the first turn should show a plan")

            screen.heading("A second prompt; the server is killed (SIGKILL) in mid-answer")
            screen.prompt(_SECOND)
            before = len(client.updates)
            await client.start_prompt(session_id, _SECOND)
            await client.wait_for_update(_nth_chunk(KILL_AFTER_WORDS), timeout=30, after=before)
            client.kill()
            await client.wait()
            screen.note(f"killed: exit code {client.exit_code}")
        return session_id

    async def after_the_kill(self, session_id: str) -> None:
        """Start a second server on the same store and go on with the session."""
        screen = self._screen
        screen.heading("A new process: list the sessions, load the one that was cut off")
        async with self._server() as client:
            listed = (await client.list_sessions(self._workspace))["sessions"]
            for row in listed:
                screen.note(f"listed: {row['sessionId']}  {row.get('title')!r}  {row['updatedAt']}")
            _require([row["sessionId"] for row in listed] == [session_id], "one session is stored")
            await client.load_session(session_id, self._workspace)
            replayed = _texts(client.updates_of(session_id))
            _require(_FIRST in replayed, "the first prompt should be replayed")
            _require(_SECOND in replayed, "the second prompt should be replayed")
            _require("[Interrupted:" in replayed, "the cut turn should be marked")

            screen.heading("The conversation goes on where it was")
            screen.prompt(_THIRD)
            result = await client.prompt(session_id, _THIRD, timeout=30)
            _require(result.stop_reason == "end_turn", "the prompt after the load should work")
            _require("prompt number 3" in result.text, "the agent should know the whole history")
            screen.note(f"stop reason: {result.stop_reason}")

            screen.heading("A prompt that the agent's policy forbids")
            screen.prompt(_FORBIDDEN)
            result = await client.prompt(session_id, _FORBIDDEN)
            _require(result.stop_reason == "cancelled", "a rejected turn is answered cancelled")
            screen.note(f"stop reason: {result.stop_reason}")

    @asynccontextmanager
    async def _server(self) -> AsyncIterator[AcpClient]:
        argv = [sys.executable, "-m", "acp_server", "serve", "--agent", "demo"]
        client = AcpClient.spawn(
            [*argv, "--store", self._store],
            permissions=self._answer,
            checker=FrameChecker(sdk=False),
        )
        shown = 0

        def show(_session_id: str, update: Mapping[str, Any]) -> None:
            self._screen.update(update)
            show_frames()

        def show_frames() -> None:
            nonlocal shown
            if self._show_frames:
                for frame in client.frames[shown:]:
                    self._screen.frame("->" if frame.sender == "client" else "<-", frame.data)
                shown = len(client.frames)

        client.on_update = show
        async with client:
            await client.initialize({"fs": {"readTextFile": True, "writeTextFile": True}})
            yield client
            show_frames()

    def _answer(self, params: Mapping[str, Any]) -> dict[str, Any]:
        option = next(o for o in params["options"] if o["kind"] == "allow_once")
        self._screen.permission(params, option["name"])
        return {"outcome": {"outcome": "selected", "optionId": option["optionId"]}}


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise DemoError(otherwise)


def _nth_chunk(count: int) -> Any:
    seen = 0

    def reached(update: Mapping[str, Any]) -> bool:
        nonlocal seen
        if update["sessionUpdate"] == "agent_message_chunk":
            seen += 1
        return seen >= count

    return reached


def _texts(updates: Any) -> str:
    return "".join(
        update.get("content", {}).get("text", "")
        for update in updates
        if update["sessionUpdate"].endswith("_chunk")
    )

"""What tools and `turn.files` touch, and what they refuse.

Rules: client-and-disk-behave-alike, reads-are-bounded, presets-end-at-the-roots.
"""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from acp_server.agents.agent import Agent
from acp_server.agents.turn import Turn
from acp_server.builtin_agents.script import script_agent
from acp_server.testing import FILE_CAPABILITIES, AcpClient, AcpError, running_server
from acp_server.turns.errors import PermissionDenied

Drive = Callable[[Turn], Any]
EITHER = pytest.mark.parametrize(
    "capabilities", [{}, dict(FILE_CAPABILITIES)], ids=["disk", "editor"]
)
"""The files of the disk, and those of an editor on the same machine."""


async def once(drive: Drive, cwd: Path | str, **options: Any) -> AcpClient:
    """Run one turn, which must end well, and return the client that saw it."""
    async with running_server(Agent("a", drive), **options) as client:
        session_id = await client.new_session(cwd)
        assert (await client.prompt(session_id, "go")).stop_reason == "end_turn"
    return client


def methods(client: AcpClient) -> list[str]:
    return [frame["method"] for frame in client.agent_requests]


def refusing(code: int, message: str, data: Any = None) -> Any:
    def answer(_params: Any) -> Any:
        raise AcpError(code, message, data)

    return answer


def make_special(folder: Path, name: str) -> str:
    """Return a path that is no regular file, below `folder` where it can be."""
    if name == "directory":
        (folder / name).mkdir()
    elif name == "fifo":
        os.mkfifo(folder / name)
    elif name == "link":
        (folder / name).symlink_to("/dev/zero")
    else:
        return "/dev/zero"
    return name


@EITHER
@pytest.mark.rule("client-and-disk-behave-alike")
@pytest.mark.parametrize("name", ["directory", "fifo", "link", "device"])
async def test_what_is_no_regular_file_is_neither_read_nor_written(
    name: str, capabilities: dict[str, Any], tmp_path: Path
) -> None:
    path = make_special(tmp_path, name)

    async def drive(turn: Turn) -> None:
        match = "Is a directory" if name == "directory" else "not a regular file"
        with pytest.raises(OSError, match=match):
            await turn.files.read(path)
        with pytest.raises(OSError, match=match):
            await turn.files.write(path, "x")

    client = await once(drive, tmp_path, capabilities=capabilities)
    assert methods(client) == []


@EITHER
@pytest.mark.rule("reads-are-bounded")
async def test_a_file_that_is_too_large_is_not_read(
    capabilities: dict[str, Any], tmp_path: Path
) -> None:
    for name, size in (("huge", 100_000_001), ("small", 5)):
        with (tmp_path / name).open("wb") as file:
            file.truncate(size)

    async def drive(turn: Turn) -> None:
        for lines in ({}, {"line": 1, "limit": 1}):
            with pytest.raises(OSError, match="larger than the 100000000 bytes"):
                await turn.files.read("huge", **lines)
        with pytest.raises(OSError, match="larger than the 4 bytes"):
            await turn.files.read("small", max_bytes=4)
        assert await turn.files.read("small", max_bytes=5) == "\0" * 5

    client = await once(drive, tmp_path, capabilities=capabilities)
    assert methods(client) == (["fs/read_text_file"] if capabilities else [])


@pytest.mark.rule("reads-are-bounded")
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs a file without a size")
async def test_a_file_without_a_size_is_read_up_to_the_bound(tmp_path: Path) -> None:
    async def drive(turn: Turn) -> None:
        assert "Name:" in await turn.files.read("/proc/self/status")
        with pytest.raises(OSError, match="larger than the 9 bytes"):
            await turn.files.read("/proc/self/status", max_bytes=9)

    await once(drive, tmp_path)


@EITHER
@pytest.mark.rule("client-and-disk-behave-alike")
async def test_a_write_makes_the_folders_above_the_file(
    capabilities: dict[str, Any], tmp_path: Path
) -> None:
    folders_seen: list[bool] = []

    def write(params: Mapping[str, Any]) -> None:
        folders_seen.append(Path(params["path"]).parent.is_dir())

    async def drive(turn: Turn) -> None:
        await turn.files.write("new/er/../est/file.txt", "text")

    await once(drive, tmp_path, capabilities=capabilities, answers={"fs/write_text_file": write})
    if capabilities:
        assert folders_seen == [True]
    else:
        assert (tmp_path / "new/est/file.txt").read_text(encoding="utf-8") == "text"
    assert not (tmp_path / "new/er").exists()


@pytest.mark.rule("client-and-disk-behave-alike")
async def test_folders_of_another_machine_are_left_to_the_editor(tmp_path: Path) -> None:
    elsewhere = tmp_path / "not here"

    async def drive(turn: Turn) -> None:
        await turn.files.write("sub/file.txt", "text")

    client = await once(
        drive,
        elsewhere,
        capabilities=dict(FILE_CAPABILITIES),
        answers={"fs/write_text_file": lambda _params: None},
    )
    assert methods(client) == ["fs/write_text_file"]
    assert not elsewhere.exists()


@pytest.mark.rule("client-and-disk-behave-alike")
@pytest.mark.parametrize(
    "answer",
    [
        refusing(-32002, "Resource not found"),
        refusing(-32603, "ENOENT: no such file or directory, open '/w/a.txt'"),
        refusing(-32603, "Internal error", {"details": "No such file or directory (os error 2)"}),
        refusing(-32000, "File not found: /w/a.txt"),
        refusing(-32603, "java.nio.file.NoSuchFileException: /w/a.txt"),
    ],
    ids=["code", "node", "rust", "words", "jvm"],
)
async def test_the_write_tool_creates_a_file_that_the_client_does_not_find(
    answer: Any, tmp_path: Path
) -> None:
    script = tmp_path / "script.json"
    script.write_text(
        '[{"calls": [{"name": "write", "arguments": {"path": "a.txt", "content": "new"}}]},'
        ' {"text": "done"}]',
        encoding="utf-8",
    )
    async with running_server(
        script_agent(script),
        capabilities=dict(FILE_CAPABILITIES),
        answers={"fs/read_text_file": answer},
        permissions=["allow_once"],
    ) as client:
        session_id = await client.new_session(tmp_path)
        await client.prompt(session_id, "go")
        assert [card.status for card in client.transcript.cards] == ["completed"]
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "new"


@pytest.mark.rule("client-and-disk-behave-alike")
@pytest.mark.parametrize("code", [-32601, -32603])
async def test_another_failure_of_the_client_is_not_taken_for_a_missing_file(code: int) -> None:
    async def drive(turn: Turn) -> None:
        with pytest.raises(OSError, match="Method not found") as caught:
            await turn.files.read("a.txt")
        assert not isinstance(caught.value, FileNotFoundError)

    answers = {"fs/read_text_file": refusing(code, "Method not found")}
    await once(drive, "/w", capabilities=dict(FILE_CAPABILITIES), answers=answers)


# -- presets-end-at-the-roots ---------------------------------------------------------------


class Workspace:
    """A session's folder with something outside of it, and what leads there."""

    def __init__(self, base: Path) -> None:
        self.cwd = base / "work"
        self.cwd.mkdir()
        self.outside = base / "work-of-others"
        self.outside.mkdir()
        (self.outside / "secret.txt").write_text("secret", encoding="utf-8")
        (self.cwd / "mine.txt").write_text("mine", encoding="utf-8")
        (self.cwd / "to-file").symlink_to(self.outside / "secret.txt")
        (self.cwd / "to-folder").symlink_to(self.outside)
        (self.cwd / "to-nothing").symlink_to(self.outside / "new.txt")
        (self.cwd / "to-mine").symlink_to(self.cwd / "mine.txt")

    async def call(
        self, tool: str, path: str, mode: str, *, times: int = 1, **options: Any
    ) -> tuple[list[str], AcpClient]:
        """Let the scripted model call a tool; return the calls' final statuses, and the client."""
        arguments: dict[str, Any] = {"path": path}
        if tool == "write":
            arguments["content"] = "written"
        calls = [{"name": tool, "arguments": arguments}]
        script = self.cwd.parent / "script.json"
        script.write_text(
            json.dumps([{"calls": calls} for _ in range(times)] + [{"text": "done"}]),
            encoding="utf-8",
        )
        roots = options.pop("roots", [])
        async with running_server(script_agent(script), **options) as client:
            session_id = await client.new_session(self.cwd, additionalDirectories=roots)
            await client.set_mode(session_id, mode)
            await client.prompt(session_id, "go")
            return [card.status for card in client.transcript.cards], client


OUTSIDE = ["/etc/hostname", "../work-of-others/secret.txt", "to-file", "to-folder/secret.txt"]
NEW_OUTSIDE = ["../new.txt", "to-nothing", "to-folder/new/er.txt", "new/../../new.txt"]


@pytest.mark.rule("presets-end-at-the-roots")
@pytest.mark.parametrize("mode", ["ask", "auto-edit", "read-only", "full-access"])
@pytest.mark.parametrize("path", OUTSIDE)
async def test_the_read_tool_asks_outside_the_roots(mode: str, path: str, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    statuses, client = await workspace.call("read", path, mode, permissions=["reject_once"])
    assert statuses == ["completed" if mode == "full-access" else "failed"]
    asked = [] if mode in ("read-only", "full-access") else ["session/request_permission"]
    assert methods(client) == asked
    if mode != "full-access":
        assert b'"secret"' not in b"".join(frame.data for frame in client.frames)


@pytest.mark.rule("presets-end-at-the-roots")
@pytest.mark.parametrize("path", [*OUTSIDE[1:], *NEW_OUTSIDE])
@pytest.mark.parametrize("mode", ["auto-edit", "read-only"])
async def test_the_write_tool_asks_outside_the_roots(mode: str, path: str, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    statuses, client = await workspace.call("write", path, mode, permissions=["reject_once"])
    assert statuses == ["failed"]
    assert methods(client) == ([] if mode == "read-only" else ["session/request_permission"])
    assert sorted(os.listdir(tmp_path)) == ["script.json", "work", "work-of-others"]  # noqa: PTH208
    assert os.listdir(workspace.outside) == ["secret.txt"]  # noqa: PTH208
    assert (workspace.outside / "secret.txt").read_text(encoding="utf-8") == "secret"


@pytest.mark.rule("presets-end-at-the-roots")
@pytest.mark.parametrize("path", ["mine.txt", "to-mine", "../work/mine.txt", "to-file"])
async def test_inside_the_roots_the_preset_decides(path: str, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    (tmp_path / "link").symlink_to(workspace.outside)
    roots = [str(tmp_path / "link")] if path == "to-file" else []
    for tool in ("read", "write"):
        statuses, client = await workspace.call(tool, path, "auto-edit", roots=roots)
        assert (statuses, methods(client)) == (["completed"], [])


@pytest.mark.rule("presets-end-at-the-roots")
async def test_a_question_about_a_file_outside_names_it_and_offers_no_always(
    tmp_path: Path,
) -> None:
    workspace = Workspace(tmp_path)
    statuses, client = await workspace.call(
        "write", "to-file", "auto-edit", times=2, permissions=["allow_once", "allow_once"]
    )
    assert statuses == ["completed", "completed"]
    for frame in client.agent_requests:
        assert "work-of-others/secret.txt" in frame["params"]["toolCall"]["title"]
        kinds = [option["kind"] for option in frame["params"]["options"]]
        assert kinds == ["allow_once", "reject_once"]
    assert len(client.agent_requests) == 2


@pytest.mark.rule("presets-end-at-the-roots")
@pytest.mark.parametrize(("answer", "asked"), [("allow_always", 2), ("reject_always", 1)])
async def test_a_stored_refusal_covers_the_outside_and_a_stored_permission_does_not(
    answer: str, asked: int, tmp_path: Path
) -> None:
    workspace = Workspace(tmp_path)
    calls = [
        {"calls": [{"name": "write", "arguments": {"path": path, "content": "written"}}]}
        for path in ("mine.txt", "to-file")
    ]
    script = tmp_path / "script.json"
    script.write_text(json.dumps([*calls, {"text": "done"}]), encoding="utf-8")
    async with running_server(script_agent(script), permissions=[answer, "reject_once"]) as client:
        session_id = await client.new_session(workspace.cwd)
        await client.prompt(session_id, "go")
        assert client.transcript.cards[1].status == "failed"
    assert len(client.agent_requests) == asked


@pytest.mark.rule("presets-end-at-the-roots")
async def test_a_path_that_no_file_can_have_fails_its_call_alone(tmp_path: Path) -> None:
    statuses, client = await Workspace(tmp_path).call("read", "a\0b", "auto-edit")
    assert (statuses, methods(client)) == (["failed"], [])


@pytest.mark.rule("presets-end-at-the-roots")
async def test_an_authors_call_that_names_its_path_asks_outside_the_roots(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    went: list[str] = []

    async def drive(turn: Turn) -> None:
        for path in ("mine.txt", "to-file"):
            try:
                async with turn.tool("look", kind="read", path=path):
                    went.append(path)
            except PermissionDenied:
                went.append("denied")

    client = await once(drive, workspace.cwd, permissions=["reject_once"])
    assert went == ["mine.txt", "denied"]
    assert methods(client) == ["session/request_permission"]

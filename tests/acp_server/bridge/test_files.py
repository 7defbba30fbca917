"""What tools and `turn.files` touch, and what they refuse.

Rules: client-and-disk-behave-alike, reads-are-bounded.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from acp_server.agents.agent import Agent
from acp_server.agents.turn import Turn
from acp_server.builtin_agents.script import script_agent
from acp_server.testing import FILE_CAPABILITIES, AcpClient, AcpError, running_server

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

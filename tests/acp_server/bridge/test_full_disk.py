"""A store that cannot write: what is refused, what is kept, how one gets out of it.

Rules: failed-checkpoint-ends-turn, delete-ends-then-removes.
"""

import errno
import os
from pathlib import Path

import pytest

from acp_server.testing import AcpError, running_server
from persistence import open_backend
from persistence.files import OsFiles
from persistence.jsonl import JsonlBackend
from persistence.testing.harness import FailingBackend
from tests.acp_server.helpers import ECHO


@pytest.mark.rule("failed-checkpoint-ends-turn")
async def test_a_turn_that_cannot_be_stored_is_an_error_and_later_ones_work_again() -> None:
    backend = FailingBackend(open_backend("memory:"))
    async with running_server(ECHO, store=backend) as client:
        session_id = await client.new_session("/w")
        await client.prompt(session_id, "one")
        backend.failing = True
        for _ in range(2):
            with pytest.raises(AcpError) as caught:
                await client.prompt(session_id, "two")
            assert caught.value.code == -32603
            assert "disk full" in caught.value.message
        backend.failing = False
        assert (await client.prompt(session_id, "three")).stop_reason == "end_turn"
    stored = await backend.load_stored(session_id)
    assert stored is not None
    prompts = [e.data["content"][0]["text"] for e in stored.log.view() if e.type == "user/message"]
    assert prompts == ["one", "two", "three"]


@pytest.mark.rule("delete-ends-then-removes")
async def test_a_session_can_be_deleted_although_the_disk_is_full() -> None:
    backend = FailingBackend(open_backend("memory:"))
    async with running_server(ECHO, store=backend) as client:
        session_id = await client.new_session("/w")
        await client.prompt(session_id, "one")
        backend.failing = True
        with pytest.raises(AcpError):
            await client.prompt(session_id, "two")
        assert await client.delete_session(session_id) == {}
        assert (await client.list_sessions())["sessions"] == []
        with pytest.raises(AcpError) as caught:
            await client.load_session(session_id, "/w")
        assert caught.value.code == -32002
    assert await backend.load_stored(session_id) is None


class BrokenFolders(OsFiles):
    """From its first publication on, no name is made durable or removed, until it is mended."""

    is_mended = False
    is_broken = False

    def link(self, source: str, target: str) -> None:
        super().link(source, target)
        self.is_broken = not self.is_mended

    def sync_dir(self, path: str) -> None:
        self._enter()
        super().sync_dir(path)

    def unlink(self, path: str) -> None:
        self._enter()
        super().unlink(path)

    def mend(self) -> None:
        self.is_broken, self.is_mended = False, True

    def _enter(self) -> None:
        if self.is_broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.rule("failed-flush-keeps-events")
async def test_a_publication_that_can_be_neither_ended_nor_undone_is_our_own_later(
    tmp_path: Path,
) -> None:
    files = BrokenFolders()
    backend = JsonlBackend(str(tmp_path / "store"), files=files)
    async with running_server(ECHO, store=backend) as client:
        session_id = await client.new_session("/w")
        for text in ("one", "two"):
            with pytest.raises(AcpError, match="i/o error") as caught:
                await client.prompt(session_id, text)
            assert caught.value.code == -32603
        files.mend()
        assert (await client.prompt(session_id, "three")).stop_reason == "end_turn"
        before = await backend.load_stored(session_id)
    assert before is not None
    said = [e.data["content"][0]["text"] for e in before.log.view() if e.type == "user/message"]
    # The second one was refused before it was a turn.
    assert said == ["one", "three"]

"""A store that cannot write: what is refused, what is kept, how one gets out of it.

Rules: failed-checkpoint-ends-turn, delete-ends-then-removes.
"""

import pytest

from acp_server.testing import AcpError, running_server
from persistence import open_backend
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

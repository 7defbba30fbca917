"""The client over a memory transport, with a counterpart of a few lines."""

import anyio
import orjson
import pytest

from acp_server.testing import FILE_CAPABILITIES, AcpClient, AgentGoneError, FrameChecker
from acp_server.transport.memory import MemoryTransport, memory_transport_pair


async def answer_everything(transport: MemoryTransport) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(transport.run)
        while (lines := await transport.receive()) is not None:
            for line in lines:
                assert isinstance(line, bytes)
                frame = orjson.loads(line)
                if "id" not in frame:
                    continue
                answer = {"jsonrpc": "2.0", "id": frame["id"], "result": {"protocolVersion": 1}}
                transport.send(orjson.dumps(answer) + b"\n")
        tasks.cancel_scope.cancel()
    await transport.aclose()


async def test_a_client_talks_over_a_transport_of_the_same_process() -> None:
    near, far = memory_transport_pair()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer_everything, far)
            async with AcpClient.over(near) as client:
                assert await client.initialize() == {"protocolVersion": 1}
            assert client.stderr == ""
            assert [frame.sender for frame in client.frames] == ["client", "agent"]


async def test_a_server_that_hangs_up_ends_the_wait() -> None:
    near, far = memory_transport_pair()
    with anyio.fail_after(5):
        async with AcpClient.over(near) as client:
            pending = await client.start_request("silence")
            await far.aclose()
            with pytest.raises(AgentGoneError):
                await client.request("more")
            await pending.answered.wait()


async def test_a_client_without_process_says_so() -> None:
    near, far = memory_transport_pair()
    with anyio.fail_after(5):
        async with AcpClient.over(near) as client:
            with pytest.raises(TypeError):
                client.kill()
    await far.aclose()


async def test_every_method_sends_what_the_sdk_accepts() -> None:
    near, far = memory_transport_pair()
    checker = FrameChecker(sdk=True)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer_everything, far)
            async with AcpClient.over(near, checker=checker) as client:
                await client.initialize(FILE_CAPABILITIES)
                await client.authenticate("m")
                await client.load_session("s", "/w", additionalDirectories=["/x"])
                await client.resume_session("s", "/w")
                await client.list_sessions()
                await client.list_sessions("/w", "cursor")
                await client.set_mode("s", "m")
                await client.set_config_option("s", "c", "v")
                await client.set_config_option("s", "c", value=True)
                await client.start_prompt("s", [{"type": "text", "text": "hi"}])
                await client.cancel("s")
                await client.cancel_request(1)
                await client.close_session("s")
                await client.delete_session("s")
                checked = [found for found in checker.violations if found.sender == "client"]
                # The counterpart gives every request one and the same result.
                checker.violations.clear()
    assert checked == []
    methods = {orjson.loads(frame.data).get("method") for frame in client.frames}
    assert len(methods - {None}) == 12

"""What an agent declares is what is advertised and served: sign-in, extensions, capabilities."""

from typing import Any

import pytest

import acp_server
from acp_server.agents.agent import Agent
from acp_server.agents.errors import RequestRefusedError
from acp_server.agents.sign_in import AuthMethod, SignIn
from acp_server.agents.turn import Turn, run_of
from acp_server.testing import AcpError, running_server
from tests.acp_server.helpers import echo, refused_code


@pytest.mark.rule("capabilities-are-truthful", "sign-in-is-opt-in")
@pytest.mark.case("B14")
async def test_only_what_is_served_is_advertised() -> None:
    async with running_server(Agent("echo", echo)) as client:
        result = await client.initialize()
        assert result["authMethods"] == []
        assert result["agentCapabilities"] == {
            "loadSession": True,
            "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
            "mcpCapabilities": {"http": False, "sse": False},
            "sessionCapabilities": {
                name: {} for name in ("list", "resume", "close", "delete", "additionalDirectories")
            },
        }
        for method in ("logout", "session/fork", "session/set_model", "_vendor/x"):
            with pytest.raises(AcpError) as caught:
                await client.request(method, {})
            assert (caught.value.code, caught.value.data) == (-32601, {"method": method})
        assert await client.authenticate("whatever") == {}


@pytest.mark.rule("declared-sign-in-guards-sessions")
async def test_an_agent_that_asks_for_it_serves_nobody_before_they_sign_in() -> None:
    signed: list[str] = []

    async def sign_in(method_id: str) -> None:
        if signed:
            detail = "the account is locked"
            raise RequestRefusedError(detail)
        signed.append(method_id)

    async def sign_out() -> None:
        signed.append("out")

    methods = (AuthMethod("key", "API key", "From your account page"),)
    agent = Agent("echo", echo, sign_in=SignIn(methods, sign_in, sign_out))
    async with running_server(agent) as client:
        result = await client.initialize()
        described = {"id": "key", "name": "API key", "description": "From your account page"}
        assert result["authMethods"] == [described]
        assert result["agentCapabilities"]["auth"] == {"logout": {}}
        here = {"cwd": "/tmp/w", "sessionId": "x"}
        for method in ("session/new", "session/load", "session/resume"):
            assert await refused_code(client, method, here) == -32000
        assert await refused_code(client, "authenticate", {"methodId": "other"}) == -32602
        assert await refused_code(client, "session/new", here) == -32000
        assert await client.authenticate("key") == {}
        session_id = await client.new_session("/tmp/w")
        assert (await client.prompt(session_id, "hi")).text == "hi"
        assert await client.request("logout", {}) == {}
        text = [{"type": "text", "text": "x"}]
        prompt = {"sessionId": session_id, "prompt": text}
        assert await refused_code(client, "session/prompt", prompt) == -32000
        with pytest.raises(AcpError, match="the account is locked"):
            await client.authenticate("key")
        assert signed == ["key", "out"]


@pytest.mark.rule("declared-sign-in-guards-sessions")
async def test_the_agent_may_know_by_itself_who_is_signed_in() -> None:
    async def sign_in(_method_id: str) -> None:
        return

    known = [True]
    methods = (AuthMethod("key", "API key"),)
    agent = Agent("echo", echo, sign_in=SignIn(methods, sign_in, is_signed_in=lambda: known[0]))
    async with running_server(agent) as client:
        await client.new_session("/tmp/w")
        known[0] = False
        assert await refused_code(client, "session/new", {"cwd": "/tmp/w"}) == -32000


@pytest.mark.rule("extensions-begin-with-underscore", "unadvertised-methods-are-not-found")
async def test_an_agent_answers_extension_requests_of_its_own() -> None:
    async def add(params: dict[str, Any]) -> dict[str, Any]:
        if "a" not in params:
            detail = "a: it is missing"
            raise RequestRefusedError(detail)
        return {"sum": params["a"] + params["b"]}

    async def fail(_params: dict[str, Any]) -> None:
        message = "secret-token-123"
        raise ValueError(message)

    extensions = {"_acme/add": add, "_acme/fail": fail}
    async with running_server(Agent("echo", echo, extensions=extensions)) as client:
        assert await client.request("_acme/add", {"a": 1, "b": 2, "_meta": {}}) == {"sum": 3}
        assert await refused_code(client, "_acme/add", {}) == -32602
        assert await refused_code(client, "_acme/fail", {}) == -32603
        assert await refused_code(client, "_acme/other", {}) == -32601
        await client.notify("_acme/other", {})
        assert [frame for frame in client.frames if b"secret-token" in frame.data] == []


@pytest.mark.rule("usage-is-last-known-state")
async def test_usage_is_shown_after_a_load_where_the_context_size_is_known() -> None:
    usage = {"inputTokens": 70, "cacheReadTokens": 20, "outputTokens": 10}

    async def think(turn: Turn) -> None:
        provenance = {"provider": "p", "model": "m"}
        run = run_of(turn)
        await run.begin_request({"config": provenance})
        run.log.chunk({"type": "text-delta", "index": 0, "text": "ok"})
        run.log.append_message(provenance, usage)

    async with running_server(Agent("think", think, context_size=1000)) as client:
        session_id = await client.new_session("/tmp/w")
        await client.prompt(session_id, "go")
        shown = {"sessionUpdate": "usage_update", "used": 100, "size": 1000}
        assert shown in client.updates_of(session_id)
        await client.load_session(session_id, "/tmp/w")
        count = len(client.updates)
        await client.wait_for_update(lambda u: u == shown, after=count - 2)


def test_what_authors_import_is_where_the_package_says() -> None:
    for name in acp_server.__all__:
        assert getattr(acp_server, name).__name__ == name
    with pytest.raises(AttributeError):
        _ = acp_server.nothing

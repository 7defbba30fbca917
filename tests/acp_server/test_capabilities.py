"""What `initialize` advertises is served, and what it does not is refused.

Rule: capabilities-are-truthful.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from acp_server.agents.agent import Agent
from acp_server.agents.options import Choice, SelectOption
from acp_server.agents.sign_in import AuthMethod, SignIn
from acp_server.agents.turn import Turn
from acp_server.testing import AcpClient, running_server
from tests.acp_server.helpers import refused_code

METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602

Capabilities = Mapping[str, Any]
Params = dict[str, Any]


def always(_capabilities: Capabilities) -> bool:
    return True


def if_marked(*path: str) -> Callable[[Capabilities], bool]:
    """Advertised where an object, or `true`, stands at the path."""

    def is_advertised(capabilities: Capabilities) -> bool:
        value: Any = capabilities
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        return value is True or isinstance(value, Mapping)

    return is_advertised


GATES: Final[Mapping[str, Callable[[Capabilities], bool]]] = {
    "authenticate": always,
    "session/new": always,
    "session/prompt": always,
    "session/load": if_marked("loadSession"),
    "session/resume": if_marked("sessionCapabilities", "resume"),
    "session/list": if_marked("sessionCapabilities", "list"),
    "session/close": if_marked("sessionCapabilities", "close"),
    "session/delete": if_marked("sessionCapabilities", "delete"),
    "logout": if_marked("auth", "logout"),
}
"""Every request of ACP v1 to an agent but `initialize`, and the two that modes and options gate."""

UNSTABLE: Final = (
    "session/fork",
    "session/set_model",
    "session/archive",
    "session/set_title",
    "providers/list",
    "mcp/message",
    "nes/start",
    "document/didOpen",
    "initialized",
)


async def say(turn: Turn) -> None:
    await turn.text("hi")


async def sign_in(_method: str) -> None:
    return


AGENTS: Final = [
    Agent("takes the usual", say),
    Agent("takes all", say, takes_images=True, takes_audio=True, takes_resources=True),
    Agent("takes text", say, takes_images=False, takes_audio=False, takes_resources=False),
    Agent("signs in", say, sign_in=SignIn((AuthMethod("key", "A key"),), sign_in)),
    Agent("has no modes", say, modes=()),
    Agent("has options", say, options=(SelectOption("size", "Size", (Choice("s"), Choice("l"))),)),
]


def named(agent: Agent) -> str:
    return agent.name


async def capabilities_of(client: AcpClient) -> Capabilities:
    capabilities: Capabilities = (await client.initialize({}))["agentCapabilities"]
    return capabilities


async def params_of(client: AcpClient, method: str, cwd: Path) -> Params:
    """Return right params for a method, over a stored session where it needs one."""
    if method == "authenticate":
        return {"methodId": "key"}
    if method == "session/new":
        return {"cwd": str(cwd), "mcpServers": []}
    if method in ("session/list", "logout"):
        return {}
    session_id = await client.new_session(cwd)
    await client.prompt(session_id, "hello")
    members: Params = {"sessionId": session_id}
    if method in ("session/load", "session/resume"):
        return {**members, "cwd": str(cwd), "mcpServers": []}
    if method == "session/prompt":
        return {**members, "prompt": [{"type": "text", "text": "again"}]}
    return members


@pytest.mark.rule("capabilities-are-truthful")
@pytest.mark.parametrize("agent", AGENTS, ids=named)
async def test_a_method_is_served_just_if_it_is_advertised(agent: Agent, tmp_path: Path) -> None:
    async with running_server(agent) as client:
        capabilities = await capabilities_of(client)
        for method, is_advertised in GATES.items():
            params = await params_of(client, method, tmp_path)
            if is_advertised(capabilities):
                assert isinstance(await client.request(method, params), dict), method
            else:
                assert await refused_code(client, method, params) == METHOD_NOT_FOUND, method
                assert await refused_code(client, method, {}) == METHOD_NOT_FOUND, method


@pytest.mark.rule("declared-sign-in-guards-sessions", "capabilities-are-truthful")
async def test_nothing_but_the_sign_in_is_served_before_it_where_one_is_declared(
    tmp_path: Path,
) -> None:
    agent = next(agent for agent in AGENTS if agent.sign_in is not None)
    async with running_server(agent) as client:
        opened = await client.initialize({})
        assert opened["authMethods"] == [{"id": "key", "name": "A key"}]
        opening = {"cwd": str(tmp_path), "mcpServers": []}
        assert await refused_code(client, "session/new", opening) == -32000
        assert await refused_code(client, "authenticate", {"methodId": "other"}) == INVALID_PARAMS
        await client.authenticate("key")
        assert await client.new_session(tmp_path)
        assert await client.request("logout", {}) == {}
        assert await refused_code(client, "session/new", opening) == -32000
        await client.authenticate("key")
        assert await client.new_session(tmp_path)


@pytest.mark.rule("unadvertised-methods-are-not-found", "capabilities-are-truthful")
async def test_what_no_stable_version_has_is_not_found() -> None:
    async with running_server(AGENTS[0]) as client:
        for method in UNSTABLE:
            assert await refused_code(client, method, {"sessionId": "s"}) == METHOD_NOT_FOUND


@pytest.mark.parametrize("agent", AGENTS, ids=named)
async def test_modes_and_options_can_be_set_just_if_a_session_reports_them(
    agent: Agent, tmp_path: Path
) -> None:
    async with running_server(agent) as client:
        await client.authenticate("key")
        opened = await client.request(
            "session/new", {"cwd": str(tmp_path), "mcpServers": []}, checked=True
        )
        session_id = opened["sessionId"]
        refused = {METHOD_NOT_FOUND, INVALID_PARAMS}
        if "modes" in opened:
            for mode in opened["modes"]["availableModes"]:
                assert await client.set_mode(session_id, mode["id"]) == {}
        else:
            members = {"sessionId": session_id, "modeId": "ask"}
            assert await refused_code(client, "session/set_mode", members) in refused
        for option in opened.get("configOptions", ()):
            value = option["currentValue"]
            answer = await client.set_config_option(session_id, option["id"], value)
            assert [o["id"] for o in answer["configOptions"]] == [
                o["id"] for o in opened["configOptions"]
            ]
        members = {"sessionId": session_id, "configId": "none such", "value": "x"}
        assert await refused_code(client, "session/set_config_option", members) in refused


BLOCKS: Final[Mapping[str, Params]] = {
    "image": {"type": "image", "data": "aGk=", "mimeType": "image/png"},
    "audio": {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
    "embeddedContext": {"type": "resource", "resource": {"uri": "file:///a", "text": "a"}},
}


BASELINE: Final[tuple[Params, ...]] = (
    {"type": "text", "text": "x"},
    {"type": "resource_link", "uri": "a:b", "name": "b"},
)


@pytest.mark.rule("unadvertised-blocks-are-refused")
@pytest.mark.parametrize("agent", AGENTS, ids=named)
async def test_a_block_is_taken_just_if_it_is_advertised(agent: Agent, tmp_path: Path) -> None:
    async with running_server(agent) as client:
        await client.authenticate("key")
        taken = (await capabilities_of(client))["promptCapabilities"]
        assert taken.keys() == BLOCKS.keys()
        session_id = await client.new_session(tmp_path)
        for name, block in BLOCKS.items():
            members = {"sessionId": session_id, "prompt": [block]}
            if taken[name]:
                assert (await client.prompt(session_id, [block])).stop_reason == "end_turn"
            else:
                assert await refused_code(client, "session/prompt", members) == INVALID_PARAMS
        for block in BASELINE:
            assert (await client.prompt(session_id, [block])).stop_reason == "end_turn"


@pytest.mark.rule("directories-are-complete-lists")
async def test_additional_directories_are_taken_if_they_are_advertised(tmp_path: Path) -> None:
    async with running_server(AGENTS[0]) as client:
        capabilities = await capabilities_of(client)
        if if_marked("sessionCapabilities", "additionalDirectories")(capabilities):
            assert await client.new_session(tmp_path, additionalDirectories=[str(tmp_path)])
        relative = {"cwd": str(tmp_path), "mcpServers": [], "additionalDirectories": ["a"]}
        assert await refused_code(client, "session/new", relative) == INVALID_PARAMS


@pytest.mark.rule("capabilities-are-truthful")
async def test_every_key_that_is_there_means_support() -> None:
    async with running_server(AGENTS[0]) as client:
        capabilities = await capabilities_of(client)
        assert capabilities["loadSession"] is True
        assert (await client.initialize({}))["authMethods"] == []  # some show a login for any
        # A client takes a key for support, whatever stands behind it.
        for name, marker in capabilities["sessionCapabilities"].items():
            assert isinstance(marker, dict), name
        for name, marker in capabilities.get("auth", {}).items():
            assert isinstance(marker, dict), name


@pytest.mark.rule("client-methods-need-capability", "capabilities-are-truthful")
@pytest.mark.parametrize(
    "offered",
    [
        {},
        {"fs": None, "terminal": None},
        {"fs": {"readTextFile": None, "writeTextFile": "yes"}, "terminal": "yes"},
        {"fs": {"readTextFile": 1}, "terminal": 1, "elicitation": True},
    ],
)
async def test_without_capabilities_the_client_is_asked_for_permission_only(
    offered: dict[str, Any], tmp_path: Path
) -> None:
    async def touch(turn: Turn) -> None:
        async with turn.tool("copy", kind="edit", ask=True) as call:
            text = await turn.files.read("a.txt")
            await turn.files.write("b.txt", text)
            call.result("copied")

    (tmp_path / "a.txt").write_text("from the disk")
    async with running_server(Agent("copier", touch), permissions=["allow_once"]) as client:
        opening = {"protocolVersion": 1, "clientCapabilities": offered}
        await client.request("initialize", opening)  # not checked: wrong on purpose
        await client.prompt(await client.new_session(tmp_path), "go")
        asked = [frame["method"] for frame in client.agent_requests]
        assert asked == ["session/request_permission"]
        variants = {seen.update["sessionUpdate"] for seen in client.updates}
        assert "notice" not in variants
    assert (tmp_path / "b.txt").read_text() == "from the disk"

"""The tables of docs/acp-support.md say what the code does, name by name."""

import ast
import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from acp_server.agents.agent import Agent
from acp_server.agents.sign_in import AuthMethod, SignIn
from acp_server.agents.turn import Turn
from acp_server.testing import AcpError, running_server
from acp_server.testing.checks.sdk_oracle import (
    _AGENT_NOTIFICATIONS,
    _AGENT_REQUESTS,
    _CLIENT_NOTIFICATIONS,
    _CLIENT_REQUESTS,
    UPDATE_VARIANTS,
)
from acp_server.wire import updates
from acp_server.wire.handshake import ClientCapabilities

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "acp-support.md").read_text("utf-8")
ROW: Final = re.compile(r"^\| `([^`]+)` \| ([^|]+) \|", re.MULTILINE)
METHOD_NOT_FOUND: Final = -32601

CLIENT_FIELDS: Final[Mapping[str, str]] = {
    "fs.readTextFile": "fs_read",
    "fs.writeTextFile": "fs_write",
    "terminal": "terminal",
    "session.configOptions.boolean": "boolean_options",
    "session.notices": "notices",
    "auth.terminal": "auth_terminal",
    "elicitation.form": "elicitation_form",
    "elicitation.url": "elicitation_url",
    "_meta.terminal_output": "terminal_output_meta",
}


def table(heading: str) -> dict[str, str]:
    """Return name → yes, no or by agent."""
    section = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = {name: word.strip() for name, word in ROW.findall(section)}
    assert set(rows.values()) <= {"yes", "no", "by agent"}
    return rows


def sources() -> list[ast.Module]:
    """Return the modules that decide what is sent: the rooms above the wire models."""
    rooms = ("agents", "bridge", "rpc")
    paths = [path for room in rooms for path in (ROOT / "acp_server" / room).glob("*.py")]
    return [ast.parse(path.read_text("utf-8")) for path in sorted(paths)]


def strings() -> set[str]:
    """Return the literal strings of those modules."""
    nodes = (node for module in sources() for node in ast.walk(module))
    return {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}


def attributes() -> set[str]:
    """Return the attribute names that those modules use."""
    nodes = (node for module in sources() for node in ast.walk(module))
    return {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def yes(names: set[str], used: set[str], *, otherwise: str = "no") -> dict[str, str]:
    return {name: "yes" if name in used else otherwise for name in names}


async def drive(turn: Turn) -> None:
    await turn.text("hi")


def everything() -> Agent:
    """Return an agent that declares all that can be declared."""

    async def sign_in(_method: str) -> None:
        return

    account = SignIn((AuthMethod("key", "A key"),), sign_in)
    return Agent("all", drive, takes_audio=True, sign_in=account)


async def served(agent: Agent) -> set[str]:
    """Return the requests that are not refused as unknown."""
    found = set()
    async with running_server(agent) as client:
        for method in _CLIENT_REQUESTS.keys() - {"initialize"}:
            try:
                await client.request(method, {})
            except AcpError as error:
                if error.code == METHOD_NOT_FOUND:
                    continue
            found.add(method)
    return found


async def advertised(agent: Agent) -> set[str]:
    """Return the paths of what stands in `agentCapabilities` as supported."""
    async with running_server(agent) as client:
        capabilities = (await client.initialize({}))["agentCapabilities"]
    return set(supported(capabilities, ""))


def supported(value: Any, path: str) -> list[str]:
    if value is True or value == {}:
        return [path]
    if isinstance(value, Mapping):
        prefix = f"{path}." if path else ""
        return [
            leaf for name, inner in value.items() for leaf in supported(inner, f"{prefix}{name}")
        ]
    return []


async def test_methods_of_the_agent_are_as_the_page_says() -> None:
    usual, declared = await served(Agent("usual", drive)), await served(everything())
    # A peer answers or takes these itself; that it does has tests of its own.
    taken = {"initialize", "session/cancel", "$/cancel_request"}
    expected = yes({*_CLIENT_REQUESTS, *_CLIENT_NOTIFICATIONS}, usual | taken)
    expected |= dict.fromkeys(declared - usual, "by agent")
    assert table("Methods of the agent") == expected


def test_methods_of_the_client_are_as_the_page_says() -> None:
    names = {*_AGENT_REQUESTS, *_AGENT_NOTIFICATIONS} - {"$/cancel_request"}
    assert table("Methods of the client") == yes(names, strings())


def test_updates_are_as_the_page_says() -> None:
    for variant in UPDATE_VARIANTS:
        assert hasattr(updates, variant), f"no builder of {variant}"
    assert table("Updates") == yes(set(UPDATE_VARIANTS), strings() | attributes())


async def test_capabilities_of_the_agent_are_as_the_page_says() -> None:
    rows = table("Capabilities of the agent")
    usual, declared = await advertised(Agent("usual", drive)), await advertised(everything())
    assert usual | declared <= set(rows)
    expected = yes(set(rows), usual) | dict.fromkeys(declared - usual, "by agent")
    assert rows == expected


def test_capabilities_of_the_client_are_as_the_page_says() -> None:
    information = {"requested_version", "client_name", "client_version"}
    known = {field.name for field in fields(ClientCapabilities)} - information
    assert set(CLIENT_FIELDS.values()) == known
    used = {name for name, field in CLIENT_FIELDS.items() if field in attributes()}
    assert table("Capabilities of the client") == yes(set(CLIENT_FIELDS), used)

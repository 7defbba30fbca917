"""The Agent Client Protocol over stdio, and the agents that answer prompts.

The names an author imports are loaded when they are asked for: a server answers `initialize`
before it needs most of them, and a tool that imports one room does not pay for the others.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from acp_server.agents.agent import Agent, agent
    from acp_server.agents.errors import PermissionDenied
    from acp_server.agents.turn import Turn

_HOMES = {
    "Agent": "acp_server.agents.agent",
    "agent": "acp_server.agents.agent",
    "PermissionDenied": "acp_server.agents.errors",
    "Turn": "acp_server.agents.turn",
}

__all__ = ["Agent", "PermissionDenied", "Turn", "agent"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(import_module(_HOMES[name]), name)

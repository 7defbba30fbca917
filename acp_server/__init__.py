"""The Agent Client Protocol over stdio, and the agents that answer prompts.

The names an author imports are loaded when they are asked for: a server answers `initialize`
before it needs most of them, and a tool that imports one package does not pay for the others.
"""

from importlib import import_module

# Not from `typing`: under `python -m` that would be looked for in the working directory first.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from acp_server.agents.agent import Agent, agent
    from acp_server.agents.commands import Command, CommandCall, CommandError
    from acp_server.agents.errors import RequestRefusedError
    from acp_server.agents.options import BooleanOption, Choice, SelectOption
    from acp_server.agents.sign_in import AuthMethod, SignIn
    from acp_server.agents.turn import Turn
    from acp_server.turns.errors import AuthRequiredError, PermissionDenied
    from acp_server.turns.policy import PromptView

_HOMES = {
    "Agent": "acp_server.agents.agent",
    "AuthMethod": "acp_server.agents.sign_in",
    "AuthRequiredError": "acp_server.turns.errors",
    "BooleanOption": "acp_server.agents.options",
    "Choice": "acp_server.agents.options",
    "Command": "acp_server.agents.commands",
    "CommandCall": "acp_server.agents.commands",
    "CommandError": "acp_server.agents.commands",
    "PermissionDenied": "acp_server.turns.errors",
    "PromptView": "acp_server.turns.policy",
    "RequestRefusedError": "acp_server.agents.errors",
    "SelectOption": "acp_server.agents.options",
    "SignIn": "acp_server.agents.sign_in",
    "Turn": "acp_server.agents.turn",
    "agent": "acp_server.agents.agent",
}

__all__ = [
    "Agent",
    "AuthMethod",
    "AuthRequiredError",
    "BooleanOption",
    "Choice",
    "Command",
    "CommandCall",
    "CommandError",
    "PermissionDenied",
    "PromptView",
    "RequestRefusedError",
    "SelectOption",
    "SignIn",
    "Turn",
    "agent",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(import_module(_HOMES[name]), name)

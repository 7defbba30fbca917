"""The slash commands that every agent has: help, title, fork, and compact where it can.

Rule: commands-leave-no-log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acp_server.agents.commands import Command, CommandCall, CommandError

if TYPE_CHECKING:
    from acp_server.agents.agent import Agent


def commands_of(agent: Agent) -> tuple[Command, ...]:
    """Return the agent's commands and those built-in ones that it does not replace."""
    own = {command.name for command in agent.commands}
    built_in = [_HELP, _TITLE, _FORK]
    if agent.summarize is not None:
        built_in.append(_COMPACT)
    return (*agent.commands, *(command for command in built_in if command.name not in own))


async def _help(call: CommandCall) -> str:
    lines = []
    for command in call.session.commands:
        use = f"/{command.name}" if command.hint is None else f"/{command.name} {command.hint}"
        lines.append(f"- `{use}`: {command.description}")
    return "\n".join(lines)


async def _title(call: CommandCall) -> str:
    title = " ".join(call.argument.split())
    if not title:
        raise CommandError("say what the session is to be called: /title NAME")
    await call.session.set_title(title)
    return f"This session is now called {title!r}."


async def _fork(call: CommandCall) -> str:
    child = await call.session.fork()
    return f"Forked to session {child}. Open it from the list of sessions."


async def _compact(call: CommandCall) -> str:
    count = await call.session.compact()
    return f"{count} messages of the model's history are now one summary."


_HELP: Final = Command("help", "List the commands", _help)
_TITLE: Final = Command("title", "Name this session", _title, hint="NAME")
_FORK: Final = Command("fork", "Copy this session into a new one", _fork)
_COMPACT: Final = Command("compact", "Shorten the model's history to a summary", _compact)

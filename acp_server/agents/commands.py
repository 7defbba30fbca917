"""Slash commands: what a user tells the server instead of the model (commands-leave-no-log).

A command's output is shown and never stored; what it does to the session is.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from acp_server.turns.settings import SessionSettings

_LINE: Final = re.compile(r"/([a-z][a-z0-9-]*)(?: |\Z)")
"""Not `/usr/bin/x fails`: a path goes to the agent."""


class CommandError(Exception):
    """A command cannot do what it was asked for; the user reads the message behind `Error: `."""


class CommandSession(Protocol):
    """The session in which a command runs, as a command may use it."""

    @property
    def id(self) -> str:
        """The session's id."""

    @property
    def cwd(self) -> str | None:
        """Its working directory."""

    @property
    def settings(self) -> SessionSettings:
        """What is set in it."""

    @property
    def commands(self) -> Sequence[Command]:
        """Its commands, in the order in which the client lists them."""

    async def set_title(self, title: str) -> None:
        """Name the session; durable on return."""

    async def fork(self) -> str:
        """Make a session with the same history and return its id; it is stored and not open.

        Raises:
            CommandError: There is no history yet, or the store failed.
        """

    async def compact(self) -> int:
        """Put a summary in the place of the model's history; return how many messages it replaces.

        Raises:
            CommandError: There is nothing to compact, or the summary failed.
        """

    def add_context(
        self, content: str, source: Mapping[str, Any] | None = None, envelope: str = "context"
    ) -> None:
        """Tell the model something that the user did not say (commands-leave-no-log)."""


@dataclass(frozen=True, slots=True)
class CommandCall:
    """One use of a command.

    Attributes:
        argument: What stands behind the name, stripped.
        session: The session it is about.
    """

    argument: str
    session: CommandSession


RunCommand = Callable[[CommandCall], Awaitable["str | None"]]
"""Does the command; what it returns is shown. `CommandError` is an expected failure."""


@dataclass(frozen=True, slots=True)
class Command:
    """A slash command.

    Attributes:
        name: Small letters, digits and `-`, without the slash.
        description: One line for the client's list.
        run: Does it.
        hint: What to type behind the name, for a command that takes something.

    Raises:
        ValueError: No prompt could ever call it by this name.
    """

    name: str
    description: str
    run: RunCommand
    hint: str | None = None

    def __post_init__(self) -> None:
        if not _LINE.fullmatch(f"/{self.name}"):
            raise ValueError(f"{self.name!r} is not a name for a command")


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A prompt that is a command: its name and the rest."""

    name: str
    argument: str
    text: str


def command_line_from(blocks: Iterable[Mapping[str, Any]]) -> CommandLine | None:
    """Return the command that a prompt's first text calls, known or not, or None.

    Rule: commands-leave-no-log.
    """
    text = next((block["text"] for block in blocks if block["type"] == "text"), "")
    found = _LINE.match(text)
    if found is None:
        return None
    return CommandLine(found[1], text[found.end() :].strip(), text.strip())

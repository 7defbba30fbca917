"""Tools of the model loop: small, on the same handle that authors use."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from acp_server.turns.arguments import parse_arguments
from acp_server.turns.errors import ToolArgumentsError

if TYPE_CHECKING:
    from acp_server.agents.tool_call import ToolCall
    from acp_server.agents.turn import Turn

_log = logging.getLogger(__name__)

Arguments = Mapping[str, Any]
Body = Callable[["Turn", "ToolCall", Arguments], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that a model may call.

    Attributes:
        name: What the model calls it.
        description: For the model.
        properties: JSON-schema properties of the arguments; all of them are required.
        body: Runs the call; sets its result through `call.result`.
        title: Title of the card for given arguments.
        kind: ACP tool kind of the card.
        ask: Whether the user is asked first.
        grant: What the answers "always" cover, for given arguments; the whole tool by default.
        path: The argument that names the file which the tool touches; outside the session's
            folders the user is asked (presets-end-at-the-roots).
    """

    name: str
    description: str
    body: Body
    properties: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    title: Callable[[Arguments], str] | None = None
    kind: str = "other"
    ask: bool = False
    grant: Callable[[Arguments], str] | None = None
    path: str | None = None

    def title_of(self, arguments: Arguments | None) -> str:
        """Return the card's title; the tool's name if the arguments do not allow more."""
        if self.title is None or arguments is None:
            return self.name
        try:
            return self.title(arguments) or self.name
        except Exception:  # noqa: BLE001 - boundary: what a model sends must not end the turn
            _log.warning("the title of tool %s failed", self.name, exc_info=True)
            return self.name

    def grant_of(self, arguments: Arguments | None) -> str | None:
        """Return the key of a standing permission; None if the arguments allow none.

        Rule: grants-cover-their-key-only.
        """
        if self.grant is None or arguments is None:
            return None if arguments is None else self.name
        try:
            return self.grant(arguments)
        except Exception:  # noqa: BLE001 - as above
            _log.warning("the grant of tool %s failed", self.name, exc_info=True)
            return None

    def path_of(self, arguments: Arguments | None) -> str | None:
        """Return the path in the arguments, if the tool takes one and they have it."""
        if self.path is None or arguments is None:
            return None
        path = arguments.get(self.path)
        return path if isinstance(path, str) else None

    def schema(self) -> dict[str, Any]:
        """Return the tool as a request header names it (request-header-is-canonical)."""
        parameters = {
            "type": "object",
            "properties": dict(self.properties),
            "required": list(self.properties),
        }
        return {"name": self.name, "description": self.description, "parameters": parameters}

    def arguments_from(self, text: str) -> Arguments:
        """Return the arguments in a text that a model has written, if they fit.

        Raises:
            ToolArgumentsError: They are not a lossless JSON object, lack a property, or have one of
                another type.
        """
        try:
            arguments = parse_arguments(text)
            for name, schema in self.properties.items():
                if name not in arguments:
                    message = f"missing argument {name!r}"
                    raise ToolArgumentsError(message)
                if schema.get("type") == "string" and not isinstance(arguments[name], str):
                    message = f"argument {name!r} must be a string"
                    raise ToolArgumentsError(message)
        except ToolArgumentsError as error:
            message = f"{self.name}: {error}"
            raise ToolArgumentsError(message) from None
        return arguments


async def _read(turn: Turn, call: ToolCall, arguments: Arguments) -> None:
    call.update(locations=[arguments["path"]])
    call.result(await turn.files.read(arguments["path"]))


async def _write(turn: Turn, call: ToolCall, arguments: Arguments) -> None:
    path, content = arguments["path"], arguments["content"]
    try:
        old: str | None = await turn.files.read(path)
    except FileNotFoundError:
        old = None
    call.diff(path, old, content)
    await turn.files.write(path, content)
    call.result(f"Wrote {path}")


async def _todo(turn: Turn, call: ToolCall, arguments: Arguments) -> None:
    items = arguments["todos"]
    if not isinstance(items, list) or not all(_is_todo(item) for item in items):
        message = "todo_write: todos must be a list of {content, status}"
        raise ToolArgumentsError(message)
    await turn.todos([(item["content"], item["status"]) for item in items])
    call.result("Updated the todo list")


def _is_todo(item: object) -> bool:
    return (
        isinstance(item, dict)
        and isinstance(item.get("content"), str)
        and item.get("status") in ("pending", "in_progress", "completed")
    )


_STRING = {"type": "string"}

READ = Tool(
    "read",
    "Read a text file of the workspace.",
    _read,
    {"path": _STRING},
    title=lambda arguments: f"Read {arguments.get('path', '')}",
    kind="read",
    path="path",
)
WRITE = Tool(
    "write",
    "Replace a text file of the workspace; the user is asked first.",
    _write,
    {"path": _STRING, "content": _STRING},
    title=lambda arguments: f"Write {arguments.get('path', '')}",
    kind="edit",
    ask=True,
    path="path",
)
TODO_WRITE = Tool(
    "todo_write",
    "Replace the todo list. Each item has content and status.",
    _todo,
    {"todos": {"type": "array"}},
    title=lambda _arguments: "Update todo list",
)

WORKSPACE_TOOLS = (READ, WRITE, TODO_WRITE)
"""What a scripted model may call."""

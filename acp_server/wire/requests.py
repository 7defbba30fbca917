"""Params of the requests and notifications a client sends, `initialize` excepted (`handshake`).

`cwd` and `additionalDirectories` are checked to be absolute here, so that every method refuses a
relative one alike (B25, any-absolute-cwd-is-taken, list-rows-fold-the-log). `mcpServers` may be
missing or null although the schema of session/new asks for it: clients leave it out, and the
meaning is plain (B14).
"""

from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, StrictBool, StrictStr

from acp_server.wire.content import ContentBlock
from acp_server.wire.errors import WireError
from acp_server.wire.model import AbsolutePath, WireModel, parse


class EnvVariable(WireModel):
    """One environment variable of an MCP server."""

    name: StrictStr
    value: StrictStr


class HttpHeader(WireModel):
    """One header for an MCP server."""

    name: StrictStr
    value: StrictStr


class StdioServer(WireModel):
    """An MCP server to be started as a subprocess."""

    name: StrictStr
    command: StrictStr
    args: tuple[StrictStr, ...] = ()
    env: tuple[EnvVariable, ...] = ()


class HttpServer(WireModel):
    """An MCP server behind a URL: streamable HTTP, or the deprecated SSE."""

    type: Literal["http", "sse"]
    name: StrictStr
    url: StrictStr
    headers: tuple[HttpHeader, ...] = ()


class UnreadableServer(WireModel):
    """An entry that is no MCP server of ACP v1.

    The session opens without it, as it does without a server that fails to start (B14, B26).

    Attributes:
        name: Its name, or "" if it has none.
        detail: One sentence that names the fault.
    """

    name: str
    detail: str


McpServer: TypeAlias = StdioServer | HttpServer | UnreadableServer


def _read_server(value: object) -> McpServer:
    if not isinstance(value, dict):
        return UnreadableServer(name="", detail="an MCP server must be an object")
    # The schema falls through to stdio for every other `type`, `"stdio"` and none included.
    remote = value.get("type") in ("http", "sse")
    try:
        return parse(HttpServer, value) if remote else parse(StdioServer, value)
    except WireError as error:
        name = value.get("name")
        return UnreadableServer(name=name if isinstance(name, str) else "", detail=error.detail)


McpServers = tuple[Annotated[McpServer, BeforeValidator(_read_server)], ...]


class NewSessionParams(WireModel):
    """`session/new`."""

    cwd: AbsolutePath
    mcp_servers: McpServers = ()
    additional_directories: tuple[AbsolutePath, ...] = ()


class LoadSessionParams(NewSessionParams):
    """`session/load` and `session/resume`."""

    session_id: StrictStr


class ListSessionsParams(WireModel):
    """`session/list`."""

    cwd: AbsolutePath | None = None
    cursor: StrictStr | None = None


class SessionParams(WireModel):
    """A request that names a session and nothing else."""

    session_id: StrictStr


class DeleteSessionParams(SessionParams):
    """`session/delete`."""


class CloseSessionParams(SessionParams):
    """`session/close`."""


class CancelParams(SessionParams):
    """The notification `session/cancel`."""


class SetModeParams(SessionParams):
    """`session/set_mode`."""

    mode_id: StrictStr


def _read_value(value: object) -> bool | str:
    if not isinstance(value, bool | str):
        msg = "must be a string, true or false"
        raise ValueError(msg)  # noqa: TRY004 - pydantic turns only ValueError into its own error
    return value


class SetConfigOptionParams(SessionParams):
    """`session/set_config_option`; the option itself says whether its value is a bool or an id."""

    config_id: StrictStr
    value: Annotated[StrictBool | StrictStr, BeforeValidator(_read_value)]


class PromptParams(SessionParams):
    """`session/prompt`."""

    prompt: tuple[ContentBlock, ...]


class AuthenticateParams(WireModel):
    """`authenticate`."""

    method_id: StrictStr


class LogoutParams(WireModel):
    """`logout`."""

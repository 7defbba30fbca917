"""What went wrong while a session was opened, without keeping it from being opened.

Rule: warnings-stand-in-meta.

Each is one WARNING in the log, stands in the response's `_meta`, and is a `notice` for clients that
take notices. It is never a message of the agent.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from acp_server.bridge.capabilities import DISTRIBUTION
from acp_server.wire.requests import UnreadableServer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from acp_server.wire.requests import McpServer
    from persistence.opened import OpenedSession
    from session_core import Violation

_log = logging.getLogger(__name__)

_LOGGED_BELOW = ("log-repaired", "log-out-of-order")
"""Codes of what the store has logged."""


class OpeningWarning(NamedTuple):
    """One thing that the client should know.

    Attributes:
        code: For programs: `mcp-server-not-started`, `log-repaired`, `log-out-of-order` or
            `session-in-use`.
        message: One sentence for people.
        server: Name of the MCP server it is about.
    """

    code: str
    message: str
    server: str | None = None


def warnings_from_servers(servers: Iterable[McpServer]) -> list[OpeningWarning]:
    """Return a warning for each MCP server: none is started, since no agent here uses them."""
    found: dict[str, OpeningWarning] = {}
    for server in servers:
        name = server.name
        reason = "this agent does not use MCP servers"
        if isinstance(server, UnreadableServer):
            reason = f"its description is wrong: {server.detail}"
        message = f"MCP server {name!r} was not started: {reason}"
        # Two entries of one name are one server to a person who reads this.
        found.setdefault(name, OpeningWarning("mcp-server-not-started", message, name or None))
    return list(found.values())


def warnings_from_opening(opened: OpenedSession) -> list[OpeningWarning]:
    """Return a warning if a stored log had to be put right (B51), or somebody else has it.

    Rule: looking-takes-no-lock.
    """
    if opened.locked is not None:
        message = f"{opened.locked}; a prompt has to wait until that process is done"
        return [OpeningWarning("session-in-use", message)]
    if opened.repaired is None:
        return []
    message = "The session's log had been cut off; what was complete is kept"
    return [OpeningWarning("log-repaired", message)]


def warnings_from_order(violations: Sequence[Violation]) -> list[OpeningWarning]:
    """Return a warning if the stored log breaks the order of turns, steps and calls.

    Rule: stored-payloads-are-checked-for-use.
    """
    if not violations:
        return []
    more = f", and {len(violations) - 1} more" if len(violations) > 1 else ""
    message = f"The session's log is out of order: {violations[0]}{more}"
    return [OpeningWarning("log-out-of-order", message)]


def meta_from_warnings(warnings: Sequence[OpeningWarning]) -> dict[str, Any] | None:
    """Return the `_meta` that says it, or None when there is nothing to say."""
    if not warnings:
        return None
    shown = [
        {key: value for key, value in warning._asdict().items() if value is not None}
        for warning in warnings
    ]
    return {DISTRIBUTION: {"warnings": shown}}


def log_warnings(session_id: str, warnings: Iterable[OpeningWarning]) -> None:
    """Log what nobody below has logged yet."""
    for warning in warnings:
        if warning.code not in _LOGGED_BELOW:
            _log.warning("session %s: %s", session_id, warning.message)

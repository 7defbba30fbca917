"""The client of one session, as its turns see it: each method behind its capability.

Rules: unoffered-answers-are-refusals, cancel-withdraws-client-requests.

Every wait ends with the turn's cancel: the peer then sends `$/cancel_request` and ignores a late
answer.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final, TypeVar

from acp_server.rpc.errors import ConnectionClosedError, PeerError, RemoteError
from acp_server.turns.ports import TerminalExit, TerminalOutput
from acp_server.wire import client_requests, updates
from acp_server.wire.client_results import (
    CreateTerminalResult,
    ElicitationResult,
    EmptyResult,
    ExitStatus,
    ReadTextFileResult,
    RequestPermissionResult,
    TerminalOutputResult,
    WaitForExitResult,
)
from acp_server.wire.errors import WireError
from acp_server.wire.model import parse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from acp_server.bridge.cards import ToolCards
    from acp_server.rpc.peer import Peer
    from acp_server.turns.ports import GrantScope, NoticeSeverity, PermissionOutcome
    from acp_server.wire.handshake import ClientCapabilities
    from acp_server.wire.model import WireModel
    from acp_server.wire.shapes import JsonObject

    AnswerT = TypeVar("AnswerT", bound=WireModel)

CLIENT_TIMEOUT_S = 60.0
"""How long a file or terminal call may take. Some clients never answer what they do not know. What
a person answers, and a command's end, has no limit: it ends with the turn's cancel."""

_MAX_LABEL = 80
_OUTCOMES: Final[Mapping[str, PermissionOutcome]] = {
    "allow-once": "allowed-once",
    "allow-always": "allowed-always",
    "reject-once": "rejected",
    "reject-always": "rejected-always",
}
_NOT_FOUND_CODE: Final = -32002
_NOT_FOUND_TEXT: Final = re.compile(
    r"ENOENT|no such file|file not found|file does not exist|NoSuchFile|os error 2\b", re.IGNORECASE
)
"""How clients say that a file is not there if they have no code for it: what their runtimes call it
(Node, libc and Python, JVM, Rust), in the message or in `data`."""

_CARD_FIELDS = ("title", "kind", "content", "locations", "rawInput")


class SessionClient:
    """Asks the client on behalf of one session.

    Args:
        peer: The connection.
        session_id: The session.
        capabilities: What the client offers.
        cards: The session's live cards: a question shows the card it is about.
        timeout_s: Limit of file and terminal calls.
    """

    def __init__(
        self,
        peer: Peer,
        session_id: str,
        capabilities: ClientCapabilities,
        cards: ToolCards,
        *,
        timeout_s: float = CLIENT_TIMEOUT_S,
    ) -> None:
        self._peer = peer
        self._session_id = session_id
        self._capabilities = capabilities
        self._cards = cards
        self._timeout_s = timeout_s

    @property
    def can_read_files(self) -> bool:
        """Whether the client offers `fs/read_text_file`."""
        return self._capabilities.fs_read

    @property
    def can_write_files(self) -> bool:
        """Whether the client offers `fs/write_text_file`."""
        return self._capabilities.fs_write

    @property
    def can_use_terminals(self) -> bool:
        """Whether the client offers `terminal/*`."""
        return self._capabilities.terminal

    @property
    def can_elicit_forms(self) -> bool:
        """Whether the client offers `elicitation/create` of mode `form`."""
        return self._capabilities.elicitation_form

    @property
    def can_elicit_urls(self) -> bool:
        """Whether the client offers `elicitation/create` of mode `url`."""
        return self._capabilities.elicitation_url

    # -- permissions ------------------------------------------------------------------------

    async def request_permission(
        self, call_id: str, grant: GrantScope | None = None
    ) -> PermissionOutcome:
        """Ask about a call; an option that was not offered counts as a refusal.

        Rule: unoffered-answers-are-refusals.
        """
        card = self._cards.card(call_id)
        if card is None:
            # A call of another agent, or none at all: the client knows nothing to decide about.
            return "unavailable"
        shown = {name: card.fields[name] for name in _CARD_FIELDS if name in card.fields}
        options = _options(grant)
        params = client_requests.request_permission_params(
            self._session_id,
            {"toolCallId": call_id, **shown, "status": "pending"},
            options,
        )
        try:
            result = await self._peer.request("session/request_permission", params)
            outcome = parse(RequestPermissionResult, result).outcome
        except (PeerError, WireError):
            # Nobody can answer: fail closed.
            return "unavailable"
        if outcome.outcome == "cancelled":
            return "cancelled"
        offered = any(option["optionId"] == outcome.option_id for option in options)
        return _OUTCOMES[outcome.option_id] if offered else "rejected"

    # -- files ------------------------------------------------------------------------------

    async def read_text_file(
        self, path: str, *, line: int | None = None, limit: int | None = None
    ) -> str:
        """Read a file as the editor shows it.

        Raises:
            FileNotFoundError: The client says that there is no such file.
            OSError: The client refused, answered nonsense, or did not answer in time.
        """
        params = client_requests.read_text_file_params(
            self._session_id, path, line=line, limit=limit
        )
        return (await self._ask_file("fs/read_text_file", params, ReadTextFileResult)).content

    async def write_text_file(self, path: str, content: str) -> None:
        """Write a file through the editor.

        Raises:
            OSError: The client refused, or did not answer in time.
        """
        params = client_requests.write_text_file_params(self._session_id, path, content)
        await self._ask_file("fs/write_text_file", params, EmptyResult)

    async def _ask_file(self, method: str, params: JsonObject, answer: type[AnswerT]) -> AnswerT:
        try:
            return await self._ask(method, params, answer)
        except OSError as error:
            if isinstance(error.__cause__, RemoteError) and _is_not_found(error.__cause__):
                raise FileNotFoundError(str(error)) from error.__cause__
            raise

    # -- terminals --------------------------------------------------------------------------

    async def create_terminal(
        self,
        command: str,
        *,
        args: Sequence[str],
        env: Mapping[str, str],
        cwd: str | None,
        output_byte_limit: int,
    ) -> str:
        """Start a command and return the id of its terminal.

        Raises:
            OSError: The client refused, answered nonsense, or did not answer in time.
        """
        params = client_requests.create_terminal_params(
            self._session_id,
            command,
            args=args,
            env=env,
            cwd=cwd,
            output_byte_limit=output_byte_limit,
        )
        return (await self._ask("terminal/create", params, CreateTerminalResult)).terminal_id

    async def terminal_output(self, terminal_id: str) -> TerminalOutput:
        """Return what the terminal has shown so far.

        Raises:
            OSError: The client refused, answered nonsense, or did not answer in time.
        """
        params = client_requests.terminal_params(self._session_id, terminal_id)
        shown = await self._ask("terminal/output", params, TerminalOutputResult)
        ended = None if shown.exit_status is None else _exit(shown.exit_status)
        return TerminalOutput(shown.output, ended)

    async def wait_for_terminal_exit(self, terminal_id: str) -> TerminalExit:
        """Wait until the command has ended; there is no limit.

        Raises:
            OSError: The client refused or answered nonsense.
        """
        params = client_requests.terminal_params(self._session_id, terminal_id)
        method = "terminal/wait_for_exit"
        return _exit(await self._ask(method, params, WaitForExitResult, timeout_s=math.inf))

    async def kill_terminal(self, terminal_id: str) -> None:
        """End the command; the terminal stays.

        Raises:
            OSError: The client refused, or did not answer in time.
        """
        params = client_requests.terminal_params(self._session_id, terminal_id)
        await self._ask("terminal/kill", params, EmptyResult)

    async def release_terminal(self, terminal_id: str) -> None:
        """Give the terminal up.

        Raises:
            OSError: The client refused, or did not answer in time.
        """
        params = client_requests.terminal_params(self._session_id, terminal_id)
        await self._ask("terminal/release", params, EmptyResult)

    # -- elicitation ------------------------------------------------------------------------

    async def elicit_form(self, message: str, schema: Mapping[str, Any]) -> dict[str, Any] | None:
        """Ask the user to fill in a form; None when the user declines or nobody can answer."""
        answer = await self._elicit(
            client_requests.elicitation_form_params(self._session_id, message, dict(schema))
        )
        if answer is None or answer.action != "accept":
            return None
        return answer.content or {}

    async def elicit_url(self, message: str, url: str, elicitation_id: str) -> bool:
        """Ask the user to visit a page; whether the user agreed."""
        answer = await self._elicit(
            client_requests.elicitation_url_params(self._session_id, message, url, elicitation_id)
        )
        return answer is not None and answer.action == "accept"

    def complete_elicitation(self, elicitation_id: str) -> None:
        """Say that what a page was visited for is done."""
        params = client_requests.elicitation_complete_params(elicitation_id)
        self._peer.notify("elicitation/complete", params)

    # -- the rest ---------------------------------------------------------------------------

    def notice(self, severity: NoticeSeverity, title: str, description: str | None) -> None:
        """Show a notice, if the client takes notices."""
        if self._capabilities.notices:
            update = updates.notice(severity, title, description)
            params = updates.session_update(self._session_id, update)
            self._peer.notify("session/update", params)

    async def _elicit(self, params: JsonObject) -> ElicitationResult | None:
        try:
            return await self._ask(
                "elicitation/create", params, ElicitationResult, timeout_s=math.inf
            )
        except (OSError, ConnectionClosedError):
            return None

    async def _ask(
        self,
        method: str,
        params: JsonObject,
        answer: type[AnswerT],
        *,
        timeout_s: float | None = None,
    ) -> AnswerT:
        limit = self._timeout_s if timeout_s is None else timeout_s
        try:
            return parse(answer, await self._peer.request(method, params, timeout_s=limit))
        except RemoteError as error:
            message = f"{method}: {error.message}"
            raise OSError(message) from error
        except ConnectionClosedError:
            raise
        except (PeerError, WireError) as error:
            message = f"{method}: {error}"
            raise OSError(message) from error


def _options(grant: GrantScope | None) -> list[JsonObject]:
    """Return what the user can choose; `always` only where it is known what that covers.

    Rule: question-shows-its-card.
    """
    if grant is None:
        return [
            client_requests.permission_option("allow-once", "Allow once", "allow_once"),
            client_requests.permission_option("reject-once", "Reject", "reject_once"),
        ]
    scope = _label(grant)
    return [
        client_requests.permission_option("allow-once", "Allow once", "allow_once"),
        client_requests.permission_option("allow-always", f"Always allow {scope}", "allow_always"),
        client_requests.permission_option("reject-once", "Reject", "reject_once"),
        client_requests.permission_option(
            "reject-always", f"Always reject {scope}", "reject_always"
        ),
    ]


def _label(grant: GrantScope) -> str:
    """Return what a grant covers, in words that a button has room for."""
    if grant.key == grant.tool_name:
        return f"all calls of {grant.tool_name} in this session"
    command = " ".join(grant.key.split())
    if len(command) > _MAX_LABEL:
        command = f"{command[:_MAX_LABEL]}…"
    return f"exactly `{command}` in this session"


def _is_not_found(error: RemoteError) -> bool:
    told = f"{error.message} {error.data or ''}"
    return error.code == _NOT_FOUND_CODE or _NOT_FOUND_TEXT.search(told) is not None


def _exit(status: ExitStatus) -> TerminalExit:
    return TerminalExit(status.exit_code, status.signal)

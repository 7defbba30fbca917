"""The client of one session, as its turns see it: permissions and files over ACP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from acp_server.rpc.errors import ConnectionClosedError, PeerError, RemoteError
from acp_server.wire import asks, updates
from acp_server.wire.answers import EmptyAnswer, ReadTextFileAnswer, RequestPermissionAnswer
from acp_server.wire.errors import WireError
from acp_server.wire.model import parse

if TYPE_CHECKING:
    from acp_server.agents.ports import PermissionOutcome
    from acp_server.bridge.cards import ToolCards
    from acp_server.rpc.peer import Peer
    from acp_server.wire.handshake import ClientCapabilities
    from acp_server.wire.model import WireModel

    AnswerT = TypeVar("AnswerT", bound=WireModel)

CLIENT_TIMEOUT_S = 60.0
"""How long a file call may take. Some clients never answer what they do not know; a permission has
no limit, since a person answers it, and ends with the turn's cancel."""

_ALLOW = "allow-once"
_REJECT = "reject-once"
_CARD_FIELDS = ("title", "kind", "content", "locations", "rawInput")


class SessionClient:
    """Asks the client on behalf of one session.

    Args:
        peer: The connection.
        session_id: The session.
        capabilities: What the client offers.
        cards: The session's live cards: a question shows the card it is about.
    """

    def __init__(
        self,
        peer: Peer,
        session_id: str,
        capabilities: ClientCapabilities,
        cards: ToolCards,
    ) -> None:
        self._peer = peer
        self._session_id = session_id
        self._capabilities = capabilities
        self._cards = cards

    @property
    def can_read_files(self) -> bool:
        """Whether the client offers `fs/read_text_file`."""
        return self._capabilities.fs_read

    @property
    def can_write_files(self) -> bool:
        """Whether the client offers `fs/write_text_file`."""
        return self._capabilities.fs_write

    async def request_permission(self, call_id: str) -> PermissionOutcome:
        """Ask about a call; an option that was not offered counts as a refusal (contract 6.7)."""
        card = self._cards.card(call_id)
        shown = (
            {} if card is None else {k: card.fields[k] for k in _CARD_FIELDS if k in card.fields}
        )
        params = asks.request_permission_params(
            self._session_id,
            {**updates.tool_call_fields(call_id), **shown, "status": "pending"},
            [
                asks.permission_option(_ALLOW, "Allow once", "allow_once"),
                asks.permission_option(_REJECT, "Reject", "reject_once"),
            ],
        )
        try:
            result = await self._peer.request("session/request_permission", params)
            outcome = parse(RequestPermissionAnswer, result).outcome
        except (PeerError, WireError):
            # Nobody can answer: fail closed.
            return "unavailable"
        if outcome.outcome == "cancelled":
            return "cancelled"
        return "allowed-once" if outcome.option_id == _ALLOW else "rejected"

    async def read_text_file(self, path: str) -> str:
        """Read a file as the editor shows it.

        Raises:
            OSError: The client refused or answered nonsense.
        """
        params = asks.read_text_file_params(self._session_id, path)
        return (await self._ask("fs/read_text_file", params, ReadTextFileAnswer)).content

    async def write_text_file(self, path: str, content: str) -> None:
        """Write a file through the editor.

        Raises:
            OSError: The client refused.
        """
        params = asks.write_text_file_params(self._session_id, path, content)
        await self._ask("fs/write_text_file", params, EmptyAnswer)

    async def _ask(self, method: str, params: dict[str, Any], answer: type[AnswerT]) -> AnswerT:
        try:
            result = await self._peer.request(method, params, timeout_s=CLIENT_TIMEOUT_S)
            return parse(answer, result)
        except RemoteError as error:
            message = f"{method}: {error.message}"
            raise OSError(message) from error
        except ConnectionClosedError:
            raise
        except (PeerError, WireError) as error:
            message = f"{method}: {error}"
            raise OSError(message) from error

"""Asking the user for more than yes or no: a form, or a page to visit."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from acp_server.turns.ports import ClientPort


class UrlVisit:
    """The user has agreed to visit a page; see `Turn.elicit_url`."""

    def __init__(self, client: ClientPort, elicitation_id: str) -> None:
        self._client = client
        self._elicitation_id = elicitation_id
        self._done = False

    def complete(self) -> None:
        """Tell the client that what the page was visited for is done; the first call counts."""
        if not self._done:
            self._done = True
            self._client.complete_elicitation(self._elicitation_id)

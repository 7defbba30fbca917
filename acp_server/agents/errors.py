"""Errors that an agent raises, or meets, beside those of its turn."""

from __future__ import annotations

from acp_server.turns.errors import AgentsError


class RequestRefusedError(AgentsError):
    """An agent's own handler does not accept a request.

    Attributes:
        detail: One sentence, which the client is told.
    """

    def __init__(self, detail: str) -> None:
        self.detail = detail
        super().__init__(detail)


class NotOfferedError(AgentsError):
    """The client has not offered what is asked of it; it was not called.

    Attributes:
        what: The capability that it lacks.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"the client offers no {what}")

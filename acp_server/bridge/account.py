"""Whether the user of this connection is signed in, for agents that ask for it.

Rule: declared-sign-in-guards-sessions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acp_server.agents.errors import RequestRefusedError
from acp_server.bridge.params import parse_params
from acp_server.rpc.errors import RpcError
from acp_server.wire import requests

if TYPE_CHECKING:
    from acp_server.agents.sign_in import SignIn
    from acp_server.rpc.table import Handler, Params, RequestContext


class Account:
    """The sign-in state of one connection.

    Args:
        declared: What the agent declares; None for one that serves everybody.
    """

    def __init__(self, declared: SignIn | None) -> None:
        self._declared = declared
        self._signed_in = False

    def require(self) -> None:
        """Return if the user may go on.

        Raises:
            RpcError: They must sign in first: -32000.
        """
        if self._declared is None:
            return
        asked = self._declared.is_signed_in
        if not (self._signed_in if asked is None else asked()):
            raise RpcError.auth_required()

    def methods(self) -> dict[str, Handler]:
        """Return the handlers by method name: `logout` only where there is a way to sign in."""
        table: dict[str, Handler] = {"authenticate": self.authenticate}
        if self._declared is not None:
            table["logout"] = self.logout
        return table

    async def authenticate(self, _context: RequestContext, params: Params) -> dict[str, Any]:
        """`authenticate`: without declared methods any id is fine; some clients send one unasked.

        Raises:
            RpcError: There is no such method, or the agent does not let the user in.
        """
        method_id = parse_params(requests.AuthenticateParams, params).method_id
        if self._declared is None:
            return {}
        if method_id not in [method.id for method in self._declared.methods]:
            raise RpcError.invalid_params(f"methodId: there is no auth method {method_id!r}")
        try:
            await self._declared.sign_in(method_id)
        except RequestRefusedError as error:
            raise RpcError.invalid_params(error.detail) from error
        self._signed_in = True
        return {}

    async def logout(self, _context: RequestContext, params: Params) -> dict[str, Any]:
        """`logout`: open sessions stay open and take no prompt until the next sign-in.

        Raises:
            RpcError: The agent cannot sign the user out.
        """
        parse_params(requests.LogoutParams, params)
        self._signed_in = False
        try:
            if self._declared is not None and self._declared.sign_out is not None:
                await self._declared.sign_out()
        except RequestRefusedError as error:
            raise RpcError.invalid_params(error.detail) from error
        return {}

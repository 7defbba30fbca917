"""Whether the user of this connection is signed in, for agents that ask for it (Z27)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acp_server.rpc.errors import RpcError

if TYPE_CHECKING:
    from acp_server.agents.sign_in import SignIn


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

    async def sign_in(self, method_id: str) -> None:
        """Sign in; without declared methods any id is fine, since some clients send one unasked.

        Raises:
            RpcError: There is no such method.
            RequestRefusedError: The agent does not let the user in.
        """
        if self._declared is None:
            return
        if method_id not in [method.id for method in self._declared.methods]:
            raise RpcError.invalid_params(f"methodId: there is no auth method {method_id!r}")
        await self._declared.sign_in(method_id)
        self._signed_in = True

    async def sign_out(self) -> None:
        """Sign out; open sessions stay open and take no prompt until the next sign-in.

        Raises:
            RequestRefusedError: The agent cannot sign the user out.
        """
        self._signed_in = False
        if self._declared is not None and self._declared.sign_out is not None:
            await self._declared.sign_out()

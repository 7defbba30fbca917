"""What this server says of itself in `initialize`: only what it serves. Light to import.

Rule: capabilities-are-truthful.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acp_server.rpc.errors import RpcError
from acp_server.version import __version__
from acp_server.wire import results
from acp_server.wire.errors import WireError
from acp_server.wire.handshake import ClientCapabilities, read_initialize

if TYPE_CHECKING:
    from collections.abc import Mapping

    from acp_server.agents.agent import Agent

DISTRIBUTION = "acp-session-server"


class Handshake:
    """Answers `initialize`, any number of times, and remembers what the client can do.

    Attributes:
        client: The capabilities of the last `initialize`; sessions take them when they are opened.
    """

    def __init__(self, agent: Agent) -> None:
        self.client = ClientCapabilities()
        self._result = results.initialize_result(
            agent_info=results.implementation(DISTRIBUTION, __version__),
            agent_capabilities=results.agent_capabilities(
                load_session=True,
                session=("list", "resume", "close", "delete", "additionalDirectories"),
                image=agent.takes_images,
                audio=agent.takes_audio,
                embedded_context=agent.takes_resources,
                logout=agent.sign_in is not None,
            ),
            auth_methods=[
                results.auth_method(method.id, method.name, method.description)
                for method in (agent.sign_in.methods if agent.sign_in is not None else ())
            ],
        )

    def __call__(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result of `initialize`.

        Raises:
            RpcError: The protocol version is no version.
        """
        try:
            self.client = read_initialize(params)
        except WireError as error:
            raise RpcError.invalid_params(str(error)) from error
        return self._result

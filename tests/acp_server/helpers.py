"""What tests of the server share: an agent that echoes, refused requests, what is stored."""

from collections.abc import Mapping
from typing import Any

import pytest

from acp_server import Agent, Turn
from acp_server.testing import AcpClient, AcpError
from persistence import SessionRepository, StorageBackend
from session_core import Event, SessionStore


async def echo(turn: Turn) -> None:
    await turn.text(turn.prompt)


ECHO = Agent("echo", echo)


async def refused(
    client: AcpClient, method: str, params: Mapping[str, Any] | None = None
) -> AcpError:
    """Send a request that must be refused and return the error."""
    with pytest.raises(AcpError) as caught:
        await client.request(method, params)
    return caught.value


async def refused_code(
    client: AcpClient, method: str, params: Mapping[str, Any] | None = None
) -> int:
    """Send a request that must be refused and return the error's code."""
    return (await refused(client, method, params)).code


async def stored_events(backend: StorageBackend, session_id: str) -> list[Event]:
    """Return the stored events of a session, read as another process would."""
    async with SessionRepository(backend, SessionStore()) as persistence:
        return list((await persistence.inspect(session_id)).log.view())

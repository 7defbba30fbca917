"""Our server in the process of the test: the real composition root over a memory transport."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio

from acp_server.app import Server, ServerConfig
from acp_server.testing.client.acp_client import AcpClient
from acp_server.testing.client.sources import CountedIds, clock_of_series
from acp_server.transport.memory import memory_transport_pair

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from acp_server.agents.agent import Agent
    from persistence import StorageBackend


@asynccontextmanager
async def running_server(
    agent: Agent,
    *,
    store: str | StorageBackend = "memory:",
    series: int = 0,
    capabilities: dict[str, Any] | None = None,
    cancel_grace_s: float = 3.0,
    **options: Any,
) -> AsyncIterator[AcpClient]:
    """Run a server on a memory transport and yield an initialized client of it.

    Leaving the block ends the client's input, waits for the server's orderly end and raises what
    the frame checker found.

    Args:
        agent: Answers the prompts.
        store: As for `ServerConfig`; an open backend outlives the server, for a second one.
        series: Keeps the ids of several servers on one store apart.
        capabilities: What the client says it can do.
        cancel_grace_s: As for `ServerConfig`.
        options: Further arguments of `AcpClient.over`.
    """
    near, far = memory_transport_pair()
    config = ServerConfig(
        agent=agent,
        store=store,
        clock=clock_of_series(series),
        ids=CountedIds(series),
        cancel_grace_s=cancel_grace_s,
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Server(config, far).serve)
        async with AcpClient.over(near, **options) as client:
            await client.initialize(capabilities)
            yield client

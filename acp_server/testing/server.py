"""Our server in the process of the test: the real composition root over a memory transport."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio

from acp_server.app import Server, ServerConfig
from acp_server.testing.client import AcpClient
from acp_server.testing.sources import DEFAULT_START_MS, CountingIds, SteppingClock
from acp_server.transport.memory import memory_transport_pair

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from acp_server.agents.agent import Agent
    from persistence import SessionBackend


SERIES_MS = 86_400_000
"""How far apart the clocks of servers on one store begin: a day, longer than any test counts."""


def clock_of_series(series: int) -> SteppingClock:
    """Return the clock of the n-th server on a store: later than what former ones have written."""
    return SteppingClock(DEFAULT_START_MS + series * SERIES_MS)


class CountedIds:
    """An id source that counts each kind of id by itself (Z36)."""

    def __init__(self, series: int = 0) -> None:
        self._sessions = CountingIds(series)
        self._series = series
        self._counts: dict[str, int] = {}

    def session_id(self) -> str:
        """Return the next session id, shaped like a UUID."""
        return self._sessions()

    def call_id(self) -> str:
        """Return `call_<series>_<n>`: a resumed session must not see an id twice."""
        return self._next(f"call_{self._series}")

    def approval_id(self) -> str:
        """Return `approval_<series>_<n>`."""
        return self._next(f"approval_{self._series}")

    def log_entry_id(self) -> str:
        """Return `entry_<n>`."""
        return self._next("entry")

    def _next(self, kind: str) -> str:
        self._counts[kind] = self._counts.get(kind, 0) + 1
        return f"{kind}_{self._counts[kind]}"


@asynccontextmanager
async def running_server(
    agent: Agent,
    *,
    store: str | SessionBackend = "memory:",
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

"""Starts the server of a scenario: as a real subprocess, or in this process over memory.

Both are the same composition root with counting ids and a stepping clock
(clock-and-ids-are-injected), so that a scenario gives the same frames and the same log on both.
"""

import os
import sys
import warnings
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path

import anyio

from acp_server.agents.agent import Agent
from acp_server.app import Server, ServerConfig
from acp_server.builtin_agents.loading import load_agent
from acp_server.testing.checks import FrameChecker
from acp_server.testing.client import AcpClient, Answer, CountedIds, clock_of_series
from acp_server.testing.client.channels import TransportChannel
from acp_server.testing.kit.scenario import TransportKind
from acp_server.testing.kit.workspace import Workspace
from acp_server.transport.memory import MemoryTransport, memory_transport_pair

WAIT_S = 10.0
"""How long a step may wait for the agent unless it says otherwise."""


@asynccontextmanager
async def opened_server(
    transport: TransportKind,
    workspace: Workspace,
    agent: str | Agent,
    series: int,
    answers: Mapping[str, Answer],
) -> AsyncIterator[AcpClient]:
    """Start a server and yield a client of it that has not sent anything yet.

    Leaving the block ends the server in order and raises what was wrong with its end.

    Args:
        transport: How the client reaches it.
        workspace: Where it plays.
        agent: As `--agent` takes it; an agent itself can only be reached over memory.
        series: Number of this server on its store, from 0: keeps ids and times apart.
        answers: Answers requests of the agent by method.
    """
    if transport == "subprocess":
        if isinstance(agent, Agent):
            message = "a subprocess takes its agent by name"
            raise TypeError(message)
        client = _spawned(workspace, agent, series, answers)
        try:
            async with client:
                yield client
        finally:
            # For pytest, which shows it with a failure: it has the tracebacks of the agent.
            sys.stderr.write(client.stderr)
        return
    _import_dispatcher()
    near, far = memory_transport_pair()
    config = ServerConfig(
        agent=load_agent(agent) if isinstance(agent, str) else agent,
        store=workspace.shared or workspace.store_spec,
        clock=clock_of_series(series),
        ids=CountedIds(series),
    )
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_serve, config, far)
        client = AcpClient(
            _HalfClosingChannel(near), answers=answers, checker=FrameChecker(), timeout=WAIT_S
        )
        try:
            async with client:
                yield client
                await client.close_stdin()
                await client.ended()
        except Exception as error:  # noqa: BLE001 - raised below, not in a group
            failure = error
    if failure is not None:
        raise failure


def _spawned(
    workspace: Workspace, agent: str, series: int, answers: Mapping[str, Answer]
) -> AcpClient:
    argv = [sys.executable, "-m", "acp_server.testing.serve"]
    argv += ["--store", workspace.store_spec, "--agent", agent, "--series", str(series)]
    # The code under test is what this process runs, wherever the server is started.
    path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    return AcpClient.spawn(
        argv,
        env={**os.environ, "PYTHONPATH": path},
        cwd=workspace.root,
        answers=answers,
        checker=FrameChecker(),
        timeout=WAIT_S,
    )


def _import_dispatcher() -> None:
    """Import what warns at its import, here where the warning fails nobody's test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import_module("acp_server.rpc.dispatch")


async def _serve(config: ServerConfig, transport: MemoryTransport) -> None:
    async with transport:
        await Server(config, transport).serve()


class _HalfClosingChannel(TransportChannel):
    """Ends the server's input and goes on reading, as the pipes of a subprocess do."""

    def __init__(self, transport: MemoryTransport) -> None:
        super().__init__(transport)
        self._memory = transport

    async def close_input(self) -> None:
        await self._memory.send_eof()

"""The composition root: the one place that knows every concrete part and how long each lives."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio

from acp_server.bridge.capabilities import Handshake
from acp_server.rpc.peer import Peer
from acp_server.turns.ids import IdSource, TimeOrderedIds
from session_core.clock import system_clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyio.abc import TaskGroup

    from acp_server.agents.agent import Agent
    from acp_server.bridge.service import AcpService
    from acp_server.exit_watch import ExitWatch
    from acp_server.rpc.table import MethodTable
    from acp_server.transport.base import Transport
    from acp_server.transport.stdio import StdioTransport
    from persistence import SessionRepository, StorageBackend
    from session_core import Clock

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """What one server is made of.

    Attributes:
        agent: Answers the prompts.
        store: Where sessions are kept: `jsonl:PATH`, `memory:`, or an open backend.
        clock: Epoch milliseconds.
        ids: Identities; time-ordered ones by default.
        cancel_grace_s: How long a cancelled agent may take to end; with what else an exit takes
            it has to fit into the 5 s for which clients wait (cancel-is-bounded-in-time).
    """

    agent: Agent
    store: str | StorageBackend
    clock: Clock = system_clock
    ids: IdSource | None = None
    cancel_grace_s: float = 3.0


class Server:
    """One connection to one client, over any transport.

    The heavy parts (store, wire models, dispatcher) are built when the peer asks for the methods,
    that is after `initialize` has been answered.

    Args:
        config: The server.
        transport: The connection; opened and closed by its owner.
        on_end: Called once, as soon as the connection ends for whatever reason.
    """

    def __init__(
        self, config: ServerConfig, transport: Transport, on_end: Callable[[], None] | None = None
    ) -> None:
        self._config = config
        self._on_end = on_end
        self._ids = config.ids or TimeOrderedIds(config.clock)
        self._handshake = Handshake(config.agent)
        self._peer = Peer(
            transport,
            initialize=self._handshake,
            methods=self._methods,
            on_eof=self._shut_down,
            new_diagnostic_id=self._ids.diagnostic_id,
        )
        self._tasks: TaskGroup | None = None
        self._service: AcpService | None = None
        self._store_opened = anyio.Event()
        self._store_wanted = anyio.Event()
        self._store_closed = anyio.Event()

    async def serve(self) -> None:
        """Serve until the client goes away or `stop`; all is durable on return."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            await self._peer.serve()
            # What is left are agents that did not stop when cancelled (cancel-is-bounded-in-time).
            tasks.cancel_scope.cancel()

    def stop(self) -> None:
        """End the connection from our side, as at the end of input."""
        self._peer.stop()

    def _methods(self) -> MethodTable:
        from acp_server.bridge.service import opening_methods  # noqa: PLC0415 - after initialize
        from persistence import PersistenceError  # noqa: PLC0415 - as above

        try:
            # Its task is started before any handler is, so it is open when the first of them runs.
            return self._open_service().methods()
        except PersistenceError:
            return opening_methods(self._config.agent, self._reopened_methods)

    async def _reopened_methods(self) -> MethodTable:
        """Open the store if it did not open before, whose cause may be gone.

        Raises:
            PersistenceError: It does not open now either.
        """
        methods = (self._service or self._open_service()).methods()
        if not self._store_opened.is_set():
            await self._store_opened.wait()
        return methods

    def _open_service(self) -> AcpService:
        from acp_server.bridge.service import AcpService  # noqa: PLC0415 - after initialize
        from persistence import (  # noqa: PLC0415 - as above
            PersistenceError,
            SessionRepository,
            open_backend,
        )
        from session_core import SessionStore  # noqa: PLC0415 - as above

        assert self._tasks is not None  # noqa: S101 - serve() has set it
        clock = self._config.clock
        given = self._config.store
        try:
            backend = open_backend(given) if isinstance(given, str) else given
        except PersistenceError as error:
            _log.error("the store cannot be opened: %s", error)
            raise
        store = SessionStore(clock=clock, new_id=self._ids.session_id)
        persistence = SessionRepository(backend, store)
        self._tasks.start_soon(self._keep_store, persistence)
        self._service = AcpService(
            peer=self._peer,
            handshake=self._handshake,
            agent=self._config.agent,
            store=store,
            persistence=persistence,
            ids=self._ids,
            tasks=self._tasks,
            cancel_grace_s=self._config.cancel_grace_s,
        )
        return self._service

    async def _keep_store(self, persistence: SessionRepository) -> None:
        from persistence import StoreShutdownError  # noqa: PLC0415 - after initialize

        # A task of its own: what a task group is opened in must outlive it, and the peer's read
        # loop does not.
        try:
            async with persistence:
                self._store_opened.set()
                await self._store_wanted.wait()
        except StoreShutdownError as error:
            _log.error("not everything could be stored: %s", error)
        finally:
            self._store_closed.set()

    async def _shut_down(self) -> None:
        if self._on_end is not None:
            self._on_end()
        if self._service is not None:
            await self._service.shut_down()
            self._store_wanted.set()
            await self._store_closed.wait()


async def serve_stdio(config: ServerConfig, transport: StdioTransport, watch: ExitWatch) -> int:
    """Serve the client of this process until it goes away or a signal comes.

    Args:
        config: The server.
        transport: The process's stdin and stdout; opened before the agent was imported.
        watch: Knows of the signals, and limits how long the end may take.

    Returns:
        The exit code: 0 after the end of input, SIGTERM or SIGHUP, 130 after SIGINT.
    """
    async with transport:
        server = Server(config, transport, watch.begin)

        async def stop_on_signal() -> None:
            await watch.signaled()
            server.stop()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stop_on_signal)
            await server.serve()
            tasks.cancel_scope.cancel()
    return watch.exit_code

"""The sessions that are open on one connection: how they come and how they go.

What opens or closes a session does so one after the other for each id; different ids never wait for
each other.
"""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from acp_server.errors import is_lost, rpc_error_from_store
from acp_server.rpc.errors import RpcError
from persistence.errors import InvalidSessionIdError, PersistenceError, SessionNotFoundError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from acp_server.bridge.open_session import OpenSession
    from acp_server.rpc.table import RequestContext
    from persistence.coordinator import SessionPersistence
    from persistence.storing import RepairReport
    from session_core import Session, SessionHeader, SessionStore

_log = logging.getLogger(__name__)

_SHUTTING_DOWN = "the server is shutting down"


class OpenSessions:
    """Keeps the open sessions by id.

    Args:
        compose: Makes an open session of a live one.
        store: Live sessions.
        persistence: Stored sessions.
    """

    def __init__(
        self,
        compose: Callable[[Session], OpenSession],
        store: SessionStore,
        persistence: SessionPersistence,
    ) -> None:
        self._compose = compose
        self._store = store
        self._persistence = persistence
        self._open: dict[str, OpenSession] = {}
        self._locks: dict[str, anyio.Lock] = {}
        self._waiting: dict[str, set[anyio.CancelScope]] = {}
        self._ended: anyio.Event | None = None

    # -- which are open ---------------------------------------------------------------------

    def get(self, session_id: str) -> OpenSession | None:
        """Return the session if it is open."""
        return self._open.get(session_id)

    def require_running(self) -> None:
        """Return unless the connection is being torn down.

        Raises:
            RpcError: It is.
        """
        if self._ended is not None:
            raise RpcError.internal(_SHUTTING_DOWN)

    async def require(self, session_id: str) -> OpenSession:
        """Return an open session; one that is just being opened is waited for (Z20).

        Raises:
            RpcError: It is not open.
        """
        if session_id not in self._open and session_id in self._locks:
            async with self.alone_on(session_id):
                pass
        opened = self._open.get(session_id)
        if opened is None:
            raise RpcError.resource_not_found(session_id)
        return opened

    async def require_for_prompt(
        self, session_id: str, context: RequestContext
    ) -> OpenSession | None:
        """Return the session as `require` does, or None if the prompt is cancelled meanwhile.

        Raises:
            RpcError: It is not open.
        """
        opened = self._open.get(session_id)
        if opened is not None:
            return opened
        with anyio.CancelScope() as scope:
            context.on_cancel(scope.cancel)
            waiting = self._waiting.setdefault(session_id, set())
            waiting.add(scope)
            try:
                return await self.require(session_id)
            finally:
                waiting.discard(scope)
                if not waiting:
                    self._waiting.pop(session_id, None)
        return None

    def cancel(self, session_id: str) -> None:
        """Cancel what runs in a session and every prompt received so far (Z19)."""
        for scope in self._waiting.get(session_id, ()):
            scope.cancel()
        opened = self._open.get(session_id)
        if opened is not None:
            opened.runner.cancel()

    @asynccontextmanager
    async def alone_on(self, session_id: str) -> AsyncIterator[None]:
        """Let what opens and closes one session come one after the other, in order of arrival."""
        lock = self._locks.get(session_id)
        if lock is None:
            # No checkpoint on a free lock: what follows in the same packet must find the effect.
            lock = self._locks[session_id] = anyio.Lock(fast_acquire=True)
        try:
            async with lock:
                yield
        finally:
            if not lock.locked() and self._locks.get(session_id) is lock:
                del self._locks[session_id]

    # -- opening ----------------------------------------------------------------------------

    def create(self, cwd: str) -> OpenSession:
        """Open a new session; nothing of it is stored before its first event."""
        return self._adopt(self._store.create(cwd=cwd))

    async def load(
        self, session_id: str, check_header: Callable[[SessionHeader], None]
    ) -> tuple[OpenSession, RepairReport | None]:
        """Open a stored session; the caller is `alone_on` it.

        Args:
            session_id: The session.
            check_header: Called before anything is changed; what it raises ends the load.

        Raises:
            RpcError: It cannot be loaded.
        """
        try:
            loaded = await self._persistence.load(session_id, check_header=check_header)
        except PersistenceError as error:
            raise rpc_error_from_store(error) from error
        if self._ended is not None:
            await self._persistence.release(session_id)
            raise RpcError.internal(_SHUTTING_DOWN)
        session = self._store.create(session_id, seed=loaded.log, header=loaded.header)
        return self._adopt(session), loaded.repaired

    def _adopt(self, session: Session) -> OpenSession:
        opened = self._open[session.id] = self._compose(session)
        return opened

    # -- closing ----------------------------------------------------------------------------

    async def close(self, session_id: str) -> None:
        """Close a session: its prompts are answered, its log is durable, its lock is free (Z29).

        Raises:
            RpcError: Its log cannot be stored; it stays open, unless it is somebody else's now.
        """
        async with self.alone_on(session_id):
            opened = self._open.pop(session_id, None)
            lost = None if opened is None else await self._end(opened)
        if lost is not None:
            raise rpc_error_from_store(lost) from lost

    async def delete(self, session_id: str) -> None:
        """Delete a session, having closed it; one that does not exist is deleted already (Z29).

        Raises:
            RpcError: Another process has it open, or the store failed.
        """
        async with self.alone_on(session_id):
            opened = self._open.pop(session_id, None)
            if opened is not None:
                await self._end(opened, discard=True)
            try:
                await self._persistence.delete(session_id)
            except (SessionNotFoundError, InvalidSessionIdError):
                return
            except PersistenceError as error:
                raise rpc_error_from_store(error) from error

    async def give_up(self, opened: OpenSession) -> None:
        """Close a session whose opening has failed half-way; the caller is `alone_on` it."""
        with anyio.CancelScope(shield=True):
            self._open.pop(opened.session.id, None)
            await self._end(opened)

    def drop_lost(self, opened: OpenSession) -> None:
        """Forget a session whose log is somebody else's now; the next load opens it afresh (Z8)."""
        if self._open.get(opened.session.id) is opened:
            del self._open[opened.session.id]
            opened.detach()
            self._store.detach(opened.session)

    async def _end(self, opened: OpenSession, *, discard: bool = False) -> PersistenceError | None:
        """End a session that is not offered any more; return why the store has lost it, if so.

        Args:
            opened: The session.
            discard: It is about to be deleted: what is pending need not be stored.

        Raises:
            RpcError: Its log cannot be stored now; it is open again.
        """
        opened.runner.cancel()
        await opened.runner.settle()
        await opened.answered()
        lost: PersistenceError | None = None
        try:
            await self._persistence.release(opened.session, discard=discard)
        except PersistenceError as error:
            if not is_lost(error):
                self._open[opened.session.id] = opened
                raise rpc_error_from_store(error) from error
            lost = error
        opened.detach()
        self._store.detach(opened.session)
        return lost

    async def shut_down(self) -> None:
        """End every turn `disposed`; a second caller waits for the first (contract 6.10)."""
        if self._ended is not None:
            await self._ended.wait()
            return
        self._ended = anyio.Event()
        try:
            async with anyio.create_task_group() as tasks:
                for opened in list(self._open.values()):
                    tasks.start_soon(self._dispose, opened)
        finally:
            self._ended.set()

    async def _dispose(self, opened: OpenSession) -> None:
        try:
            await opened.dispose()
        except Exception:  # noqa: BLE001 - one session's trouble must not stop the others
            _log.exception("session %s did not end in order", opened.session.id)

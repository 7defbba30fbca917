"""The sessions that are open on one connection: how they come and how they go.

What is asked of one id is done in the order it came: who finds a session closing waits for that,
and persistence opens one after the other. Different ids never wait for each other.
"""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from acp_server.errors import rpc_error_from_store
from acp_server.rpc.errors import RpcError
from persistence.errors import (
    InvalidSessionIdError,
    PersistenceError,
    SessionChangedError,
    SessionLockedError,
    SessionNotFoundError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from acp_server.bridge.open_session import OpenSession
    from acp_server.rpc.table import RequestContext
    from persistence.opened import OpenedSession
    from persistence.repository import SessionRepository
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
        persistence: SessionRepository,
    ) -> None:
        self._compose = compose
        self._store = store
        self._persistence = persistence
        self._open: dict[str, OpenSession] = {}
        self._closing: dict[str, anyio.Event] = {}
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
        """Return an open session; one that is just being opened is waited for (each-load-replays).

        Raises:
            RpcError: It is not open.
        """
        if session_id not in self._open:
            await self._settled(session_id)
            if session_id in self._open:
                await self._open[session_id].wait_until_replayed()
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
                opened = await self.require(session_id)
            finally:
                waiting.discard(scope)
                if not waiting:
                    self._waiting.pop(session_id, None)
        # It may have been cancelled when its wait was over already.
        return None if scope.cancel_called else opened

    def cancel(self, session_id: str) -> None:
        """Cancel what runs in a session and every prompt received so far.

        Rule: cancel-covers-queued-prompts.
        """
        for scope in self._waiting.get(session_id, ()):
            scope.cancel()
        opened = self._open.get(session_id)
        if opened is not None:
            opened.runner.cancel()

    async def _settled(self, session_id: str) -> None:
        """Return when nothing that opens or closes a session is under way."""
        while (closing := self._closing.get(session_id)) is not None:
            await closing.wait()
        await self._persistence.settled(session_id)

    @asynccontextmanager
    async def _taken_out(self, session_id: str) -> AsyncIterator[OpenSession | None]:
        """Offer a session no more, if it is open; who asks for it inside the block has to wait."""
        while session_id not in self._open:
            await self._settled(session_id)
            if session_id not in self._closing:
                break
        opened = self._open.pop(session_id, None)
        closed = self._closing[session_id] = anyio.Event()
        try:
            yield opened
        finally:
            del self._closing[session_id]
            closed.set()

    # -- opening ----------------------------------------------------------------------------

    def create(self, cwd: str) -> OpenSession:
        """Open a new session; nothing of it is stored before its first event."""
        return self._adopt(self._store.create(cwd=cwd))

    async def open(
        self,
        session_id: str,
        check_header: Callable[[SessionHeader], None],
        *,
        fresh: bool,
    ) -> tuple[OpenSession, OpenedSession | None]:
        """Open a stored session, or return the open one.

        Args:
            session_id: The session.
            check_header: Called before anything is changed; what it raises ends the opening.
            fresh: Whether an open one must have all that is stored by now: it is about to be shown.

        Returns:
            The session, and how it was opened; None if it was open.

        Raises:
            RpcError: It cannot be opened.
        """
        while True:
            while (closing := self._closing.get(session_id)) is not None:
                await closing.wait()
            known = self._open.get(session_id)
            if known is None:
                try:
                    opened = await self._persistence.open(session_id, check_header=check_header)
                except PersistenceError as error:
                    raise rpc_error_from_store(error) from error
                if self._ended is not None:
                    await self._persistence.release(opened.session)
                    raise RpcError.internal(_SHUTTING_DOWN)
                if session_id not in self._open and session_id not in self._closing:
                    return self._adopt(opened.session), opened
            elif known.is_replaying:
                # It may fail, and the session be closed with it.
                await known.wait_until_replayed()
            elif not fresh or await self._is_current(known):
                check_header(known.session.header)
                return known, None
            else:
                await self.close(session_id)

    async def _is_current(self, known: OpenSession) -> bool:
        """Tell whether an open session has all that is stored, reading it on if it can.

        Rule: looking-takes-no-lock.

        One that another process writes at this moment has not; it is to be opened afresh.
        """
        session = known.session
        try:
            await self._persistence.hold(session, wait=False)
        except (SessionLockedError, SessionChangedError):
            is_stored = self._persistence.durable_seq(session) == session.seq
            return not (is_stored or self._persistence.is_lost(session)) or known.runner.busy
        except PersistenceError:
            # It cannot be read now; what is here can be shown all the same.
            return True
        return self._open.get(session.id) is known and not known.is_replaying

    def _adopt(self, session: Session) -> OpenSession:
        opened = self._open[session.id] = self._compose(session)
        return opened

    # -- closing ----------------------------------------------------------------------------

    async def close(self, session_id: str) -> None:
        """Close a session: its prompts are answered, its log is durable, its lock is free.

        Rule: close-waits-for-the-end.

        Raises:
            RpcError: Its log cannot be stored; it stays open, unless it is somebody else's now.
        """
        async with self._taken_out(session_id) as opened:
            lost = None if opened is None else await self._end(opened)
        if lost is not None:
            raise rpc_error_from_store(lost) from lost

    async def delete(self, session_id: str) -> None:
        """Delete a session, having closed it; one that does not exist is deleted already.

        Rule: close-waits-for-the-end.

        Raises:
            RpcError: Another process has it open, or the store failed.
        """
        async with self._taken_out(session_id) as opened:
            if opened is not None:
                await self._require_lock(opened)
                await self._end(opened, discard=True)
            try:
                await self._persistence.delete(session_id)
            except (SessionNotFoundError, InvalidSessionIdError):
                return
            except PersistenceError as error:
                raise rpc_error_from_store(error) from error

    async def discard(self, opened: OpenSession) -> None:
        """Close a session whose opening has failed half-way."""
        if self._open.get(opened.session.id) is opened:
            with anyio.CancelScope(shield=True):
                async with self._taken_out(opened.session.id):
                    await self._end(opened)

    def close_lost(self, opened: OpenSession) -> None:
        """Forget a session whose log is somebody else's now; the next load opens it afresh.

        Rule: lost-session-is-closed.
        """
        if self._open.get(opened.session.id) is opened:
            del self._open[opened.session.id]
            opened.detach()
            self._store.detach(opened.session)

    async def _require_lock(self, opened: OpenSession) -> None:
        """Return unless another process has a session, which is open again then.

        Raises:
            RpcError: It has.
        """
        try:
            await self._persistence.hold(opened.session)
        except SessionLockedError as error:
            self._open[opened.session.id] = opened
            raise rpc_error_from_store(error) from error
        except PersistenceError:
            # Whatever else is wrong with it: it is about to be deleted.
            return

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
        await opened.caught_up()
        await opened.wait_until_replayed()
        lost: PersistenceError | None = None
        try:
            await self._persistence.release(opened.session, discard=discard)
        except PersistenceError as error:
            if not self._persistence.is_lost(opened.session):
                self._open[opened.session.id] = opened
                raise rpc_error_from_store(error) from error
            lost = error
        opened.detach()
        self._store.detach(opened.session)
        return lost

    async def shut_down(self) -> None:
        """End every turn `disposed`; a second caller waits for the first.

        Rule: teardown-happens-once.
        """
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

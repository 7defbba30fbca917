"""The ACP methods over sessions (contract 6.2). One handler a method, each short.

A handler does all that must be in arrival order before its first await: the peer starts handlers
in the order of their frames.
"""

from __future__ import annotations

import os.path
import posixpath
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from acp_server.agents.runner import QueueFullError
from acp_server.bridge.json_objects import iso_time
from acp_server.bridge.open_session import OpenSession
from acp_server.bridge.stop_reasons import stop_reason_from_end
from acp_server.errors import rpc_error_from_store
from acp_server.rpc.errors import RpcError
from acp_server.rpc.table import MethodTable, Params, RequestContext
from acp_server.wire import requests, results, updates
from acp_server.wire.errors import WireError
from acp_server.wire.model import parse
from persistence.errors import PersistenceError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from anyio.abc import TaskGroup

    from acp_server.agents.active_turn import TurnOutcome
    from acp_server.agents.agent import Agent
    from acp_server.agents.ids import IdSource
    from acp_server.bridge.capabilities import Handshake
    from acp_server.rpc.peer import Peer
    from acp_server.wire.model import WireModel
    from persistence.coordinator import SessionPersistence
    from session_core import SessionStore

    ParamsT = TypeVar("ParamsT", bound=WireModel)


_METHODS = (
    "authenticate",
    "session/new",
    "session/load",
    "session/list",
    "session/prompt",
)


class AcpService:
    """Serves one connection.

    Args:
        peer: The connection.
        handshake: What client and server have told each other.
        agent: Answers the prompts.
        store: Live sessions.
        persistence: Stored sessions.
        ids: Identities.
        tasks: Where turns run.
    """

    def __init__(
        self,
        *,
        peer: Peer,
        handshake: Handshake,
        agent: Agent,
        store: SessionStore,
        persistence: SessionPersistence,
        ids: IdSource,
        tasks: TaskGroup,
    ) -> None:
        self._peer = peer
        self._handshake = handshake
        self._agent = agent
        self._store = store
        self._persistence = persistence
        self._ids = ids
        self._tasks = tasks
        self._open: dict[str, OpenSession] = {}
        self._loads: dict[str, anyio.Lock] = {}
        self._closing = False

    def methods(self) -> MethodTable:
        """Return the handlers by method name."""
        return MethodTable(
            requests={
                "authenticate": self.authenticate,
                "session/new": self.new_session,
                "session/load": self.load_session,
                "session/list": self.list_sessions,
                "session/prompt": self.prompt,
            },
            notifications={"session/cancel": self.cancel},
        )

    # -- handlers ---------------------------------------------------------------------------

    async def authenticate(self, _context: RequestContext, params: Params) -> dict[str, Any]:
        """`authenticate`: no method is needed, so any is fine; some clients send it unasked."""
        _parse(requests.AuthenticateParams, params)
        return {}

    async def new_session(self, context: RequestContext, params: Params) -> dict[str, Any]:
        """`session/new`: nothing is stored before the first turn."""
        asked = _parse(requests.NewSessionParams, params)
        self._require_running()
        session = self._store.create(cwd=_normal(asked.cwd))
        opened = self._adopt(session)
        context.after_response(lambda: self._send_commands(opened))
        return results.new_session_result(session.id)

    async def load_session(self, context: RequestContext, params: Params) -> dict[str, Any]:
        """`session/load`: the whole log as updates, then the response (Z20)."""
        asked = _parse(requests.LoadSessionParams, params)
        self._require_running()
        async with self._one_load_of(asked.session_id):
            opened = self._open.get(asked.session_id)
            if opened is None:
                opened = await self._load(asked.session_id, asked.cwd)
            else:
                _require_same_cwd(opened.session.header.cwd, asked.cwd)
            try:
                await opened.replay()
            except BaseException:
                opened.resume()
                raise
        context.after_response(opened.resume)
        context.after_response(lambda: self._send_commands(opened))
        return results.open_session_result()

    async def list_sessions(self, _context: RequestContext, params: Params) -> dict[str, Any]:
        """`session/list`: stored sessions, newest first, a page at a time (Z21)."""
        asked = _parse(requests.ListSessionsParams, params)
        try:
            page = await self._persistence.list(cwd=asked.cwd, cursor=asked.cursor)
        except PersistenceError as error:
            raise rpc_error_from_store(error) from error
        rows = [
            results.session_info(
                row.header.id,
                row.header.cwd,
                title=row.summary.title,
                updated_at=iso_time(row.summary.updated_at),
            )
            for row in page.entries
            if row.header.cwd is not None
        ]
        return results.list_sessions_result(rows, page.next_cursor)

    async def prompt(self, context: RequestContext, params: Params) -> dict[str, Any]:
        """`session/prompt`: answered when its turn has ended and is durable."""
        asked = _parse(requests.PromptParams, params)
        self._require_running()
        opened = self._require_open(asked.session_id)
        blocks = [block.to_json() for block in asked.prompt]
        self._require_content(blocks)
        try:
            pending = opened.runner.submit(blocks)
        except QueueFullError as error:
            raise RpcError.internal(str(error)) from error
        context.on_cancel(lambda: opened.runner.cancel_prompt(pending))
        outcome = await pending.outcome()
        if outcome.kind == "error":
            opened.release_updates()
            await self._forget_if_lost(opened, outcome)
            raise RpcError.internal(f"turn failed: {outcome.message}")
        return results.prompt_result(stop_reason_from_end(outcome.kind))

    def cancel(self, params: Params) -> None:
        """`session/cancel`: the running turn and every prompt received before it (Z19)."""
        asked = _parse(requests.CancelParams, params)
        opened = self._open.get(asked.session_id)
        if opened is not None:
            opened.runner.cancel()

    async def shut_down(self) -> None:
        """End every turn `disposed`; what is stored afterwards is a whole log (contract 6.10)."""
        self._closing = True
        for opened in list(self._open.values()):
            self._tasks.start_soon(opened.dispose)
        for opened in list(self._open.values()):
            await opened.runner.settle()

    # -- inside -----------------------------------------------------------------------------

    @asynccontextmanager
    async def _one_load_of(self, session_id: str) -> AsyncIterator[None]:
        """Let loads of one session come one after the other; each replays (Z20)."""
        lock = self._loads.setdefault(session_id, anyio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.locked():
                self._loads.pop(session_id, None)

    async def _load(self, session_id: str, cwd: str) -> OpenSession:
        try:
            loaded = await self._persistence.load(
                session_id, check_header=lambda header: _require_same_cwd(header.cwd, cwd)
            )
        except PersistenceError as error:
            raise rpc_error_from_store(error) from error
        session = self._store.create(session_id, seed=loaded.log, header=loaded.header)
        return self._adopt(session)

    def _adopt(self, session: Any) -> OpenSession:
        opened = OpenSession(
            session,
            self._agent,
            peer=self._peer,
            capabilities=self._handshake.client,
            store=self._store,
            persistence=self._persistence,
            ids=self._ids,
            tasks=self._tasks,
        )
        self._open[session.id] = opened
        return opened

    async def _forget_if_lost(self, opened: OpenSession, outcome: TurnOutcome) -> None:
        if outcome.lost_session and self._open.get(opened.session.id) is opened:
            del self._open[opened.session.id]
            opened.detach()
            await opened.dispose()
            await self._persistence.release(opened.session)
            self._store.detach(opened.session)

    def _send_commands(self, opened: OpenSession) -> None:
        params = updates.session_update(opened.session.id, updates.available_commands_update([]))
        self._peer.notify("session/update", params)

    def _require_running(self) -> None:
        if self._closing:
            detail = "the server is shutting down"
            raise RpcError.internal(detail)

    def _require_open(self, session_id: str) -> OpenSession:
        opened = self._open.get(session_id)
        if opened is None:
            raise RpcError.resource_not_found(session_id)
        return opened

    def _require_content(self, blocks: Sequence[dict[str, Any]]) -> None:
        """Refuse what the agent does not take, and a prompt that says nothing (Z13)."""
        agent = self._agent
        taken = {
            "image": agent.takes_images,
            "audio": agent.takes_audio,
            "resource": agent.takes_resources,
        }
        for block in blocks:
            if not taken.get(block["type"], True):
                raise RpcError.invalid_params(f"prompt: this agent takes no {block['type']}")
        if all(block["type"] == "text" and not block["text"].strip() for block in blocks):
            detail = "prompt: it is empty"
            raise RpcError.invalid_params(detail)


def _parse(model: type[ParamsT], params: Params) -> ParamsT:
    try:
        return parse(model, params)
    except WireError as error:
        raise RpcError.invalid_params(str(error)) from error


def _normal(cwd: str) -> str:
    """Return the directory as it is stored: as sent, lexically normalized (Z21)."""
    return posixpath.normpath(cwd)


def _require_same_cwd(stored: str | None, asked: str) -> None:
    """Refuse to open a session in another directory than its own (Z21)."""
    if stored is None:
        detail = "cwd: the stored session has no working directory"
        raise RpcError.invalid_params(detail)
    if os.path.realpath(stored) != os.path.realpath(asked):
        detail = f"cwd: the session belongs to {stored!r}, not {asked!r}"
        raise RpcError.invalid_params(detail)


def refusing(error: PersistenceError) -> MethodTable:
    """Return methods that all answer why the store cannot be used; the process stays up."""

    async def refuse(_context: RequestContext, _params: Params) -> dict[str, Any]:
        raise rpc_error_from_store(error)

    return MethodTable(requests=dict.fromkeys(_METHODS, refuse))

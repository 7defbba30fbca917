"""The ACP methods over sessions (errors-have-fixed-codes). One handler a method, each short.

A handler does all that must be in arrival order before its first await: the peer starts handlers
in the order of their frames.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio

from acp_server.agents.errors import RequestRefusedError
from acp_server.bridge.account import Account
from acp_server.bridge.open_session import OpenSession
from acp_server.bridge.open_sessions import OpenSessions
from acp_server.bridge.opening_warnings import (
    OpeningWarning,
    log_warnings,
    meta_from_warnings,
    warnings_from_opening,
    warnings_from_order,
    warnings_from_servers,
)
from acp_server.bridge.params import (
    parse_params,
    require_content,
    require_same_cwd,
    stored_cwd,
)
from acp_server.bridge.session_rows import SessionRows
from acp_server.bridge.stop_reasons import stop_reason_from_end
from acp_server.errors import rpc_error_from_checkpoint, rpc_error_from_store
from acp_server.rpc.errors import RpcError
from acp_server.rpc.table import Handler, MethodTable, Params, RequestContext
from acp_server.turns.active_turn import CANCEL_GRACE_S
from acp_server.turns.errors import CheckpointError
from acp_server.turns.presets import MODE_OPTION_ID
from acp_server.turns.runner import QueueFullError
from acp_server.wire import requests, results
from persistence.errors import PersistenceError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from anyio.abc import TaskGroup

    from acp_server.agents.agent import Agent, Extension
    from acp_server.bridge.capabilities import Handshake
    from acp_server.rpc.peer import Peer
    from acp_server.turns.ids import IdSource
    from acp_server.turns.turn_end import TurnOutcome
    from persistence.repository import SessionRepository
    from session_core import Session, SessionStore

_METHODS: Final = {
    "session/new": "new_session",
    "session/load": "load_session",
    "session/resume": "resume_session",
    "session/list": "list_sessions",
    "session/close": "close_session",
    "session/delete": "delete_session",
    "session/set_mode": "set_mode",
    "session/set_config_option": "set_config_option",
    "session/prompt": "prompt",
    "session/cancel": "cancel_by_request",
}
"""Each method of ACP over sessions, with its handler."""

_CANCEL: Final = "session/cancel"


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
        cancel_grace_s: How long a cancelled agent may take to end.
    """

    def __init__(
        self,
        *,
        peer: Peer,
        handshake: Handshake,
        agent: Agent,
        store: SessionStore,
        persistence: SessionRepository,
        ids: IdSource,
        tasks: TaskGroup,
        cancel_grace_s: float = CANCEL_GRACE_S,
    ) -> None:
        def compose(session: Session) -> OpenSession:
            return OpenSession(
                session,
                agent,
                peer=peer,
                capabilities=handshake.client,
                store=store,
                persistence=persistence,
                ids=ids,
                tasks=tasks,
                cancel_grace_s=cancel_grace_s,
            )

        self._agent = agent
        self._persistence = persistence
        self._account = Account(agent.sign_in)
        self._sessions = OpenSessions(compose, store, persistence)
        self._rows = SessionRows(self._sessions)

    def methods(self) -> MethodTable:
        """Return the handlers by method name."""
        table: dict[str, Handler] = {
            method: _extension_handler(extension)
            for method, extension in self._agent.extensions.items()
        }
        table |= {method: getattr(self, name) for method, name in _METHODS.items()}
        table |= self._account.methods()
        return MethodTable(requests=table, notifications={_CANCEL: self.cancel})

    # -- opening ----------------------------------------------------------------------------

    async def new_session(self, context: RequestContext, params: Params) -> dict[str, Any]:
        """`session/new`: nothing is stored before the first turn."""
        asked = parse_params(requests.NewSessionParams, params)
        self._require_ready()
        opened = self._sessions.create(stored_cwd(asked.cwd))
        result = self._opened_result(context, opened, asked)
        return {"sessionId": opened.session.id, **result}

    async def load_session(self, context: RequestContext, params: Params) -> dict[str, Any]:
        """`session/load`: the whole log as updates, then the response.

        Rule: load-replays-before-response.
        """
        return await self._open(context, params, replays=True)

    async def resume_session(self, context: RequestContext, params: Params) -> dict[str, Any]:
        """`session/resume`: load without the replay."""
        return await self._open(context, params, replays=False)

    async def list_sessions(self, _context: RequestContext, params: Params) -> dict[str, Any]:
        """`session/list`: stored sessions, newest first, a page at a time.

        Rule: list-rows-fold-the-log.
        """
        asked = parse_params(requests.ListSessionsParams, params)
        try:
            page = await self._persistence.list(cwd=asked.cwd, cursor=asked.cursor)
        except PersistenceError as error:
            raise rpc_error_from_store(error) from error
        return results.list_sessions_result(self._rows.rows_of(page.entries), page.next_cursor)

    # -- closing ----------------------------------------------------------------------------

    async def close_session(self, context: RequestContext, params: Params) -> dict[str, Any]:
        """`session/close`: answered when nothing of the session is left here.

        Rule: close-waits-for-the-end.
        """
        asked = parse_params(requests.CloseSessionParams, params)
        self._sessions.require_running()
        context.on_cancel(_carry_on)
        await self._sessions.close(asked.session_id)
        return {}

    async def delete_session(self, context: RequestContext, params: Params) -> dict[str, Any]:
        """`session/delete`: closed, then gone for good (close-waits-for-the-end)."""
        asked = parse_params(requests.DeleteSessionParams, params)
        self._sessions.require_running()
        context.on_cancel(_carry_on)
        await self._sessions.delete(asked.session_id)
        return {}

    # -- settings ---------------------------------------------------------------------------

    async def set_mode(self, context: RequestContext, params: Params) -> dict[str, Any]:
        """`session/set_mode`: the permission preset (settings-are-logged-at-once)."""
        asked = parse_params(requests.SetModeParams, params)
        await self._change_setting(context, asked.session_id, MODE_OPTION_ID, asked.mode_id)
        return {}

    async def set_config_option(self, context: RequestContext, params: Params) -> dict[str, Any]:
        """`session/set_config_option`: answered with the complete state.

        Rule: settings-are-logged-at-once.
        """
        asked = parse_params(requests.SetConfigOptionParams, params)
        opened = await self._change_setting(
            context, asked.session_id, asked.config_id, asked.value, by_mode=False
        )
        return results.config_options_result(opened.config_options())

    # -- turns ------------------------------------------------------------------------------

    async def prompt(self, context: RequestContext, params: Params) -> dict[str, Any]:
        """`session/prompt`: answered when its turn has ended and is durable."""
        asked = parse_params(requests.PromptParams, params)
        self._require_ready()
        opened = await self._sessions.require_for_prompt(asked.session_id, context)
        if opened is None:
            return results.prompt_result("cancelled")
        blocks = [block.to_json() for block in asked.prompt]
        require_content(self._agent, blocks)
        try:
            pending = opened.submit(blocks)
        except QueueFullError as error:
            raise RpcError.internal(str(error)) from error
        opened.track_response(context, pending)
        context.on_cancel(partial(opened.runner.cancel_prompt, pending))
        try:
            outcome = await pending.outcome()
        except anyio.get_cancelled_exc_class():
            # Cancelled before it could say how: no turn runs on behind the answer.
            opened.runner.cancel_prompt(pending)
            raise
        if self._agent.context_size is not None:
            opened.show_usage()
        await opened.wait_until_replayed()
        if outcome.kind == "error":
            raise self._refusal(opened, outcome)
        return results.prompt_result(stop_reason_from_end(outcome.kind))

    def cancel(self, params: Params) -> None:
        """`session/cancel`: the running turn and every prompt received before it.

        Rule: cancel-covers-queued-prompts.
        """
        self._sessions.cancel(parse_params(requests.CancelParams, params).session_id)

    async def cancel_by_request(self, _context: RequestContext, params: Params) -> dict[str, Any]:
        """`session/cancel` sent as a request: cancelled all the same, and answered (B29)."""
        self.cancel(params)
        return {}

    async def shut_down(self) -> None:
        """End every turn `disposed`; what is stored afterwards is a whole log.

        Rule: end-of-input-ends-server.
        """
        await self._sessions.shut_down()

    # -- inside -----------------------------------------------------------------------------

    async def _open(
        self, context: RequestContext, params: Params, *, replays: bool
    ) -> dict[str, Any]:
        asked = parse_params(requests.LoadSessionParams, params)
        self._require_ready()
        check_header = partial(require_same_cwd, asked.cwd)
        opened, how = await self._sessions.open(asked.session_id, check_header, fresh=replays)
        if replays:
            try:
                await opened.replay()
            except BaseException:
                opened.end_replay()
                if how is not None:
                    await self._sessions.discard(opened)
                raise
            context.after_response(opened.end_replay)
        warnings = [] if how is None else warnings_from_opening(how)
        warnings += warnings_from_order(opened.violations)
        return self._opened_result(context, opened, asked, warnings)

    def _opened_result(
        self,
        context: RequestContext,
        opened: OpenSession,
        asked: requests.NewSessionParams,
        warnings: Sequence[OpeningWarning] = (),
    ) -> dict[str, Any]:
        """Return the result that opens a session, and send behind it what belongs to it."""
        opened.runner.settings.additional_directories = asked.additional_directories
        told = [*warnings, *warnings_from_servers(asked.mcp_servers)]
        log_warnings(opened.session.id, told)
        context.after_response(lambda: opened.send_initial_state(told))
        return results.open_session_result(
            modes=opened.modes(),
            config_options=opened.config_options(),
            meta=meta_from_warnings(told),
        )

    async def _change_setting(
        self,
        context: RequestContext,
        session_id: str,
        option_id: str,
        value: str | bool,
        *,
        by_mode: bool = True,
    ) -> OpenSession:
        self._require_ready()
        opened = await self._sessions.require(session_id)
        # Set before anybody could cancel it; what is left is the flush.
        context.on_cancel(_carry_on)
        try:
            await opened.change_setting(option_id, value, by_mode=by_mode)
        except CheckpointError as error:
            if error.lost_session and not opened.runner.busy:
                self._sessions.close_lost(opened)
            raise rpc_error_from_checkpoint(error) from error
        return opened

    def _require_ready(self) -> None:
        self._sessions.require_running()
        self._account.require()

    def _refusal(self, opened: OpenSession, outcome: TurnOutcome) -> RpcError:
        opened.release_updates()
        if outcome.lost_session:
            self._sessions.close_lost(opened)
        if outcome.needs_sign_in:
            return RpcError.auth_required()
        if outcome.refusal is not None:
            return rpc_error_from_checkpoint(outcome.refusal)
        return RpcError.internal(f"turn failed: {outcome.message}")


def _extension_handler(extension: Extension) -> Handler:
    async def handle(_context: RequestContext, params: Params) -> dict[str, Any] | None:
        try:
            return await extension(params)
        except RequestRefusedError as error:
            raise RpcError.invalid_params(error.detail) from error

    return handle


def _carry_on() -> None:
    """Do not stop half-way: what was asked for is as good as done, and is answered."""


def opening_methods(
    agent: Agent, open_backend: Callable[[], Awaitable[MethodTable]]
) -> MethodTable:
    """Return methods that open the store when they are called, for one that did not open yet.

    Args:
        agent: Names the methods.
        open_backend: Returns the methods proper. Each request calls it, so it keeps them; does what
            must be in arrival order before its first await.
    """
    opened: MethodTable | None = None

    async def call(context: RequestContext, params: Params) -> dict[str, Any] | None:
        nonlocal opened
        try:
            opened = await open_backend()
        except PersistenceError as error:
            raise rpc_error_from_store(error) from error
        return await opened.requests[context.method](context, params)

    def notify(params: Params) -> Awaitable[None] | None:
        return None if opened is None else opened.notifications[_CANCEL](params)

    names = (*agent.extensions, *_METHODS, *Account(agent.sign_in).methods())
    return MethodTable(requests=dict.fromkeys(names, call), notifications={_CANCEL: notify})

"""The client's requests in flight: each is answered exactly once."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio

from acp_server.rpc.envelope import error_frame, response_frame
from acp_server.rpc.errors import RpcError
from acp_server.rpc.failures import FailureLog
from acp_server.rpc.table import Params, RequestContext, RequestId

logger = logging.getLogger(__name__)

MAX_IN_FLIGHT: Final = 10_000
"""Requests that may run at once; beyond it a client that never waits would cost all memory."""

_ID_IN_USE: Final = "this id is in use"
_TOO_MANY: Final = "too many requests at once"

Dispatch = Callable[[RequestContext, Params], Awaitable[dict[str, Any]]]


class Call:
    """One request in flight, from `IncomingRequests.admit` to its response."""

    __slots__ = ("context", "scope")

    def __init__(self, context: RequestContext) -> None:
        self.context = context
        self.scope = anyio.CancelScope()


class IncomingRequests:
    """Knows which ids are in flight, runs their handlers, sends each its one response.

    Args:
        send: Takes a complete frame.
        failures: Where unexpected exceptions are recorded.
    """

    def __init__(self, send: Callable[[bytes], None], failures: FailureLog) -> None:
        self._send = send
        self._failures = failures
        self._calls: dict[RequestId, Call] = {}
        self._idle = anyio.Event()

    def admit(self, id: RequestId, method: str) -> Call:
        """Put a request in flight; `run` must follow, in whatever task.

        Raises:
            RpcError: The id is in flight already, or too many are.
        """
        if id in self._calls:
            raise RpcError.invalid_request(_ID_IN_USE)
        if len(self._calls) >= MAX_IN_FLIGHT:
            raise RpcError.internal(_TOO_MANY)
        call = self._calls[id] = Call(RequestContext(id, method))
        return call

    async def run(self, call: Call, dispatch: Dispatch, params: Params) -> None:
        """Run a request's handler to its end and answer it, however it ends."""
        outcome: dict[str, Any] | RpcError = RpcError.request_cancelled()
        try:
            with call.scope:
                outcome = await dispatch(call.context, params)
        except RpcError as error:
            outcome = error
        except anyio.get_cancelled_exc_class():
            self._answer(call, RpcError.internal("the server is shutting down"))
            raise
        except BaseException as error:
            # Not the end of the server: an agent that calls sys.exit() fails its request.
            outcome = self._failures.record(f"request {call.context.method!r}", error)
            if isinstance(error, KeyboardInterrupt):
                self._answer(call, outcome)
                raise
        self._answer(call, outcome)

    def in_flight(self, id: Any) -> Call | None:
        """Return the request that has this id now, if one is in flight."""
        return self._calls.get(id) if id is None or type(id) in {str, int} else None

    def cancel(self, call: Call) -> None:
        """Do what `$/cancel_request` asks for; a request that is answered already is left alone.

        Rule: request-cancel-covers-one-prompt.
        """
        if self._calls.get(call.context.id) is not call:
            return
        on_cancel = call.context.cancel_callback
        if on_cancel is None:
            call.scope.cancel()
            return
        try:
            on_cancel()
        except Exception:
            logger.exception("cancelling %r failed", call.context.method)

    async def idle(self) -> None:
        """Return when no request is in flight."""
        while self._calls:
            await self._idle.wait()

    def _answer(self, call: Call, outcome: dict[str, Any] | RpcError) -> None:
        context = call.context
        del self._calls[context.id]
        self._send(self._response(context, outcome))
        for callback in context.response_callbacks:
            try:
                callback()
            except Exception:
                logger.exception("a callback after the response to %r failed", context.method)
        if not self._calls:
            self._idle.set()
            self._idle = anyio.Event()

    def _response(self, context: RequestContext, outcome: dict[str, Any] | RpcError) -> bytes:
        try:
            if isinstance(outcome, RpcError):
                return error_frame(context.id, outcome)
            return response_frame(context.id, outcome)
        except (TypeError, ValueError) as error:
            doing = f"writing the response to {context.method!r}"
            return error_frame(context.id, self._failures.record(doing, error))

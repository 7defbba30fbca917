"""Requests of ours that wait for the client's answer."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import anyio

from acp_server.rpc.envelope import CANCEL_REQUEST, Response, notification_frame, request_frame
from acp_server.rpc.errors import (
    INTERNAL_ERROR,
    ConnectionClosedError,
    RemoteError,
    RequestTimeoutError,
)


class _Pending:
    """One open request: an event, and what the client answered."""

    __slots__ = ("answered", "error", "result")

    def __init__(self) -> None:
        self.answered = anyio.Event()
        self.result: Any = None
        self.error: RemoteError | ConnectionClosedError | None = None


class OutgoingRequests:
    """Sends requests in an id space of our own and hands each answer to the one who asked.

    Args:
        send: Takes a complete frame.
    """

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._ids = itertools.count(1)
        self._pending: dict[int, _Pending] = {}
        self._closed = False

    async def request(self, method: str, params: Any, *, timeout_s: float = math.inf) -> Any:
        """Ask the client and wait for its answer.

        Given up (by timeout or by cancellation) it tells the client so, and a late answer is
        ignored.

        Raises:
            RemoteError: The client answered with an error.
            RequestTimeoutError: No answer within `timeout_s` seconds.
            ConnectionClosedError: The connection is closed, or closed before the answer.
            TypeError, ValueError: The params cannot be written as JSON.
        """
        if self._closed:
            raise ConnectionClosedError
        request_id = next(self._ids)
        frame = request_frame(request_id, method, params)
        pending = self._pending[request_id] = _Pending()
        self._send(frame)
        try:
            with anyio.move_on_after(timeout_s):
                await pending.answered.wait()
        finally:
            # Still there: nobody answered, whether by timeout or by cancellation.
            given_up = self._pending.pop(request_id, None) is not None
            if given_up:
                self._send(notification_frame(CANCEL_REQUEST, {"requestId": request_id}))
        if given_up:
            raise RequestTimeoutError(method, timeout_s)
        if pending.error is not None:
            raise pending.error
        return pending.result

    def settle(self, response: Response) -> bool:
        """Give a response to the one who waits for it; return whether anyone did."""
        # A client that keeps numbers as doubles may answer 1 as 1.0; true is equal to 1 as well.
        known = isinstance(response.id, int | float) and not isinstance(response.id, bool)
        pending = self._pending.pop(response.id, None) if known else None
        if pending is None:
            return False
        if response.error is not None:
            pending.error = _remote_error_from_body(response.error)
        else:
            pending.result = response.result
        pending.answered.set()
        return True

    def refuse(self) -> None:
        """Fail every later request; those that are open go on."""
        self._closed = True

    def close(self) -> None:
        """Fail all open requests and every later one. Idempotent."""
        self._closed = True
        open_requests, self._pending = self._pending, {}
        for pending in open_requests.values():
            pending.error = ConnectionClosedError()
            pending.answered.set()


def _remote_error_from_body(body: Any) -> RemoteError:
    fields = body if isinstance(body, dict) else {}
    code, message = fields.get("code"), fields.get("message")
    return RemoteError(
        code if type(code) is int else INTERNAL_ERROR,
        message if isinstance(message, str) else "",
        fields.get("data"),
    )

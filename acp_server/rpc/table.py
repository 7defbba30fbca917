"""What the owner of a connection gives to its peer: handlers, by method name."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

RequestId = str | int | None
"""Id of a request as the client chose it; `null` is legal in ACP v1, if discouraged."""

Params = dict[str, Any]


class RequestContext:
    """What a handler may know of, and ask for, the request it answers.

    Attributes:
        id: The request's id, as the client chose it.
        method: The request's method.
    """

    __slots__ = ("_after_response", "_on_cancel", "id", "method")

    def __init__(self, id: RequestId, method: str) -> None:
        self.id = id
        self.method = method
        self._after_response: list[Callable[[], None]] = []
        self._on_cancel: Callable[[], None] | None = None

    def after_response(self, fn: Callable[[], None]) -> None:
        """Call `fn` synchronously right behind the response (result or error) in the outbox.

        Nothing gets between the two: what `fn` sends follows the response on the wire.
        """
        self._after_response.append(fn)

    def on_cancel(self, fn: Callable[[], None]) -> None:
        """Let this handler answer a `$/cancel_request` itself: `fn` tells it to.

        Without it the handler's scope is cancelled and the request is answered -32800. To be
        called before the handler's first await, else a cancel may come before it.
        """
        self._on_cancel = fn

    @property
    def cancel_callback(self) -> Callable[[], None] | None:
        """What was given to `on_cancel`, if anything."""
        return self._on_cancel

    @property
    def response_callbacks(self) -> list[Callable[[], None]]:
        """What was given to `after_response`, in order."""
        return self._after_response


Handler = Callable[[RequestContext, Params], Awaitable[dict[str, Any] | None]]
"""Answers one request. `None` is answered `{}`; a raised `RpcError` becomes the error."""

NotificationHandler = Callable[[Params], Awaitable[None] | None]
"""Takes one notification, synchronously or not; what it raises is logged."""


@dataclass(frozen=True, slots=True)
class MethodTable:
    """The methods of a connection, without `initialize` and `$/cancel_request`."""

    requests: Mapping[str, Handler]
    notifications: Mapping[str, NotificationHandler] = field(default_factory=dict)

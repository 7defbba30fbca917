"""The server's end of one JSON-RPC connection.

The read loop classifies frames and never waits for a handler: each request and each notification
is a task of its own, started in the order of arrival, so that the synchronous beginning of a prompt
runs before that of a cancel in the same packet. `initialize` is answered by the loop itself, before
anything heavy is imported (initialize-is-answered-alone). What the methods do is not known here.
"""

import inspect
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio import to_thread
from anyio.lowlevel import checkpoint

from acp_server.rpc.envelope import (
    CANCEL_REQUEST,
    Invalid,
    Notification,
    Request,
    Response,
    error_frame,
    notification_frame,
    read_envelope,
    response_frame,
)
from acp_server.rpc.errors import RpcError
from acp_server.rpc.failures import FailureLog, random_diagnostic_id
from acp_server.rpc.incoming import Call, IncomingRequests
from acp_server.rpc.outgoing import OutgoingRequests
from acp_server.rpc.table import MethodTable, NotificationHandler, Params
from acp_server.transport.base import Transport
from acp_server.transport.framing import OversizeFrame

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from acp_server.rpc.dispatch import Dispatcher

logger = logging.getLogger(__name__)

_INITIALIZE: Final = "initialize"
_TOO_EARLY: Final = "initialize comes first"

_SLICE: Final = 64
"""Frames, or KiB of them, taken between two turns of the event loop: a few milliseconds."""

_LARGE_BYTES: Final = 64 * 1024
"""Above it a frame is read in a thread: the values of one may take seconds to look through."""

_FLUSH_S: Final = 1.0
"""How long the answer to `initialize` may take to leave before the imports begin anyway."""

_HANDLER_GRACE_S: Final = 0.5
_DRAIN_GRACE_S: Final = 0.5
"""After the end of input and the teardown: time for handlers to answer, for answers to leave.

With the 3 s that a stuck tool has, all of it fits into the 5 s for which a client waits.
"""


class Peer:
    """Serves one client: answers its requests, and asks it what only it knows.

    Args:
        transport: The connection; opened and closed by its owner, run by `serve`.
        initialize: Answers `initialize` synchronously; may raise `RpcError`. Called each time.
        methods: Called right after the first answer to `initialize` has left; returns the methods
            and may import what they need. If it raises, every request is answered with an error
            until another `initialize` succeeds.
        on_eof: Called when input has ended, while the handlers still run; may also be assigned
            later. It ends what the connection stands for.
        new_diagnostic_id: Source of the names under which unexpected failures are logged.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        initialize: Callable[[Params], dict[str, Any]],
        methods: Callable[[], MethodTable],
        on_eof: Callable[[], Awaitable[None]] | None = None,
        new_diagnostic_id: Callable[[], str] = random_diagnostic_id,
    ) -> None:
        self.on_eof = on_eof
        # The transport's own method: one call less on the path of every token.
        self.send = transport.send
        self._transport = transport
        self._initialize = initialize
        self._methods = methods
        self._failures = FailureLog(new_diagnostic_id)
        self._incoming = IncomingRequests(transport.send, self._failures)
        self._outgoing = OutgoingRequests(transport.send)
        self._dispatcher: Dispatcher | None = None
        self._no_methods: RpcError | None = None
        self._notifications: dict[str, NotificationHandler] = {}
        self._reading = anyio.CancelScope()
        # Of its own: tools that block threads must not keep a cancel from being read.
        self._readers = anyio.CapacityLimiter(1)
        self._tasks: TaskGroup | None = None

    @property
    def congested(self) -> bool:
        """Whether producers of updates should wait for `room`."""
        return self._transport.congested

    async def room(self) -> None:
        """Return as soon as the connection is not congested, or is closed."""
        await self._transport.room()

    def notify(self, method: str, params: Any) -> None:
        """Enqueue a notification.

        Raises:
            TypeError, ValueError: The params cannot be written as JSON.
        """
        self.send(notification_frame(method, params))

    async def request(self, method: str, params: Any, *, timeout_s: float | None = None) -> Any:
        """Ask the client and wait for its answer; never from code that the read loop awaits.

        Cancelled or timed out it sends `$/cancel_request` and ignores a late answer.

        Raises:
            RemoteError: The client answered with an error.
            RequestTimeoutError: No answer within `timeout_s` seconds.
            ConnectionClosedError: The connection is closed, or closed before the answer.
            TypeError, ValueError: The params cannot be written as JSON.
        """
        return await self._outgoing.request(
            method, params, timeout_s=math.inf if timeout_s is None else timeout_s
        )

    def stop(self) -> None:
        """End `serve` in order, as if the client had closed its side."""
        self._reading.cancel()

    async def serve(self) -> None:
        """Serve until the client has closed either side, or `stop`; then tear down.

        Teardown: `on_eof`, a moment for the handlers to answer, cancellation of the rest (which is
        answered too), a moment for the answers to leave. Cancelling this call skips `on_eof`.

        Raises:
            Exception: What `methods` or `on_eof` raised, after the teardown.
        """
        failures: list[Exception] = []
        async with anyio.create_task_group() as writer:
            writer.start_soon(self._write)
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                for phase in (self._read, self._end):
                    try:
                        await phase()
                    except Exception as error:  # noqa: BLE001 - raised below, not in a group
                        failures.append(error)
                tasks.cancel_scope.cancel()
            with anyio.move_on_after(_DRAIN_GRACE_S):
                await self._transport.drained()
            writer.cancel_scope.cancel()
        if failures:
            raise failures[0]

    async def _write(self) -> None:
        await self._transport.run()
        # Nobody reads what we say any more.
        self._reading.cancel()

    async def _read(self) -> None:
        with self._reading:
            while (frames := await self._transport.receive()) is not None:
                taken = 0.0
                for frame in frames:
                    await self._take(frame)
                    taken += 1 + len(frame) / 1024
                    if taken >= _SLICE:
                        await checkpoint()
                        taken = 0
                if self._transport.overloaded:
                    await self._transport.relieved()

    async def _end(self) -> None:
        self._outgoing.refuse()
        try:
            if self.on_eof is not None:
                await self.on_eof()
        finally:
            self._outgoing.close()
        with anyio.move_on_after(_HANDLER_GRACE_S):
            await self._incoming.idle()

    async def _take(self, frame: bytes | OversizeFrame) -> None:
        if isinstance(frame, OversizeFrame):
            detail = f"a frame may have {frame.limit_bytes} bytes"
            self.send(error_frame(None, RpcError.invalid_request(detail)))
            return
        if len(frame) > _LARGE_BYTES:
            envelope = await to_thread.run_sync(read_envelope, frame, limiter=self._readers)
        else:
            envelope = read_envelope(frame)
        match envelope:
            case Request() as request:
                await self._take_request(request)
            case Notification() as notification:
                self._take_notification(notification)
            case Response() as response:
                if not self._outgoing.settle(response):
                    logger.info("ignored a response to no open request")
            case Invalid() as invalid:
                self._take_invalid(invalid)

    def _take_invalid(self, invalid: Invalid) -> None:
        if invalid.bare_id and self._outgoing.settle(Response(invalid.id, None, None)):
            return
        logger.info("refused a frame: %s", invalid.message)
        if invalid.answered:
            self.send(error_frame(invalid.id, RpcError(invalid.code, invalid.message)))

    async def _take_request(self, request: Request) -> None:
        try:
            if request.method == _INITIALIZE:
                await self._take_initialize(request)
            elif self._dispatcher is None:
                raise self._no_methods or RpcError.invalid_request(_TOO_EARLY)
            else:
                call = self._incoming.admit(request.id, request.method)
                self._start(self._incoming.run, call, self._dispatcher.dispatch, request.params)
        except RpcError as error:
            self.send(error_frame(request.id, error))

    async def _take_initialize(self, request: Request) -> None:
        try:
            frame = response_frame(request.id, self._initialize(request.params))
        except RpcError:
            raise
        except Exception as error:
            raise self._failures.record("initialize", error) from error
        self.send(frame)
        if self._dispatcher is None:
            with anyio.move_on_after(_FLUSH_S):
                await self._transport.drained()
            try:
                self._load_methods()
            except Exception as error:  # noqa: BLE001 - a broken installation is told, and survived
                entry = self._failures.record("loading the methods", error).data["logEntry"]
                name = type(error).__name__
                sentence = f"the server could not load its methods ({name}), log entry {entry}"
                self._no_methods = RpcError.internal(sentence)

    def _load_methods(self) -> None:
        from acp_server.rpc.dispatch import Dispatcher  # noqa: PLC0415 - heavy, see that module

        table = self._methods()
        self._notifications = dict(table.notifications)
        self._dispatcher = Dispatcher(table, self._failures)

    def _take_notification(self, notification: Notification) -> None:
        if self._dispatcher is None:
            return
        if notification.method == CANCEL_REQUEST:
            # Found on arrival: a request of the same id that comes later is not meant. Cancelled in
            # a task, behind the beginning of the one that is.
            call = self._incoming.in_flight(notification.params.get("requestId"))
            if call is not None:
                self._start(self._cancel, call)
        elif handler := self._notifications.get(notification.method):
            self._start(self._run_notification, handler, notification)

    async def _cancel(self, call: Call) -> None:
        self._incoming.cancel(call)

    def _start(self, task: Callable[..., Coroutine[Any, Any, None]], *args: object) -> None:
        # Tasks begin in the order in which they are started; the order of arrival hangs on that.
        if self._tasks is not None:
            self._tasks.start_soon(task, *args)

    async def _run_notification(
        self, handler: NotificationHandler, notification: Notification
    ) -> None:
        try:
            result = handler(notification.params)
            if inspect.isawaitable(result):
                await result
        except RpcError as error:
            # The client's fault, and nobody to tell.
            logger.info("ignored a notification %r: %s", notification.method, error)
        except Exception:
            logger.exception("notification %r failed", notification.method)

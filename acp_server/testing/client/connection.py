"""The client's end of JSON-RPC: sends, matches answers, hands out what the agent asks.

Every frame of both directions is kept in `frames` and shown to the checker in the order in which
it passed here.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import anyio
import orjson
from anyio.abc import TaskGroup

from acp_server.testing.checks import FrameChecker
from acp_server.testing.client.channels import Channel
from acp_server.testing.errors import AcpError, AgentGoneError, Sender

Params: TypeAlias = Mapping[str, Any]

_CANCELLED = -32800
_INTERNAL = -32603


class RecordedFrame(NamedTuple):
    """One line that passed, without its LF."""

    sender: Sender
    data: bytes


class NeverAnswer(Exception):  # noqa: N818 - an instruction, not a failure
    """Raised by the answer to a request that the client is to leave open."""


class PendingRequest:
    """A request of ours that awaits its answer."""

    def __init__(self, request_id: int, method: str) -> None:
        self.request_id = request_id
        self.method = method
        self.answered = anyio.Event()
        self._result: Any = None
        self._error: Exception | None = None

    def settle(self, result: Any, error: Exception | None) -> None:
        """Set the outcome; later ones change nothing."""
        if not self.answered.is_set():
            self._result, self._error = result, error
            self.answered.set()

    def outcome(self) -> Any:
        """Return the result of an answered request.

        Raises:
            AcpError: If the agent refused.
            AgentGoneError: If it went away.
        """
        if self._error is not None:
            raise self._error
        return self._result


class OpenRequest:
    """A request of the agent that the client is answering."""

    def __init__(self, method: str, params: Params) -> None:
        self.method = method
        self.params = params
        self._scope = anyio.CancelScope()
        self._settled: dict[str, Any] | None = None

    def settle(self, answer: dict[str, Any]) -> None:
        """Give up the answer in the making and send `{"result": …}` or `{"error": …}`."""
        self._settled = answer
        self._scope.cancel()

    async def answer(self, respond: Callable[[str, Params], Awaitable[Any]]) -> dict[str, Any]:
        """Return the members of the response, `{}` for none."""
        made: dict[str, Any] = {}
        with self._scope:
            try:
                made = {"result": await respond(self.method, self.params)}
            except NeverAnswer:
                return {}
            except AcpError as error:
                made = {"error": _error_object(error)}
        return self._settled or made


class ClientConnection:
    """One connection to an agent.

    Args:
        channel: Carries the lines.
        checker: Sees every frame.
        respond: Answers requests of the agent; raises `AcpError` or `NeverAnswer`.
        notified: Called with each notification, in order, before anything behind it is read.
        stderr: Returns what the agent wrote on stderr, for messages.
    """

    def __init__(
        self,
        channel: Channel,
        checker: FrameChecker,
        *,
        respond: Callable[[str, Params], Awaitable[Any]],
        notified: Callable[[str, Params], None],
        stderr: Callable[[], str],
    ) -> None:
        self.frames: list[RecordedFrame] = []
        self.agent_requests: list[RecordedFrame] = []
        self.open_requests: dict[int | str, OpenRequest] = {}
        self.gone = anyio.Event()
        self.changed = anyio.Event()
        self._channel = channel
        self._checker = checker
        self._respond = respond
        self._notified = notified
        self._stderr = stderr
        self._pending: dict[int, PendingRequest] = {}
        self._next_id = 0
        self._lock = anyio.Lock()

    async def run(self, tasks: TaskGroup) -> None:
        """Read until the agent closes; answers are made in `tasks`."""
        while (line := await self._channel.receive()) is not None:
            self.frames.append(RecordedFrame("agent", line))
            self._checker.from_agent(line + b"\n")
            self._take(line, tasks)
            self._wake()
        self.gone.set()
        for pending in self._pending.values():
            pending.settle(None, AgentGoneError(f"the answer to {pending.method}", self._stderr()))
        self._wake()

    def new_request(self, method: str) -> PendingRequest:
        """Return a request that is ready for its answer; `send_request` sends it."""
        pending = PendingRequest(self._next_id, method)
        self._next_id += 1
        self._pending[pending.request_id] = pending
        if self.gone.is_set():
            pending.settle(None, AgentGoneError(f"the answer to {method}", self._stderr()))
        return pending

    async def send_request(
        self, pending: PendingRequest, params: Params, *, checked: bool = True
    ) -> None:
        """Send a request, once; the answer may come before this returns."""
        if not pending.answered.is_set():
            frame = {"id": pending.request_id, "method": pending.method, "params": params}
            await self._send(frame, checked=checked)

    async def notify(self, method: str, params: Params, *, checked: bool = True) -> None:
        """Send a notification."""
        await self._send({"method": method, "params": params}, checked=checked)

    async def send_raw(self, data: bytes, *, checked: bool = False) -> None:
        """Write bytes as they are; a write to an agent that has gone is dropped."""
        async with self._lock:
            lines = data.removesuffix(b"\n").split(b"\n")
            self.frames.extend(RecordedFrame("client", line) for line in lines)
            self._checker.from_client(data, checked=checked)
            try:
                await self._channel.send(data)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                # Its end is seen, and told to whoever waits, by the reader.
                return

    async def _send(self, members: Mapping[str, Any], *, checked: bool) -> None:
        frame = orjson.dumps({"jsonrpc": "2.0", **members}) + b"\n"
        await self.send_raw(frame, checked=checked)

    def _wake(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()

    def _take(self, line: bytes, tasks: TaskGroup) -> None:
        try:
            frame = orjson.loads(line)
        except orjson.JSONDecodeError:
            return  # the checker has it
        if not isinstance(frame, dict):
            return
        method, params = frame.get("method"), frame.get("params") or {}
        if not isinstance(method, str):
            self._take_answer(frame)
        elif isinstance(frame.get("id"), int | str):
            self.agent_requests.append(RecordedFrame("agent", line))
            opened = self.open_requests[frame["id"]] = OpenRequest(method, params)
            tasks.start_soon(self._answer, frame["id"], opened)
        elif method == "$/cancel_request":
            self._cancel_answer(params.get("requestId"))
        else:
            self._notified(method, params)

    def _take_answer(self, frame: dict[str, Any]) -> None:
        request_id = frame.get("id")
        if not isinstance(request_id, int):
            return
        pending = self._pending.pop(request_id, None)
        if pending is None:
            return
        error = frame.get("error")
        if isinstance(error, dict):
            code, message = error.get("code", _INTERNAL), error.get("message", "")
            pending.settle(None, AcpError(code, message, error.get("data")))
        else:
            pending.settle(frame.get("result"), None)

    def _cancel_answer(self, request_id: Any) -> None:
        opened = self.open_requests.get(request_id)
        if opened is not None:
            opened.settle({"error": {"code": _CANCELLED, "message": "Request cancelled"}})

    async def _answer(self, request_id: int | str, opened: OpenRequest) -> None:
        answer = await opened.answer(self._respond)
        self.open_requests.pop(request_id, None)
        if answer:
            await self._send({"id": request_id, **answer}, checked=True)


def _error_object(error: AcpError) -> dict[str, Any]:
    members = {"code": error.code, "message": error.message}
    return members if error.data is None else {**members, "data": error.data}

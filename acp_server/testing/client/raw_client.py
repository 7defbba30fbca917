"""A client of any JSON-RPC agent: its process, its frames, raw requests and bounded waits.

Knows no method of ACP; `client.AcpClient` adds them.
"""

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import anyio
import orjson

from acp_server.testing.checks import FrameChecker
from acp_server.testing.client.channels import FrameTransport, ProcessChannel, TransportChannel
from acp_server.testing.client.connection import (
    ClientConnection,
    Params,
    PendingRequest,
    RecordedFrame,
)
from acp_server.testing.errors import AcpError, AcpTimeoutError, AgentExitError, AgentGoneError

DEFAULT_TIMEOUT_S = 10.0
EXIT_TIMEOUT_S = 5.0  # an agent must be gone 5 s after EOF (bad-input-never-ends-server)
METHOD_NOT_FOUND = -32601

T = TypeVar("T")


class RawClient:
    """One client connection; an async context manager, made by `spawn` or `over`.

    Attributes:
        checker: The checker that sees all frames of this connection.
    """

    def __init__(
        self,
        channel: ProcessChannel | TransportChannel,
        *,
        checker: FrameChecker | None = None,
        timeout: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        self.checker = checker or FrameChecker()
        self._channel = channel
        self._timeout_s = timeout
        self._stack = AsyncExitStack()
        self._ended_by_test = False
        self._connection = ClientConnection(
            channel,
            self.checker,
            respond=self._respond,
            notified=self._take_notification,
            stderr=lambda: self.stderr,
        )

    @classmethod
    def spawn(
        cls,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        **options: Any,
    ) -> Self:
        """Return a client of a subprocess, which starts when the client's block is entered."""
        return cls(ProcessChannel(argv, env=env, cwd=cwd), **options)

    @classmethod
    def over(cls, transport: FrameTransport, **options: Any) -> Self:
        """Return a client over a transport, whose `run` the client takes care of."""
        return cls(TransportChannel(transport), **options)

    async def __aenter__(self) -> Self:
        await self._stack.__aenter__()
        await self._stack.enter_async_context(self._channel)
        tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._stack.callback(tasks.cancel_scope.cancel)
        tasks.start_soon(self._connection.run, tasks)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        fault: str | None = None
        try:
            if error is None:
                fault = await self._leave()
        finally:
            # Nothing of the block goes into the task group, which would wrap it in a group.
            await self._stack.__aexit__(None, None, None)
        if error is None:
            # An agent that ended badly has open requests; how it ended is what matters then.
            self.checker.finish(complete=fault is None and not self._ended_by_test)
            self.checker.raise_violations()
            if fault is not None:
                raise AgentExitError(fault, self.stderr)

    # The process.

    @property
    def pid(self) -> int:
        """Process id of the agent."""
        return self._process_channel.process.pid

    @property
    def stderr(self) -> str:
        """What the agent has written on stderr; "" over a transport."""
        return self._channel.stderr if isinstance(self._channel, ProcessChannel) else ""

    @property
    def exit_code(self) -> int | None:
        """Exit code, negative for a signal, or None while it runs."""
        return self._process_channel.process.returncode

    def kill(self) -> None:
        """Send SIGKILL. From here on, unanswered requests are no violation."""
        self._ended_by_test = True
        self._process_channel.process.kill()

    def terminate(self) -> None:
        """Send SIGTERM. From here on, unanswered requests are no violation."""
        self._ended_by_test = True
        self._process_channel.process.terminate()

    def interrupt(self) -> None:
        """Send SIGINT, as Ctrl-C does. From here on, unanswered requests are no violation."""
        self._ended_by_test = True
        self._process_channel.process.send_signal(signal.SIGINT)

    async def close_stdin(self) -> None:
        """End the agent's input."""
        await self._channel.close_input()

    async def wait(self, timeout: float | None = None) -> int:  # noqa: ASYNC109
        """Wait until the agent has exited and its output is read; return the exit code."""
        with self._limit("exit of the agent", timeout):
            code = await self._process_channel.process.wait()
            await self._connection.gone.wait()
        return code

    async def ended(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Wait until the agent has closed its side and all it said is read."""
        with self._limit("end of the agent's output", timeout):
            await self._connection.gone.wait()

    # What passes.

    @property
    def frames(self) -> list[RecordedFrame]:
        """All lines of both directions, in order."""
        return self._connection.frames

    @property
    def agent_requests(self) -> list[dict[str, Any]]:
        """All requests of the agent, parsed, in order."""
        return [orjson.loads(frame.data) for frame in self._connection.agent_requests]

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
        *,
        checked: bool = False,
    ) -> Any:
        """Send any request and return its result; it may be wrong unless `checked`."""
        pending = self._connection.new_request(method)
        await self._connection.send_request(pending, params or {}, checked=checked)
        return await outcome(pending, self._seconds(timeout))

    async def start_request(
        self, method: str, params: Mapping[str, Any] | None = None
    ) -> PendingRequest:
        """Send any request and return once it is written."""
        pending = self._connection.new_request(method)
        await self._connection.send_request(pending, params or {}, checked=False)
        return pending

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send any notification."""
        await self._connection.notify(method, params or {}, checked=False)

    async def send_raw(self, data: bytes) -> None:
        """Write bytes as they are."""
        await self._connection.send_raw(data)

    async def wait_for_agent_request(
        self,
        method: str,
        timeout: float | None = None,  # noqa: ASYNC109
        *,
        after: int = 0,
    ) -> dict[str, Any]:
        """Return the first request of the agent, come or to come, of this method."""

        def find() -> dict[str, Any] | None:
            rest = self.agent_requests[after:]
            return next((frame for frame in rest if frame["method"] == method), None)

        return await self._wait_for(find, f"request {method} of the agent", timeout)

    async def wait_for_frame(
        self,
        predicate: Callable[[dict[str, Any]], bool],
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> dict[str, Any]:
        """Return the first frame of the agent, come or to come, that is an object and fits."""

        def find() -> dict[str, Any] | None:
            lines = (frame.data for frame in self.frames if frame.sender == "agent")
            frames = (orjson.loads(line) for line in lines)
            return next((frame for frame in frames if predicate(frame)), None)

        return await self._wait_for(find, "frame that fits", timeout)

    async def _wait_for(
        self,
        find: Callable[[], T | None],
        what: str,
        timeout: float | None,  # noqa: ASYNC109
    ) -> T:
        with self._limit(what, timeout):
            while (found := find()) is None:
                if self._connection.gone.is_set():
                    raise AgentGoneError(f"a {what}", self.stderr)
                await self._connection.changed.wait()
        return found

    @contextmanager
    def _limit(self, what: str, timeout: float | None) -> Iterator[None]:
        seconds = self._seconds(timeout)
        with limit(what, seconds):
            yield

    def _seconds(self, timeout: float | None) -> float:
        return self._timeout_s if timeout is None else timeout

    @property
    def _process_channel(self) -> ProcessChannel:
        if not isinstance(self._channel, ProcessChannel):
            msg = "this client has no process of its own"
            raise TypeError(msg)
        return self._channel

    async def _respond(self, method: str, params: Params) -> Any:
        """Answer a request of the agent; overridden."""
        raise AcpError(METHOD_NOT_FOUND, f"Method not found: {method}", {"method": method})

    def _take_notification(self, method: str, params: Params) -> None:
        """Take a notification of the agent; overridden."""

    async def _leave(self) -> str | None:
        """End the agent's input and wait for its exit; say what was wrong with that."""
        await self.close_stdin()
        if not isinstance(self._channel, ProcessChannel):
            self._ended_by_test = True  # what the agent answers now has no way back
            return None
        try:
            code = await self.wait(EXIT_TIMEOUT_S)
        except AcpTimeoutError:
            late = self._channel.process.returncode is None
            return f"did not {'exit' if late else 'close stdout'} within {EXIT_TIMEOUT_S} s"
        return None if code == 0 or self._ended_by_test else f"exited with code {code}"


@contextmanager
def limit(what: str, timeout_s: float) -> Iterator[None]:
    """Bound the block.

    Raises:
        AcpTimeoutError: If it takes longer; it names `what` was awaited.
    """
    with anyio.move_on_after(timeout_s) as scope:
        yield
    if scope.cancelled_caught:
        raise AcpTimeoutError(what, timeout_s)


async def outcome(pending: PendingRequest, timeout_s: float) -> Any:
    """Wait for the answer to a request and return its result.

    Raises:
        AcpError: If the agent answered with an error.
        AcpTimeoutError: If it did not answer in time.
        AgentGoneError: If it went away.
    """
    with limit(f"answer to {pending.method}", timeout_s):
        await pending.answered.wait()
    return pending.outcome()

"""Where the client's bytes go: into a subprocess, or through a transport of the same process.

A channel delivers whole lines and knows nothing of JSON. It does not use the server's framer, so
that a fault there is seen and not mirrored.
"""

import subprocess
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import anyio
from anyio.abc import Process

_CHUNK_BYTES = 1 << 16  # what a pipe holds


class Channel(Protocol):
    """An open connection to an agent."""

    async def receive(self) -> bytes | None:
        """Return the next line without its LF, or None at the end. The last may be unterminated."""
        ...

    async def send(self, data: bytes) -> None:
        """Write bytes; raises `anyio.BrokenResourceError` when the agent is gone."""
        ...

    async def close_input(self) -> None:
        """Tell the agent that no more will come. Idempotent."""
        ...


class FrameTransport(Protocol):
    """The part of a server transport that the client uses."""

    async def run(self) -> None:
        """Write what is sent."""
        ...

    async def receive(self) -> Sequence[object] | None:
        """Return frames, or None at the end."""
        ...

    def send(self, frame: bytes) -> None:
        """Enqueue one frame."""
        ...

    async def drained(self) -> None:
        """Return when what was sent is written."""
        ...

    async def aclose(self) -> None:
        """Close."""
        ...


class LineReader:
    """Cuts a byte stream into lines; knows no limit but memory."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that `data` completes, without their LF."""
        self._rest += data
        if b"\n" not in data:
            return []
        *lines, rest = self._rest.split(b"\n")
        self._rest = rest
        return [bytes(line) for line in lines]

    def take_rest(self) -> bytes:
        """Return and forget what came behind the last LF."""
        rest, self._rest = bytes(self._rest), bytearray()
        return rest


class ProcessChannel:
    """The stdin and stdout of a subprocess, whose stderr is collected. Async context manager."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
    ) -> None:
        self._argv = list(argv)
        self._env = dict(env) if env is not None else None
        self._cwd = cwd
        self._stack = AsyncExitStack()
        self._process: Process | None = None
        self._reader = LineReader()
        self._lines: list[bytes] = []
        self._stderr = bytearray()
        self._stderr_ended = anyio.Event()

    async def __aenter__(self) -> Self:
        self._process = await anyio.open_process(
            self._argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._env,
            cwd=self._cwd,
        )
        await self._stack.__aenter__()
        tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._stack.callback(tasks.cancel_scope.cancel)
        tasks.start_soon(self._collect_stderr)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # A child of the agent may hold its stderr open for ever; a second is enough for what is
        # in the pipe already.
        with anyio.move_on_after(1, shield=True):
            if self.process.returncode is None:
                self.process.kill()
            await self.process.wait()
            await self._stderr_ended.wait()
        await self._stack.__aexit__(None, None, None)
        with anyio.CancelScope(shield=True):
            await self.process.aclose()

    @property
    def process(self) -> Process:
        """The process; it must have been started."""
        if self._process is None:
            msg = "the agent process has not been started"
            raise RuntimeError(msg)
        return self._process

    @property
    def stderr(self) -> str:
        """All that came on stderr so far."""
        return self._stderr.decode(errors="replace")

    async def receive(self) -> bytes | None:
        """Return the next line, see `Channel`."""
        stdout = self.process.stdout
        while not self._lines and stdout is not None:
            try:
                self._lines = self._reader.feed(await stdout.receive(_CHUNK_BYTES))[::-1]
            except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
                return self._reader.take_rest() or None
        return self._lines.pop()

    async def send(self, data: bytes) -> None:
        """Write bytes, see `Channel`."""
        if self.process.stdin is not None:
            await self.process.stdin.send(data)

    async def close_input(self) -> None:
        """Close stdin."""
        if self.process.stdin is not None:
            await self.process.stdin.aclose()

    async def _collect_stderr(self) -> None:
        if self.process.stderr is not None:
            async for data in self.process.stderr:
                self._stderr += data
        self._stderr_ended.set()


class TransportChannel:
    """A transport of this process, usually one end of a memory pair. Async context manager."""

    def __init__(self, transport: FrameTransport) -> None:
        self._transport = transport
        self._stack = AsyncExitStack()
        self._lines: list[bytes] = []

    async def __aenter__(self) -> Self:
        await self._stack.__aenter__()
        tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._stack.callback(tasks.cancel_scope.cancel)
        tasks.start_soon(self._transport.run)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self._transport.aclose()
        await self._stack.__aexit__(None, None, None)

    async def receive(self) -> bytes | None:
        """Return the next line, see `Channel`."""
        while not self._lines:
            frames = await self._transport.receive()
            if frames is None:
                return None
            self._lines = [frame for frame in frames if isinstance(frame, bytes)][::-1]
        return self._lines.pop()

    async def send(self, data: bytes) -> None:
        """Write bytes, see `Channel`."""
        self._transport.send(data)

    async def close_input(self) -> None:
        """Write what is under way, then close; a pair of memory pipes has no half-close."""
        await self._transport.drained()
        await self._transport.aclose()

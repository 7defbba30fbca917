"""Starts the agent under test and holds it at arm's length: bounded waits, kept violations."""

from __future__ import annotations

import os
import shlex
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import anyio

from acp_server.testing.checks import FrameChecker
from acp_server.testing.client import AcpClient, PromptResult
from acp_server.testing.conformance.outcome import CaseFailed, CaseSkipped
from acp_server.testing.errors import (
    AcpClientError,
    AcpError,
    AcpTimeoutError,
    AgentExitError,
    AgentGoneError,
    FrameViolation,
)

if TYPE_CHECKING:
    from acp_server.testing.client import Answer

AUTH_REQUIRED = -32000
STOP_REASONS = ("end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled")
NO_SESSION = "00000000-dead-7bad-8bad-000000000000"

# What a model that is asked nothing in particular answers fast.
SHORT_PROMPT = "Reply with the single word OK and do nothing else."
LONG_PROMPT = "Count slowly from 1 to 2000, one number a line, and do not stop before the end."


class KeptViolations(FrameChecker):
    """Keeps what is wrong with frames for the case that asks for it."""

    def raise_violations(self) -> None:
        """Raise nothing: a case is about one thing, and frames have cases of their own."""


@dataclass(slots=True)
class Probe:
    """One running agent.

    Attributes:
        client: The client.
        cwd: An empty working directory.
        result: The result of `initialize`.
        permission_requests: Params of permission requests so far.
        harness: Where the agent was started.
    """

    client: AcpClient
    cwd: Path
    result: Mapping[str, Any]
    permission_requests: list[Mapping[str, Any]]
    harness: Harness

    @property
    def timeout_s(self) -> float:
        """How long the agent may take for an answer."""
        return self.harness.timeout_s

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """`agentCapabilities`, {} if there are none."""
        return _object(self.result.get("agentCapabilities"))

    def serves(self, name: str) -> bool:
        """Say whether the agent advertises a session capability: list, resume, close, delete."""
        return _object(self.capabilities.get("sessionCapabilities")).get(name) is not None

    @property
    def loads(self) -> bool:
        """Whether the agent advertises `session/load`."""
        return self.capabilities.get("loadSession") is True

    async def new_session(self) -> str:
        """Open a session.

        Raises:
            CaseSkipped: The agent wants a sign-in first.
        """
        return str((await self.opened())["sessionId"])

    async def opened(self) -> Mapping[str, Any]:
        """Open a session and return the result of `session/new`."""
        try:
            result: Mapping[str, Any] = await self.client.request(
                "session/new", {"cwd": str(self.cwd), "mcpServers": []}, self.timeout_s
            )
        except AcpError as error:
            if error.code == AUTH_REQUIRED:
                reason = "the agent wants a sign-in first; name its method with --authenticate"
                raise CaseSkipped(reason) from error
            raise
        # So that file requests are served from the directory.
        self.client.note_session(str(result["sessionId"]), self.cwd)
        return result

    async def prompt(
        self, session_id: str, prompt: str | Sequence[Mapping[str, Any]] = SHORT_PROMPT
    ) -> PromptResult:
        """Send a prompt and wait for a legal end of its turn.

        Raises:
            CaseSkipped: The agent has failed to answer the simplest of prompts before.
        """
        if self.harness.no_turns is not None:
            raise CaseSkipped(self.harness.no_turns)
        try:
            result = await self.client.prompt(session_id, prompt, self.timeout_s)
        except (AcpError, AcpTimeoutError) as error:
            if prompt == SHORT_PROMPT:
                # No provider, or no credentials: once is enough, and said once.
                self.harness.no_turns = f"the agent answers no prompt: {error}"
            raise
        if result.stop_reason not in STOP_REASONS:
            message = f"the stop reason is {result.stop_reason!r}"
            raise CaseFailed(message)
        return result

    async def refused(self, method: str, params: Mapping[str, Any]) -> AcpError:
        """Send a request that must be refused and return the error."""
        return await self.refusal(self.client.request(method, params, self.timeout_s), method)

    async def refusal(self, answer: Awaitable[Any], what: str) -> AcpError:
        """Wait for an answer that must be an error."""
        try:
            result = await answer
        except AcpError as error:
            return error
        message = f"{what} was accepted, with the result {result!r:.200}"
        raise CaseFailed(message)

    async def lives(self) -> None:
        """Check that the connection is still served: any request gets its answer."""
        try:
            await self.client.request("initialize", {"protocolVersion": 1}, self.timeout_s)
        except AcpError:
            return  # refused, but answered


@dataclass(slots=True)
class Tour:
    """What a walk through everything that the agent offers has shown."""

    violations: list[FrameViolation] = field(default_factory=list)
    exit_fault: str | None = None
    cut_short: str | None = None


def agent_argv(command: str) -> list[str]:
    """Return the words of a command line, paths of the caller's directory made absolute.

    The agent is started elsewhere, so that it finds and leaves nothing in the caller's directory.
    A program without a slash is looked for on PATH, as a shell does. Of `agent.py:name` the part
    before the colon is the path.

    Raises:
        ValueError: A quotation has no end.
    """
    program, *arguments = shlex.split(command) or [""]
    return [_absolute(program) if "/" in program else program, *map(_absolute, arguments)]


def _absolute(word: str) -> str:
    path = Path.cwd() / word.partition(":")[0]
    is_path = path.exists() if "/" in word else path.is_file()
    return str(Path.cwd() / word) if is_path else word


class AgentStartError(AcpClientError):
    """The agent cannot be started, or does not answer `initialize`."""

    def __init__(self, command: str, error: Exception) -> None:
        super().__init__(f"the agent {command!r} cannot be started: {error}")
        self.command = command


class Harness:
    """Starts the agent for the cases.

    Args:
        command: The agent's command line.
        authenticate: Id of the auth method to sign in with, if any.
        timeout_s: How long the agent may take for a turn.

    Attributes:
        no_turns: Why cases that need a turn are skipped: the simplest prompt was not answered.
    """

    def __init__(
        self, command: str, *, authenticate: str | None = None, timeout_s: float = 60.0
    ) -> None:
        self.command = command
        self.timeout_s = timeout_s
        self.no_turns: str | None = None
        self._authenticate = authenticate
        self._tour: Tour | None = None

    @asynccontextmanager
    async def started(
        self,
        *,
        permissions: Iterable[str] = (),
        cwd: Path | None = None,
        capabilities: Mapping[str, Any] | None = None,
        tour: Tour | None = None,
    ) -> AsyncIterator[Probe]:
        """Start the agent, initialize and sign in; end it when the block is left.

        Args:
            permissions: Answers to permission requests by kind, then `reject_once`.
            cwd: Where sessions work; an empty directory by default.
            capabilities: What the client says it can do.
            tour: Takes the violations and the fault of the exit.
        """
        permission_requests: list[Mapping[str, Any]] = []
        with TemporaryDirectory(prefix="acp-conformance-") as folder:
            client = AcpClient.spawn(
                agent_argv(self.command),
                env=dict(os.environ),
                cwd=folder,
                permissions=_answering(list(permissions), permission_requests),
                checker=KeptViolations(),
                timeout=self.timeout_s,
            )
            try:
                async with client:
                    result = await client.initialize(capabilities or {})
                    if self._authenticate is not None:
                        await client.authenticate(self._authenticate)
                    # The temporary folder of macOS is a link.
                    where = Path(await anyio.Path(folder).resolve()) if cwd is None else cwd
                    yield Probe(client, where, result, permission_requests, self)
            except AgentExitError as error:
                if tour is not None:
                    tour.exit_fault = error.reason
            finally:
                if tour is not None:
                    tour.violations += client.checker.violations

    async def check_start(self) -> Mapping[str, Any]:
        """Start the agent once and return its result of `initialize`, {} if it refused.

        Raises:
            AgentStartError: It does not start, so that no case can tell anything.
        """
        try:
            async with self.started() as probe:
                return probe.result
        except (OSError, ValueError, AgentGoneError, AcpTimeoutError) as error:
            raise AgentStartError(self.command, error) from error
        except AcpClientError:
            return {}  # it answers; the cases say what is wrong

    async def tour(self) -> Tour:
        """Walk through what the agent offers, once, and return what was seen."""
        if self._tour is None:
            self._tour = await self._walk()
        return self._tour

    async def _walk(self) -> Tour:
        tour = Tour()
        try:
            async with self.started(permissions=["allow_once"] * 9, tour=tour) as probe:
                session_id = await probe.new_session()
                await probe.prompt(session_id)
                handle = await probe.client.start_prompt(session_id, LONG_PROMPT)
                with anyio.move_on_after(1):
                    await handle.pending.answered.wait()
                await probe.client.cancel(session_id)
                await handle.result(self.timeout_s)
                if probe.loads:
                    await probe.client.load_session(session_id, probe.cwd)
                if probe.serves("list"):
                    await probe.client.list_sessions()
        except (AcpError, AcpTimeoutError, CaseSkipped) as error:
            tour.cut_short = str(error)
        return tour


def _answering(kinds: list[str], permission_requests: list[Mapping[str, Any]]) -> Answer:
    def answer(params: Mapping[str, Any]) -> Any:
        permission_requests.append(params)
        # Not `cancelled`: that would end the turn.
        kind = kinds.pop(0) if kinds else "reject_once"
        for option in params.get("options", ()):
            if option.get("kind") == kind:
                return {"outcome": {"outcome": "selected", "optionId": option["optionId"]}}
        return {"outcome": {"outcome": "cancelled"}}

    return answer


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}

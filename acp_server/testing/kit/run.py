"""A scenario in progress: the server that runs now, its sessions, the names that stand for them.

The steps are carried out on it, see `session_steps`, `prompt_steps` and `misc_steps`.
"""

from collections.abc import Awaitable
from contextlib import AsyncExitStack
from typing import Any

from acp_server.testing.client import AcpClient, PromptHandle
from acp_server.testing.errors import AcpClientError, AcpError
from acp_server.testing.kit.launchers import opened_server
from acp_server.testing.kit.recording import Recording, SessionViews
from acp_server.testing.kit.scenario import ScenarioDirectory, TransportKind
from acp_server.testing.kit.scripted_results import ScriptedResults
from acp_server.testing.kit.step_model import Refusable, SessionRef
from acp_server.testing.kit.workspace import Workspace


class StepFailed(Exception):  # noqa: N818 - says what happened, like an outcome of a test
    """A step did not come out as it should."""


class ScenarioRun:
    """The state of one run of a scenario.

    Args:
        directory: The scenario.
        transport: How the client reaches the server.
        workspace: Fresh directories and a fresh store.

    Attributes:
        recording: What came of the run so far.
        views: What was seen of each session.
        sessions: Ids of the sessions that were opened, in order.
        prompts: All prompts that were sent.
        awaited: Positions of prompts whose end was waited for.
        seen: Updates of the running server before the last prompt or load.
        cursor: `nextCursor` of the last page of sessions.
    """

    def __init__(
        self, directory: ScenarioDirectory, transport: TransportKind, workspace: Workspace
    ) -> None:
        self.recording = Recording(workspace.cwd, workspace.root)
        self.workspace = workspace
        self.views = SessionViews()
        self.sessions: list[str] = []
        self.prompts: list[PromptHandle] = []
        self.awaited: set[int] = set()
        self.seen = 0
        self.cursor = ""
        self.client_results = ScriptedResults(directory.scenario)
        self._directory = directory
        self._transport = transport
        self._agent = directory.agent_spec()
        self._series = 0
        self._stack: AsyncExitStack | None = None
        self._client: AcpClient | None = None
        self._put: dict[tuple[str, int], str] = {}

    # -- the server -------------------------------------------------------------------------

    @property
    def client(self) -> AcpClient:
        """The client of the server that runs."""
        if self._client is None:
            message = "no server runs; `restart` starts one"
            raise StepFailed(message)
        return self._client

    async def start(self, agent: str | None = None) -> None:
        """Start a server, with another agent than before if one is given."""
        if agent is not None:
            self._agent = self._directory.agent_spec(agent)
        self._stack = AsyncExitStack()
        opened = opened_server(
            self._transport,
            self.workspace,
            self.workspace.agent(self._agent),
            self._series,
            self.client_results.methods(),
        )
        self._client = await self._stack.enter_async_context(opened)
        self._client.on_update = self.views.update
        self._series += 1
        self.seen = 0
        self.recording.killed = False

    async def end(self) -> None:
        """End the server in order, if it runs, and keep its frames."""
        if self._stack is None or self._client is None:
            return
        try:
            await self._stack.aclose()
        except AcpClientError as error:
            self.recording.faults.append(str(error))
        self.recording.conversations.append(list(self._client.frames))
        self._stack = self._client = None

    # -- references of the script -----------------------------------------------------------

    async def session(self, ref: SessionRef | None) -> str:
        """Return the id of the session that a step means."""
        if isinstance(ref, str):
            return await self.given(ref) if ref.endswith(".jsonl") else self.text(ref)
        position = len(self.sessions) if ref is None else ref
        if not 0 < position <= len(self.sessions):
            message = "no such session has been opened"
            raise StepFailed(message)
        return self.sessions[position - 1]

    async def given(self, name: str, copy: int = 0) -> str:
        """Put a stored log of the scenario into the store, once, and return its session id."""
        if (name, copy) not in self._put:
            session_id = self._put[name, copy] = await self.workspace.put(name, copy)
            log = await self.workspace.stored_events(session_id)
            self.recording.given[session_id] = 0 if log is None else len(log)
        return self._put[name, copy]

    def text(self, text: str) -> str:
        """Return a text with `{{cwd}}` and `{{session.N}}` replaced by what they stand for."""
        text = text.replace("{{cwd}}", str(self.workspace.cwd))
        for number, session_id in enumerate(self.sessions, 1):
            text = text.replace(f"{{{{session.{number}}}}}", session_id)
        return text

    def fill(self, value: Any) -> Any:
        """Return a JSON value with the texts in it as `text` makes them."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.fill(item) for item in value]
        if isinstance(value, dict):
            return {key: self.fill(item) for key, item in value.items()}
        return value

    async def outcome(self, step: Refusable, answer: Awaitable[Any]) -> Any:
        """Wait for an answer and return it, or None for a refusal that was expected.

        Raises:
            StepFailed: The outcome is not the one that the step names.
            AcpError: It was refused, and the step expects success.
        """
        try:
            result = await answer
        except AcpError as error:
            if not step.must_fail:
                raise
            if step.code is not None and error.code != step.code:
                message = f"it was refused with {error.code} ({error.message}), not {step.code}"
                raise StepFailed(message) from error
            return None
        if step.must_fail:
            message = "it succeeded, and should have been refused"
            raise StepFailed(message)
        return result

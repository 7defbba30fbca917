"""One session with an agent in a synchronous test: what `with acp(...) as run:` binds.

The client is asynchronous and lives in an event loop of its own thread; every call here waits for
its end. Leaving the block ends the server in order and raises what was wrong with its frames.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from anyio.from_thread import BlockingPortal

from acp_server.agents.agent import Agent
from acp_server.testing.checks import Transcript, fold_transcript
from acp_server.testing.client import AcpClient, Answer, PermissionQueue, PromptHandle
from acp_server.testing.errors import AcpClientError
from acp_server.testing.kit.launchers import WAIT_S, opened_server
from acp_server.testing.kit.turn_results import LoadedSession, TurnResult, Update
from acp_server.testing.kit.workspace import Workspace

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


class StartedTurn:
    """A prompt that was sent and not waited for."""

    def __init__(self, portal: BlockingPortal, handle: PromptHandle) -> None:
        self._portal = portal
        self._handle = handle

    def result(self, timeout: float = WAIT_S) -> TurnResult:
        """Wait for the end of the turn."""
        result = self._portal.call(self._handle.result, timeout)
        return TurnResult(result.stop_reason, result.transcript, result.updates)


class AgentRun:
    """One session with an agent; a context manager, made by the fixture `acp`.

    Attributes:
        session_id: The session.
        cwd: Its working directory, where the test may read and write.
        initialized: The result of the last `initialize`.
    """

    def __init__(
        self,
        portal: BlockingPortal,
        workspace: Workspace,
        agent: str | Agent,
        answers: Mapping[str, Answer],
        capabilities: Mapping[str, Any],
        *,
        in_process: bool,
    ) -> None:
        self.session_id = ""
        self.cwd = workspace.cwd
        self.initialized: Mapping[str, Any] = {}
        self._portal = portal
        self._workspace = workspace
        self._agent = agent
        self._answers = answers
        self._capabilities = dict(capabilities)
        self._in_process = in_process
        self._series = 0
        self._client: AcpClient | None = None
        self._opened: AbstractContextManager[AcpClient] | None = None
        self._live: list[Update] = []

    def __enter__(self) -> Self:
        with ExitStack() as started:
            # The portal waits for ever for a server that nobody ends.
            started.push(self._end)
            self._start()
            self.session_id = self._portal.call(self.client.new_session, self.cwd)
            self.client.on_update = self._take
            started.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.stop()
            self._raise_problems()
        except AcpClientError:
            # What the test says comes first; a server that it has upset is no news.
            if error is None:
                raise

    # -- turns ------------------------------------------------------------------------------

    def prompt(
        self, prompt: str | Sequence[Mapping[str, Any]], timeout: float = WAIT_S
    ) -> TurnResult:
        """Send a prompt, text or blocks, and wait for the end of its turn.

        Raises:
            AcpError: The agent answered with an error.
            AcpTimeoutError: It did not answer in time.
        """
        return self.start(prompt).result(timeout)

    def start(self, prompt: str | Sequence[Mapping[str, Any]]) -> StartedTurn:
        """Send a prompt and return once it is written."""
        handle = self._portal.call(self.client.start_prompt, self.session_id, prompt)
        return StartedTurn(self._portal, handle)

    def cancel(self) -> None:
        """Send `session/cancel`."""
        self._portal.call(self.client.cancel, self.session_id)

    def wait_for(self, predicate: Callable[[Update], bool], timeout: float = WAIT_S) -> Update:
        """Return the first update of this session, come or to come, that fits."""
        return self._portal.call(self.client.wait_for_update, predicate, timeout)

    def request(self, method: str, params: Mapping[str, Any] | None = None) -> Any:
        """Send any request and return its result."""
        return self._portal.call(self.client.request, method, params)

    # -- the server -------------------------------------------------------------------------

    @property
    def client(self) -> AcpClient:
        """The client of the running server; its coroutines belong to the portal's event loop."""
        if self._client is None:
            message = "no server runs; `load` starts one"
            raise RuntimeError(message)
        return self._client

    def kill(self) -> None:
        """Send SIGKILL to the server and wait for its end."""
        client = self.client
        self._portal.call(client.kill)
        self._portal.call(client.wait)
        self.stop()

    def stop(self) -> None:
        """End the server in order, if it runs.

        Raises:
            FrameViolationError: Its frames broke rules of the protocol.
            AgentExitError: It did not end as it should.
        """
        self._end(None, None, None)

    def load(self) -> LoadedSession:
        """Load the session, in a new server if none runs, and return what it replays."""
        if self._client is None:
            self._start()
        client = self.client
        client.on_update = None  # a replay is nothing new
        result = self._portal.call(client.load_session, self.session_id, self.cwd)
        replayed = client.transcript_of(self.session_id)
        client.on_update = self._take
        return LoadedSession(replayed, result)

    # -- what is to be seen -----------------------------------------------------------------

    @property
    def transcript(self) -> Transcript:
        """All that was shown live, over all turns and servers."""
        return fold_transcript(self._live)

    @property
    def requests(self) -> list[dict[str, Any]]:
        """What the running server has asked of the client."""
        return self.client.agent_requests

    @property
    def log(self) -> list[dict[str, Any]]:
        """The events of the session that are stored, as JSON."""
        log = self._portal.call(self._workspace.stored_events, self.session_id)
        return [] if log is None else [event.to_json() for event in log.view()]

    # -- inside -----------------------------------------------------------------------------

    def _end(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the server, if it runs, on behalf of an error if there is one."""
        opened, self._opened, self._client = self._opened, None, None
        if opened is not None:
            opened.__exit__(kind, error, traceback)

    def _raise_problems(self) -> None:
        queue = self._answers.get("session/request_permission")
        if isinstance(queue, PermissionQueue) and queue.problems:
            raise AcpClientError("\n".join(queue.problems))

    def _start(self) -> None:
        opened = opened_server(
            "memory" if self._in_process else "subprocess",
            self._workspace,
            self._agent,
            self._series,
            self._answers,
        )
        self._series += 1
        self._opened = self._portal.wrap_async_context_manager(opened)
        self._client = self._opened.__enter__()
        self.initialized = self._portal.call(self._client.initialize, self._capabilities)

    def _take(self, session_id: str, update: Update) -> None:
        if session_id == self.session_id:
            self._live.append(update)

"""The fixture `acp`: a talk with an agent in a synchronous test, without a scenario directory.

The client is asynchronous and lives in an event loop of its own thread; every call here waits for
its end. Leaving a talk ends the server in order and raises what was wrong with its frames.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeAlias, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

from acp_server.agents.agent import Agent
from acp_server.agents.turn import Turn
from acp_server.testing.checks import Card, Plan, Transcript, fold_transcript
from acp_server.testing.client import AcpClient, Answer, PermissionQueue, PromptHandle, PromptResult
from acp_server.testing.errors import AcpClientError
from acp_server.testing.kit.launchers import WAIT_S, opened_server
from acp_server.testing.kit.workspace import Stage

T = TypeVar("T")
AgentLike: TypeAlias = str | Agent | Callable[[Turn], Awaitable[None]]
Update: TypeAlias = Mapping[str, Any]


class Tools(Sequence[Card]):
    """The tool calls of a turn, in order; `tools["Read a.txt"]` finds one by its title."""

    def __init__(self, cards: Sequence[Card]) -> None:
        self._cards = tuple(cards)

    def __getitem__(self, key: Any) -> Any:
        """Return a card by position or title, or cards by slice.

        Raises:
            KeyError: No card has this title, or several do.
        """
        if not isinstance(key, str):
            return self._cards[key]
        found = [card for card in self._cards if card.title == key]
        if len(found) != 1:
            titles = [card.title for card in self._cards]
            raise KeyError(f"{len(found)} tools have the title {key!r}; there are {titles}")
        return found[0]

    def __len__(self) -> int:
        return len(self._cards)

    def __repr__(self) -> str:
        return f"Tools({[(card.title, card.status) for card in self._cards]})"


class TalkTurn(NamedTuple):
    """The end of a turn and what was shown in it.

    Attributes:
        stop_reason: As the agent said.
        transcript: The updates of the turn, folded.
        updates: The updates themselves.
    """

    stop_reason: str
    transcript: Transcript
    updates: tuple[Update, ...]

    @property
    def text(self) -> str:
        """The agent's text, joined."""
        return self.transcript.text

    @property
    def tools(self) -> Tools:
        """The tool calls, each in its last state."""
        return Tools(self.transcript.cards)

    @property
    def plan(self) -> list[tuple[str, str]]:
        """Content and status of each entry of the last plan; empty if there was none."""
        plans: Sequence[Plan] = self.transcript.plans
        return [(entry["content"], entry["status"]) for entry in plans[-1].entries] if plans else []


class StartedTurn:
    """A prompt that was sent and not waited for."""

    def __init__(self, portal: BlockingPortal, handle: PromptHandle) -> None:
        self._portal = portal
        self._handle = handle

    def result(self, timeout: float = WAIT_S) -> TalkTurn:
        """Wait for the end of the turn."""
        return _turn_of(self._portal.call(self._handle.result, timeout))


class LoadedSession(NamedTuple):
    """What a load replayed.

    Attributes:
        transcript: The replay, folded: equal to what was seen live.
        result: The result of `session/load`.
    """

    transcript: Transcript
    result: Mapping[str, Any]


class AcpTalk:
    """One session with an agent; a context manager, made by the fixture `acp`.

    Attributes:
        session_id: The session.
        cwd: Its working directory, where the test may read and write.
        initialized: The result of the last `initialize`.
    """

    def __init__(
        self,
        portal: BlockingPortal,
        stage: Stage,
        agent: str | Agent,
        answers: Mapping[str, Answer],
        capabilities: Mapping[str, Any],
        *,
        in_process: bool,
    ) -> None:
        self.session_id = ""
        self.cwd = stage.cwd
        self.initialized: Mapping[str, Any] = {}
        self._portal = portal
        self._stage = stage
        self._agent = agent
        self._answers = answers
        self._capabilities = dict(capabilities)
        self._in_process = in_process
        self._series = 0
        self._client: AcpClient | None = None
        self._opened: AbstractContextManager[AcpClient] | None = None
        self._live: list[Update] = []

    def __enter__(self) -> Self:
        self._start()
        self.session_id = self._portal.call(self.client.new_session, self.cwd)
        self.client.on_update = self._take
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.stop()
        except AcpClientError:
            # What the test says comes first; a server that it has upset is no news.
            if error is None:
                raise

    # -- turns ------------------------------------------------------------------------------

    def prompt(
        self, prompt: str | Sequence[Mapping[str, Any]], timeout: float = WAIT_S
    ) -> TalkTurn:
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
        opened, self._opened, self._client = self._opened, None, None
        if opened is not None:
            opened.__exit__(None, None, None)

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
        log = self._portal.call(self._stage.stored_events, self.session_id)
        return [] if log is None else [event.to_json() for event in log.view()]

    # -- inside -----------------------------------------------------------------------------

    def _start(self) -> None:
        opened = opened_server(
            "memory" if self._in_process else "subprocess",
            self._stage,
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


class AcpTalks:
    """What the fixture `acp` is: called with an agent it returns a talk; a context manager.

    Args:
        root: An empty directory.
        beside: Where an agent's file may stand: the directory of the test.
    """

    def __init__(self, root: Path, beside: Path) -> None:
        self._root = root
        self._beside = beside
        self._stack = ExitStack()
        self._portal: BlockingPortal | None = None
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    def __call__(
        self,
        agent: AgentLike,
        *,
        permissions: Iterable[str] | Answer = (),
        answers: Mapping[str, Answer] | None = None,
        capabilities: Mapping[str, Any] | None = None,
        workspace: Mapping[str, str] | None = None,
        store: str = "jsonl",
        in_process: bool | None = None,
    ) -> AcpTalk:
        """Return a talk, which starts when its block is entered.

        Args:
            agent: As `--agent` takes it, a file also beside the test; or an agent itself, which
                runs in this process.
            permissions: Answers to permission requests by option kind, first in first out,
                `cancelled` when exhausted; or a function of the request's params.
            answers: Functions that answer further requests of the agent, by method.
            capabilities: What the client says it can do.
            workspace: Texts of files that the working directory holds at the start.
            store: Kind of store.
            in_process: Run the server in this process; by default only if the agent is no name.
        """
        self._count += 1
        root = self._root / f"acp-{self._count}"
        root.mkdir()
        stage = Stage(root, root, store)
        for name, text in (workspace or {}).items():
            path = stage.cwd / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        asked = permissions if callable(permissions) else PermissionQueue(permissions)
        return AcpTalk(
            self._running_portal(),
            stage,
            self._agent(agent),
            {"session/request_permission": asked, **(answers or {})},
            capabilities or {},
            in_process=not isinstance(agent, str) if in_process is None else in_process,
        )

    def _running_portal(self) -> BlockingPortal:
        if self._portal is None:
            self._portal = self._stack.enter_context(start_blocking_portal())
        return self._portal

    def _agent(self, agent: AgentLike) -> str | Agent:
        if isinstance(agent, str):
            file, colon, name = agent.rpartition(":")
            if colon and file.endswith(".py") and not Path(file).exists():
                return f"{self._beside / file}:{name}"
            return f"{Path(file).resolve()}:{name}" if colon and file.endswith(".py") else agent
        if isinstance(agent, Agent):
            return agent
        if inspect.iscoroutinefunction(agent):
            return Agent(name=agent.__name__, drive=agent)
        message = f"an agent is a name, an Agent or an async function, not {agent!r}"
        raise TypeError(message)


def _turn_of(result: PromptResult) -> TalkTurn:
    return TalkTurn(result.stop_reason, result.transcript, result.updates)

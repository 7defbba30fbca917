"""The fixture `acp`: starts agents for a synchronous test, without a scenario directory."""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self, TypeAlias

from anyio.from_thread import BlockingPortal, start_blocking_portal

from acp_server.agents.agent import Agent
from acp_server.agents.turn import Turn
from acp_server.testing.client import Answer, PermissionQueue
from acp_server.testing.kit.agent_run import AgentRun
from acp_server.testing.kit.workspace import Workspace

AgentLike: TypeAlias = str | Agent | Callable[[Turn], Awaitable[None]]


class AcpFixture:
    """The fixture `acp`: called with an agent, it returns a run of it; a context manager.

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
    ) -> AgentRun:
        """Return a run, which starts when its block is entered.

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
        run_workspace = Workspace(root, root, store)
        for name, text in (workspace or {}).items():
            path = run_workspace.cwd / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        on_permission = permissions if callable(permissions) else PermissionQueue(permissions)
        return AgentRun(
            self._running_portal(),
            run_workspace,
            self._agent(agent),
            {"session/request_permission": on_permission, **(answers or {})},
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

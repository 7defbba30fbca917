"""Runs the turns of one session, one after the other: queue, cancel, ends (Z19, contract 6.12)."""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio

from acp_server.agents.active_turn import ActiveTurn, TurnOutcome
from acp_server.agents.errors import CheckpointError
from session_core import HeaderRecorder, current_title

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from anyio.abc import TaskGroup

    from acp_server.agents.agent import Agent
    from acp_server.agents.ids import IdSource
    from acp_server.agents.ports import ClientPort, DurabilityPort, PacePort
    from session_core import Session

_log = logging.getLogger(__name__)

MAX_QUEUED = 16
"""Prompts that may wait behind a running turn; a client that sends more is out of step."""

CANCELLED = TurnOutcome("aborted")
DISPOSED = TurnOutcome("disposed")


class QueueFullError(Exception):
    """More prompts wait than the queue holds."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(f"{limit} prompts are already waiting in this session")


@dataclass(eq=False, slots=True)
class PendingPrompt:
    """A prompt on its way: resolves with the end of the very turn that it started."""

    blocks: Sequence[Mapping[str, Any]]
    _done: anyio.Event = field(default_factory=anyio.Event)
    _outcome: TurnOutcome | None = None

    async def outcome(self) -> TurnOutcome:
        """Return how the turn ended, once it has ended and its end is durable."""
        await self._done.wait()
        assert self._outcome is not None  # noqa: S101 - set before the event, see resolve
        return self._outcome

    def resolve(self, outcome: TurnOutcome) -> None:
        """Settle the prompt; only the first call counts."""
        if self._outcome is None:
            self._outcome = outcome
            self._done.set()


@dataclass(frozen=True, slots=True)
class RunnerPorts:
    """What the turns of a session need from outside."""

    client: ClientPort
    durability: DurabilityPort
    pace: PacePort
    ids: IdSource
    tasks: TaskGroup


class TurnRunner:
    """Owns the queue and the running turn of one session.

    Args:
        session: The live session.
        agent: Drives the turns.
        ports: The outside.
    """

    def __init__(self, session: Session, agent: Agent, ports: RunnerPorts) -> None:
        self._session = session
        self._agent = agent
        self._ports = ports
        self._queue: deque[PendingPrompt] = deque()
        self._active: ActiveTurn | None = None
        self._active_prompt: PendingPrompt | None = None
        self._draining = False
        self._idle = anyio.Event()
        self._idle.set()
        self._disposed = False
        self._recorder = HeaderRecorder()
        self._flush_owed = False
        self._has_title = False

    @property
    def busy(self) -> bool:
        """Whether a turn runs or waits."""
        return self._draining

    def submit(self, blocks: Sequence[Mapping[str, Any]]) -> PendingPrompt:
        """Queue a prompt; nothing is logged before its turn comes.

        Raises:
            QueueFullError: `MAX_QUEUED` prompts wait already.
        """
        if len(self._queue) >= MAX_QUEUED:
            raise QueueFullError(MAX_QUEUED)
        prompt = PendingPrompt(blocks)
        if self._disposed:
            prompt.resolve(DISPOSED)
            return prompt
        self._queue.append(prompt)
        if not self._draining:
            self._draining = True
            self._idle = anyio.Event()
            self._ports.tasks.start_soon(self._drain, name=f"turns of {self._session.id}")
        return prompt

    def cancel(self) -> None:
        """Cancel the running turn and every prompt received so far (Z19)."""
        self._drop_queue(CANCELLED)
        if self._active is not None:
            self._active.cancel()

    def cancel_prompt(self, prompt: PendingPrompt) -> None:
        """Cancel one prompt alone, running or waiting."""
        if prompt is self._active_prompt and self._active is not None:
            self._active.cancel()
        elif prompt in self._queue:
            self._queue.remove(prompt)
            prompt.resolve(CANCELLED)

    async def dispose(self) -> None:
        """End for good: the running turn ends `disposed`, waiting prompts never start."""
        self._disposed = True
        self._drop_queue(DISPOSED)
        if self._active is not None:
            self._active.dispose()
        await self._idle.wait()

    async def settle(self) -> None:
        """Return when no turn runs or waits."""
        await self._idle.wait()

    def _drop_queue(self, outcome: TurnOutcome) -> None:
        while self._queue:
            self._queue.popleft().resolve(outcome)

    async def _drain(self) -> None:
        try:
            while self._queue:
                prompt = self._queue.popleft()
                self._active_prompt = prompt
                prompt.resolve(await self._run(prompt))
        finally:
            self._active = self._active_prompt = None
            self._draining = False
            self._drop_queue(DISPOSED)
            self._idle.set()

    async def _run(self, prompt: PendingPrompt) -> TurnOutcome:
        try:
            if self._flush_owed:
                await self._ports.durability.flush()
                self._flush_owed = False
        except CheckpointError as error:
            # Refused with nothing appended: the log must not grow while the disk refuses (Z8).
            return TurnOutcome("error", str(error), lost_session=error.lost_session)
        # A title is never taken away again, so the log is searched only until there is one.
        self._has_title = self._has_title or current_title(self._session.events) is not None
        active = ActiveTurn(
            self._session,
            self._agent,
            self._ports,
            prompt.blocks,
            self._recorder,
            has_title=self._has_title,
        )
        self._active = active
        try:
            outcome = await active.run()
        except Exception:  # noqa: BLE001 - boundary
            # A fault of ours, not of the agent: the prompt is answered all the same (B86).
            entry = self._ports.ids.log_entry_id()
            _log.exception("turn of %s failed, log entry %s", self._session.id, entry)
            outcome = active.abandon(f"the turn could not be run, log entry {entry}")
        self._active = None
        self._flush_owed = active.flush_owed
        return outcome

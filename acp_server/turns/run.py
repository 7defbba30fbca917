"""A running turn, as the engine gives it to what drives it: its log, its client, its settings."""

from __future__ import annotations

import os.path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from acp_server.turns.content import MAX_DELTA_CHARS, clean_text, pieces
from acp_server.turns.errors import TurnClosedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from acp_server.turns.message_writer import TextKind
    from acp_server.turns.ports import RunnerPorts
    from acp_server.turns.settings import SessionSettings
    from acp_server.turns.turn_log import TurnLog
    from session_core import Message, RequestHeaderRecorder

YIELD_EVERY = 64
"""Updates between two looks at the event loop. An agent that never waits still shares the process,
and what it made meanwhile leaves in one write."""


class TurnRun:
    """One running turn.

    Every coroutine method raises `TurnClosedError` after the turn's end and anyio's cancellation
    when the turn is cancelled. The recorder of request headers is one for all turns of a runner.

    Attributes:
        blocks: The prompt.
        prompt_seq: Seq of its `user/message`.
        session: The session; it is written to through `log` alone.
        client: The client of the session.
        ids: Source of identities.
        cwd: Working directory of the session, absolute, or None.
    """

    def __init__(
        self,
        log: TurnLog,
        ports: RunnerPorts,
        settings: SessionSettings,
        recorder: RequestHeaderRecorder,
        *,
        blocks: Sequence[Mapping[str, Any]],
        prompt_seq: int,
        cancel: Callable[[], None],
    ) -> None:
        self.log = log
        self.session = log.session
        self.settings = settings
        self.blocks = tuple(blocks)
        self.prompt_seq = prompt_seq
        self.client = ports.client
        self.ids = ports.ids
        self.cwd = log.session.header.cwd
        self._durability = ports.durability
        self._pace = ports.pace
        self._recorder = recorder
        self._cancel = cancel
        self._since_yield = 0

    async def write(self, kind: TextKind, text: str) -> None:
        """Append a piece of text or reasoning; a long one becomes several, each fit for a frame."""
        if type(text) is not str or not text.isascii():
            text = clean_text(text)
        if len(text) > MAX_DELTA_CHARS:
            for piece in pieces(text):
                self.log.delta(kind, piece)
                await self.yield_to_loop()
            return
        if text:
            self.log.delta(kind, text)
        self._since_yield += 1
        if self._since_yield >= YIELD_EVERY or self._pace.congested:
            await self.yield_to_loop()

    async def yield_to_loop(self) -> None:
        """Count an update; let other tasks run when it is time, or when the client is slow.

        Raises:
            TurnClosedError: The turn has ended.
        """
        if self.log.closed:
            raise TurnClosedError
        self._since_yield += 1
        if self._pace.congested:
            await self._pace.room()
        elif self._since_yield >= YIELD_EVERY:
            self._since_yield = 0
            await anyio.lowlevel.checkpoint()

    async def checkpoint(self) -> None:
        """Return when all that was appended so far is durable, then see to a pending cancel.

        Raises:
            CheckpointError: The store failed.
        """
        self.log.require_open()
        await self._durability.flush()
        await anyio.lowlevel.checkpoint_if_cancelled()

    async def begin_request(self, header: Mapping[str, Any]) -> list[Message]:
        """Open the step of a model request and return its messages: prefix, then history.

        Rules: requests-are-rebuilt-from-log, request-header-is-canonical.

        Raises:
            CheckpointError: What led to the request is not durable, so it must not be sent
                (checkpoints-stand-before-effects).
        """
        # What an open message has so far is part of the request.
        self.log.end_step()
        messages = self.session.derive_messages()
        self.log.begin_request(header, self._recorder)
        if self.log.requests > 1:
            await self._durability.flush()
        return [*header.get("messagePrefix", ()), *messages]

    async def abort(self) -> None:
        """Cancel this turn from inside; does not return."""
        self._cancel()
        await anyio.lowlevel.checkpoint()

    def absolute(self, path: str) -> str:
        """Return `path` below the session's working directory, or as it is when absolute.

        Rule: cards-are-stored.
        """
        return path if self.cwd is None else os.path.normpath(os.path.join(self.cwd, path))  # noqa: PTH118 - text rule of the log, no file system

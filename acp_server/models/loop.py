"""The model loop: asks the model, runs the calls it makes, asks again (turn-is-logged-in-order).

It is an agent on the same handle as every other; it has no way of its own into the log.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import anyio

from acp_server.agents.call_card import CallCard
from acp_server.agents.tool_call import ToolCall
from acp_server.agents.turn import run_of
from acp_server.models.model import ModelRequest
from acp_server.models.stream import ModelStream, closing
from acp_server.turns.arguments import arguments_or_none
from acp_server.turns.errors import (
    CheckpointError,
    ModelError,
    PermissionDenied,
    ToolArgumentsError,
    TurnClosedError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from acp_server.agents.turn import Turn
    from acp_server.models.model import Model
    from acp_server.models.tools import Tool
    from acp_server.turns.turn_log import OpenCall, TurnLog

    Body = Callable[[], Awaitable[None]]

_log = logging.getLogger(__name__)

MAX_TURN_REQUESTS = 100
"""Model requests that one turn may make; then it ends `max_turn_requests`.

Rule: refusal-leaves-models-view.
"""

MAX_RETRIES = 3
"""Further attempts at one request; a provider that fails four times in a row is down."""

_FIRST_DELAY_MS = 1000
_LONGEST_DELAY_MS = 60_000


class ModelLoop:
    """Drives turns with a model and tools.

    Args:
        model: Answers the requests.
        tools: What the model may call.
        system: System prompt.
        max_requests: Limit of requests a turn.
        max_retries: Further attempts at a request whose failure is retryable.
        sleep: Waits between attempts, in seconds; a cancelled turn ends the wait.
    """

    def __init__(
        self,
        model: Model,
        tools: Sequence[Tool],
        *,
        system: str | None = None,
        max_requests: int = MAX_TURN_REQUESTS,
        max_retries: int = MAX_RETRIES,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self._model = model
        self._tools = {tool.name: tool for tool in tools}
        self._max_requests = max_requests
        self._max_retries = max_retries
        self._sleep = sleep
        self._provenance = {"provider": model.provider, "model": model.name}
        self._header: dict[str, Any] = {"config": dict(self._provenance)}
        if system:
            self._header["system"] = system
        if tools:
            self._header["tools"] = [tool.schema() for tool in tools]

    async def drive(self, turn: Turn) -> None:
        """Run one turn to the model's end."""
        log = run_of(turn).log
        retries = 0
        while True:
            if log.requests >= self._max_requests:
                log.hit_request_limit = True
                return
            try:
                calls = await self._request(turn)
            except ModelError as error:
                if not error.retryable or error.aborted or retries >= self._max_retries:
                    raise
                retries += 1
                await self._wait_for_retry(log, error, retries)
                continue
            retries = 0
            if not calls:
                return
            for call, body in calls:
                await _run(call, body)

    async def _request(self, turn: Turn) -> list[tuple[ToolCall, Body]]:
        """Make one request and return the calls of its answer, each with its body."""
        run = run_of(turn)
        messages = await run.begin_request(self._header)
        stream = ModelStream(run.log)
        async with closing(self._model.stream(ModelRequest(self._header, messages))) as chunks:
            async for chunk in chunks:
                stream.write(chunk)
                await run.yield_to_loop()
        answer = stream.end()
        kind = answer.finish_reason["kind"]
        if kind == "refusal":
            turn.refuse(self._provenance, answer.usage)
            return []
        if kind == "max-tokens":
            run.log.hit_max_tokens = True
        provenance: dict[str, Any] = dict(self._provenance)
        if answer.replay_state is not None:
            provenance["replayState"] = answer.replay_state
        blocks = run.log.append_message(provenance, answer.usage)
        call_ids = [block["id"] for block in blocks if block["type"] == "tool-call"]
        if not call_ids:
            run.log.end_step()
        # All calls of a message have their cards before the first one runs.
        return [self._call(turn, run.log.open_calls[call_id]) for call_id in call_ids]

    async def _wait_for_retry(self, log: TurnLog, error: ModelError, retry: int) -> None:
        delay_ms = error.retry_after_ms
        if delay_ms is None:
            delay_ms = min(_FIRST_DELAY_MS * 2 ** (retry - 1), _LONGEST_DELAY_MS)
        log.retry(retry, self._max_retries, delay_ms, error.failure)
        await self._sleep(delay_ms / 1000)

    def _call(self, turn: Turn, made: OpenCall) -> tuple[ToolCall, Body]:
        """Return a call of the model, and its body, which fails if the call cannot be run."""
        run = run_of(turn)
        tool = self._tools.get(made.name)
        arguments = arguments_or_none(made.arguments)
        title = made.name or "tool" if tool is None else tool.title_of(arguments)
        kind = "other" if tool is None else tool.kind
        call = ToolCall.of_model(
            run,
            made,
            CallCard(title, kind, arguments, run.absolute),
            ask=tool is not None and arguments is not None and tool.ask,
            grant=None if tool is None else tool.grant_of(arguments),
            path=None if tool is None else tool.path_of(arguments),
        )

        async def body() -> None:
            if tool is None:
                message = f"there is no tool named {made.name!r}"
                raise ToolArgumentsError(message)
            await tool.body(turn, call, tool.arguments_from(made.arguments))

        return call, body


async def _run(call: ToolCall, body: Body) -> None:
    """Run one call to its result; how it fails is told to the model, which goes on."""
    try:
        async with call:
            await body()
    except (CheckpointError, TurnClosedError):
        raise
    except (PermissionDenied, ToolArgumentsError):
        return
    except Exception:  # noqa: BLE001 - boundary: a tool may fail in any way
        _log.debug("call %s failed", call.call_id, exc_info=True)

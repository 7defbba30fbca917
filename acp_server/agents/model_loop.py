"""The model loop: asks the model, runs the calls it makes, asks again (contract 1.14).

It is an agent on the same handle as every other; it has no way of its own into the log.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import anyio

from acp_server.agents.errors import (
    CheckpointError,
    ModelError,
    PermissionDenied,
    TurnClosedError,
)
from acp_server.agents.model import ModelRequest
from acp_server.agents.model_stream import ModelStream, closing
from acp_server.agents.redaction import redact
from acp_server.agents.tool_call import ToolCall
from acp_server.agents.tools import ToolArgumentsError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from acp_server.agents.model import Model
    from acp_server.agents.tools import Tool
    from acp_server.agents.turn import Turn

_log = logging.getLogger(__name__)

MAX_TURN_REQUESTS = 100
"""Model requests that one turn may make; then it ends `max_turn_requests` (Z12)."""

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
        retries = 0
        while True:
            if turn.log.requests >= self._max_requests:
                turn.log.hit_request_limit = True
                return
            try:
                calls = await self._request(turn)
            except ModelError as error:
                if not error.retryable or error.aborted or retries >= self._max_retries:
                    raise
                retries += 1
                await self._wait_for_retry(turn, error, retries)
                continue
            retries = 0
            if not calls:
                return
            for call, body in calls:
                await _run(call, body)

    async def _request(self, turn: Turn) -> list[tuple[ToolCall, Callable[[], Awaitable[None]]]]:
        """Make one request and return the calls of its answer, each with its body."""
        messages = await turn.begin_request(self._header)
        answer = ModelStream()
        async with closing(self._model.stream(ModelRequest(self._header, messages))) as stream:
            async for chunk in stream:
                for logged in answer.take(chunk):
                    turn.log.chunk(logged)
                await turn.breathe()
        kind = answer.end()["kind"]
        usage = answer.assembler.usage
        if kind == "refusal":
            turn.refuse(self._provenance, usage)
            return []
        if kind == "max-tokens":
            turn.log.hit_max_tokens = True
        # Cut by the limit, a call may be half a call: the assembler leaves it out (contract 1.6).
        blocks = answer.blocks()
        provenance: dict[str, Any] = dict(self._provenance)
        if answer.assembler.replay_state is not None:
            provenance["replayState"] = answer.assembler.replay_state
        turn.log.assistant_message(blocks, provenance, usage)
        calls = [self._call(turn, block) for block in blocks if block["type"] == "tool-call"]
        if not calls:
            turn.log.end_step()
        return calls

    async def _wait_for_retry(self, turn: Turn, error: ModelError, retry: int) -> None:
        delay_ms = error.retry_after_ms
        if delay_ms is None:
            delay_ms = min(_FIRST_DELAY_MS * 2 ** (retry - 1), _LONGEST_DELAY_MS)
        failure = {**error.failure, "message": redact(str(error.failure["message"]))}
        turn.log.retry(retry, self._max_retries, delay_ms, failure)
        await self._sleep(delay_ms / 1000)

    def _call(
        self, turn: Turn, block: Mapping[str, Any]
    ) -> tuple[ToolCall, Callable[[], Awaitable[None]]]:
        """Note a call of the model; all of a message are noted before the first one runs."""
        name = block["name"]
        tool = self._tools.get(name)
        arguments = _parsed(block["arguments"])
        known = tool is not None and isinstance(arguments, dict)
        call = ToolCall.of_model(
            turn,
            block,
            title=tool.title_of(arguments) if tool is not None else name or "tool",
            kind="other" if tool is None else tool.kind,
            ask=known and tool is not None and tool.ask,
            grant=tool.grant_of(arguments) if tool is not None else None,
        )

        async def body() -> None:
            if tool is None:
                message = f"there is no tool named {name!r}"
                raise ToolArgumentsError(message)
            await tool.body(turn, call, tool.check(arguments))

        return call, body


async def _run(call: ToolCall, body: Callable[[], Awaitable[None]]) -> None:
    """Run one call to its result; how it fails is told to the model, which goes on."""
    try:
        async with call:
            await body()
    except (CheckpointError, TurnClosedError):
        raise
    except (PermissionDenied, ToolArgumentsError):
        return
    except Exception:  # noqa: BLE001 - boundary: a tool may fail in any way (contract 6.12)
        _log.debug("call %s failed", call.call_id, exc_info=True)


def _parsed(arguments: str) -> object:
    try:
        return json.loads(arguments or "{}")
    except ValueError:
        return None

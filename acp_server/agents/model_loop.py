"""The model loop: asks the model, runs the calls it makes, asks again (contract 1.14).

It is an agent on the same handle as every other; it has no way of its own into the log.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from acp_server.agents.content import clean_text
from acp_server.agents.errors import ModelError, PermissionDenied
from acp_server.agents.model import ModelRequest
from acp_server.agents.tool_call import ToolCall
from acp_server.agents.tools import ToolArgumentsError
from session_core import StreamAssembler

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from acp_server.agents.model import Model, StreamChunk
    from acp_server.agents.tools import Tool
    from acp_server.agents.turn import Turn

_log = logging.getLogger(__name__)

MAX_TURN_REQUESTS = 100
"""Model requests that one turn may make; then it ends `max_turn_requests` (Z12)."""


class ModelLoop:
    """Drives turns with a model and tools.

    Args:
        model: Answers the requests.
        tools: What the model may call.
        system: System prompt.
        max_requests: Limit of requests a turn.
    """

    def __init__(
        self,
        model: Model,
        tools: Sequence[Tool],
        *,
        system: str | None = None,
        max_requests: int = MAX_TURN_REQUESTS,
    ) -> None:
        self._model = model
        self._tools = {tool.name: tool for tool in tools}
        self._max_requests = max_requests
        self._provenance = {"provider": model.provider, "model": model.name}
        self._header: dict[str, Any] = {"config": dict(self._provenance)}
        if system:
            self._header["system"] = system
        if tools:
            self._header["tools"] = [tool.schema() for tool in tools]

    async def drive(self, turn: Turn) -> None:
        """Run one turn to the model's end."""
        while await self._request(turn):
            if turn.log.requests >= self._max_requests:
                turn.log.hit_request_limit = True
                return

    async def _request(self, turn: Turn) -> bool:
        """Make one request and run its calls; return whether the model is owed another."""
        messages = await turn.begin_request(self._header)
        assembler = StreamAssembler()
        async for chunk in self._model.stream(ModelRequest(self._header, messages)):
            clean = _clean_chunk(chunk)
            turn.log.chunk(clean)
            assembler.feed(clean)
            await turn.breathe()
        kind = assembler.finish_reason["kind"]
        if kind in ("error", "aborted"):
            failure = assembler.finish_reason["failure"]
            raise ModelError(failure["message"], code=failure["code"], aborted=kind == "aborted")
        if kind == "refusal":
            turn.refuse()
            return False
        blocks = assembler.blocks()
        if kind == "max-tokens":
            # A call cut by the limit may be half a call (contract 1.6).
            blocks = [block for block in blocks if block["type"] != "tool-call"]
            turn.log.hit_max_tokens = True
        turn.log.assistant_message(blocks, self._provenance, assembler.usage)
        calls = [block for block in blocks if block["type"] == "tool-call"]
        for block in calls:
            await self._run_call(turn, block)
        turn.log.end_step()
        return bool(calls)

    async def _run_call(self, turn: Turn, block: Mapping[str, Any]) -> None:
        tool = self._tools.get(block["name"])
        arguments = _parsed(block["arguments"])
        title = block["name"]
        if tool is not None and tool.title is not None and isinstance(arguments, dict):
            title = tool.title(arguments)
        call = ToolCall.of_model(
            turn,
            block,
            title=title,
            kind="other" if tool is None else tool.kind,
            ask=tool is not None and tool.ask and isinstance(arguments, dict),
        )
        call.keep_step = True
        try:
            async with call:
                if tool is None:
                    message = f"there is no tool named {block['name']!r}"
                    raise ToolArgumentsError(message)
                await tool.body(turn, call, tool.check(arguments))
        except PermissionDenied:
            return
        except ToolArgumentsError:
            return
        except OSError:
            _log.debug("call %s failed", block["id"], exc_info=True)


def _parsed(arguments: str) -> object:
    try:
        return json.loads(arguments or "{}")
    except ValueError:
        return None


def _clean_chunk(chunk: StreamChunk) -> StreamChunk:
    """Return the chunk with its text clean of lone surrogates (Z35)."""
    text = chunk.get("text")
    if isinstance(text, str):
        cleaned = clean_text(text)
        if cleaned is not text:
            return {**chunk, "text": cleaned}
    return chunk

"""The scripted model: plays a fixture, so that tests and demonstrations need no provider.

A script is a JSON list of responses, one for each model request, in order. A response is either
`{"chunks": [...]}` with the stream chunks of contract 1.5 as a model sends them, or the short form
`{"thought"?: str, "text"?: str, "calls"?: [{"name": str, "arguments": object}], "finish"?: str}`.
`{"hang": true}` never answers; `{"error": {"message", "code"}}` fails the request.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import anyio

from acp_server.agents.agent import Agent
from acp_server.agents.errors import ModelError, ScriptError
from acp_server.agents.model_loop import ModelLoop
from acp_server.agents.tools import WORKSPACE_TOOLS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from pathlib import Path

    from acp_server.agents.model import ModelRequest, StreamChunk

_KEYS = {"chunks", "thought", "text", "calls", "finish", "hang", "error"}


class ScriptedModel:
    """Answers each request with the next response of a script.

    Args:
        responses: The script; see the module.
        source: Named in errors.
    """

    provider = "script"

    def __init__(self, responses: list[Any], source: str) -> None:
        self.name = source
        self._responses = responses
        self._next = 0
        for number, response in enumerate(responses):
            _check(response, number, source)

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamChunk]:
        """Yield the next response's chunks.

        Raises:
            ScriptError: All responses have been played.
            ModelError: The script says that this request fails.
        """
        del request
        if self._next >= len(self._responses):
            message = f"exhausted after {len(self._responses)} responses"
            raise ScriptError(self.name, message)
        response = self._responses[self._next]
        position, self._next = self._next, self._next + 1
        for chunk in _chunks(response, position):
            yield chunk
        if response.get("hang"):
            await anyio.sleep_forever()
        if "error" in response:
            raise ModelError(response["error"]["message"], code=response["error"]["code"])


def script_agent(path: Path) -> Agent:
    """Return an agent that plays the script in `path`.

    Raises:
        ScriptError: The file cannot be read or is no script.
    """
    source = str(path)
    try:
        responses = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ScriptError(source, f"cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ScriptError(source, f"is not JSON: {error}") from error
    if not isinstance(responses, list):
        raise ScriptError(source, "must be a JSON list of responses")
    loop = ModelLoop(ScriptedModel(responses, source), WORKSPACE_TOOLS)
    return Agent(name="script", drive=loop.drive)


def _check(response: object, number: int, source: str) -> None:
    if not isinstance(response, dict):
        raise ScriptError(source, f"response {number} must be an object")
    unknown = sorted(set(response) - _KEYS)
    if unknown:
        raise ScriptError(source, f"response {number} has an unknown key {unknown[0]!r}")


def _chunks(response: Mapping[str, Any], position: int) -> Iterator[StreamChunk]:
    if "chunks" in response:
        yield from response["chunks"]
        return
    index = 0
    for key, kind in (("thought", "reasoning"), ("text", "text")):
        if key in response:
            text = response[key]
            yield {"type": "block-start", "index": index, "blockType": kind}
            yield {"type": f"{kind}-delta", "index": index, "text": text}
            yield {"type": "block-end", "index": index, "block": {"type": kind, "text": text}}
            index += 1
    calls = response.get("calls", [])
    for number, call in enumerate(calls):
        yield from _call_chunks(call, index + number, f"call_{position + 1}_{number + 1}")
    if not response.get("hang") and "error" not in response:
        kind = response.get("finish", "tool-calls" if calls else "stop")
        yield {"type": "finish", "reason": {"kind": kind}}


def _call_chunks(call: Mapping[str, Any], index: int, call_id: str) -> Iterator[StreamChunk]:
    name = call["name"]
    arguments = call["arguments"]
    raw = arguments if isinstance(arguments, str) else json.dumps(arguments)
    yield {"type": "block-start", "index": index, "blockType": "tool-call"}
    yield {
        "type": "tool-call-delta",
        "index": index,
        "id": call_id,
        "name": name,
        "argumentsDelta": raw,
    }
    block = {"type": "tool-call", "id": call_id, "name": name, "arguments": raw}
    yield {"type": "block-end", "index": index, "block": block}

"""The scripted model: plays a file, so that tests and demonstrations need no provider.

What a script file may hold is in `script_file`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from acp_server.agents.agent import Agent
from acp_server.agents.errors import ScriptError
from acp_server.agents.model_loop import ModelLoop
from acp_server.agents.script_file import chunks_of, failure_of, hangs, read_script
from acp_server.agents.tools import WORKSPACE_TOOLS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from acp_server.agents.model import ModelRequest, StreamChunk
    from acp_server.agents.script_file import Response, Script
    from acp_server.agents.turn import Turn


class ScriptedModel:
    """Answers each request with the next response of a list.

    Args:
        responses: The list, checked.
        name: Name of the model.
        source: Named in errors.
    """

    provider = "script"

    def __init__(self, responses: Sequence[Response], name: str, source: str) -> None:
        self.name = name
        self._source = source
        self._responses = responses
        self._next = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamChunk]:
        """Yield the next response's chunks.

        Raises:
            ScriptError: All responses have been played.
            ModelError: The script says that this request fails.
        """
        del request
        if self._next >= len(self._responses):
            message = f"exhausted after {len(self._responses)} responses"
            raise ScriptError(self._source, message)
        response = self._responses[self._next]
        position, self._next = self._next, self._next + 1
        for chunk in chunks_of(response, position):
            yield chunk
        if hangs(response):
            await anyio.sleep_forever()
        failure = failure_of(response)
        if failure is not None:
            raise failure


class ScriptedTurns:
    """Drives the turns of all sessions by one script (contract 7.5).

    A session is bound to its list by its first request; lists have cursors of their own.
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self._bound: dict[str, ModelLoop] = {}

    async def drive(self, turn: Turn) -> None:
        """Run one turn.

        Raises:
            ScriptError: There are more sessions than lists, or a list has been played.
        """
        key = "" if self._script.shared else turn.log.session.id
        if key not in self._bound:
            self._bound[key] = self._next_loop()
        await self._bound[key].drive(turn)

    def _next_loop(self) -> ModelLoop:
        script, position = self._script, len(self._bound)
        if position >= len(script.sessions):
            message = f"is for {len(script.sessions)} sessions, and one more began"
            raise ScriptError(script.source, message)
        model = ScriptedModel(script.sessions[position], script.name, script.source)
        return ModelLoop(model, WORKSPACE_TOOLS)


def script_agent(path: Path) -> Agent:
    """Return an agent that plays the script in `path`.

    Raises:
        ScriptError: The file cannot be read or is no script.
    """
    return Agent(name="script", drive=ScriptedTurns(read_script(path)).drive)

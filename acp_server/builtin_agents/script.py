"""The agent that plays a script file through the model loop.

What a script file may hold is in `models.script_file`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from acp_server.agents.agent import Agent
from acp_server.agents.turn import run_of
from acp_server.models.loop import ModelLoop
from acp_server.models.script_file import ScriptError, read_script
from acp_server.models.script_model import ScriptedModel
from acp_server.models.tools import WORKSPACE_TOOLS

if TYPE_CHECKING:
    from pathlib import Path

    from acp_server.agents.turn import Turn
    from acp_server.models.script_file import Script


class ScriptedTurns:
    """Drives the turns of all sessions by one script (exhausted-script-is-loud).

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
        key = "" if self._script.shared else run_of(turn).session.id
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
        ScriptError: The file cannot be read or is not a script.
    """
    return Agent(name="script", drive=ScriptedTurns(read_script(path)).drive)

"""What the turn engine knows of an agent: enough to run its turns, nothing of how it is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from acp_server.turns.settings import SettingDeclarations

if TYPE_CHECKING:
    from acp_server.turns.policy import PromptPolicy
    from acp_server.turns.run import TurnRun


class TurnDriver(SettingDeclarations, Protocol):
    """An agent as the engine sees it."""

    @property
    def name(self) -> str:
        """Recorded as the model of messages that no model made."""

    @property
    def policy(self) -> PromptPolicy | None:
        """May veto a prompt before anything else sees it."""

    async def drive_turn(self, run: TurnRun) -> None:
        """Drive one turn; return when it is over, whatever is raised ends it too."""

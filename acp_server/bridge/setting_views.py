"""Modes and config options as the client sees them (mode-has-two-views): two views of one state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from acp_server.agents.options import BooleanOption
from acp_server.turns.presets import MODE_OPTION_ID
from acp_server.wire import results

if TYPE_CHECKING:
    from acp_server.agents.agent import Agent
    from acp_server.agents.options import Choice
    from acp_server.turns.settings import SessionSettings

_PRESETS: Final = {
    "ask": ("Ask", "Ask before each change"),
    "auto-edit": ("Auto-edit", "Edit files without asking, ask for everything else"),
    "read-only": ("Read only", "Refuse every change"),
    "full-access": ("Full access", "Never ask"),
}


def mode_state(agent: Agent, settings: SessionSettings) -> dict[str, Any] | None:
    """Return `modes`, or None for an agent without modes."""
    if settings.mode is None:
        return None
    return results.mode_state(
        settings.mode, [results.mode(preset, *_PRESETS[preset]) for preset in agent.modes]
    )


def config_options(
    agent: Agent, settings: SessionSettings, *, booleans: bool
) -> list[dict[str, Any]]:
    """Return the complete state of the config options.

    Those that are on or off only with `booleans`: a client that takes none must not be sent any.
    """
    options = []
    if settings.mode is not None:
        choices = [results.choice(preset, *_PRESETS[preset]) for preset in agent.modes]
        options.append(
            results.config_option(
                MODE_OPTION_ID, "Permissions", settings.mode, choices, category="mode"
            )
        )
    for option in agent.options:
        if isinstance(option, BooleanOption) and not booleans:
            continue
        options.append(
            results.config_option(
                option.id,
                option.name,
                settings.option(option.id),
                None if isinstance(option, BooleanOption) else map(_choice, option.choices),
                description=option.description,
                category=option.category,
            )
        )
    return options


def _choice(item: Choice | str) -> dict[str, Any]:
    if isinstance(item, str):
        return results.choice(item, item)
    return results.choice(item.value, item.name or item.value, item.description)

"""What an agent is: one coroutine that drives a turn, and what it declares about itself.

The types of the declarations are in modules of their own, imported by those who use them: an agent
that declares nothing adds nothing to the start of the server.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict, overload

from acp_server.turns.presets import MODE_OPTION_ID, PRESETS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Unpack

    from acp_server.agents.commands import Command
    from acp_server.agents.options import ConfigOption
    from acp_server.agents.presenters import Presenters
    from acp_server.agents.sign_in import SignIn
    from acp_server.agents.turn import Turn
    from acp_server.turns.policy import PromptPolicy
    from acp_server.turns.presets import Preset
    from acp_server.turns.run import TurnRun
    from session_core.compaction import Summarize

Drive = Callable[["Turn"], Awaitable[None]]
"""What an author writes: it drives one turn and returns when the turn is over."""

Extension = Callable[[dict[str, Any]], "Awaitable[dict[str, Any] | None]"]
"""Answers an extension request: its params to its result. To refuse: `RequestRefusedError`."""


class Declarations(TypedDict, total=False):
    """What an agent may declare, as keywords of `agent` and of `Agent`; see there."""

    policy: PromptPolicy | None
    takes_images: bool
    takes_audio: bool
    takes_resources: bool
    modes: tuple[Preset, ...]
    options: tuple[ConfigOption, ...]
    commands: tuple[Command, ...]
    sign_in: SignIn | None
    extensions: Mapping[str, Extension]
    summarize: Summarize | None
    context_size: int | None
    presenters: Presenters | None


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent and all that it declares: the one place for both.

    Attributes:
        name: Shown to the client and recorded as the model of its messages.
        drive: The coroutine function that drives one turn.
        policy: May veto a prompt before anything else sees it; the turn then ends `rejected`. It
            gets a `PromptView`, may be `async`, and returns a reason or None; one that fails lets
            nothing through.
        takes_images: Whether prompts may have `image` blocks.
        takes_audio: Whether prompts may have `audio` blocks.
        takes_resources: Whether prompts may have embedded `resource` blocks.
        modes: Permission presets to choose from, the first one being the default; none at all for
            an agent that always asks.
        options: Further config options, of the types of `options`.
        commands: Slash commands besides the built-in ones, or instead of one of the same name.
        sign_in: How users sign in, for an agent that wants that.
        extensions: Handlers of extension requests by method; each method begins with `_`.
        summarize: Makes the summary that `/compact` puts in the place of the history.
        context_size: Tokens that fit into the model's context, for the client's usage display.
        presenters: How calls of logs that others wrote are shown, instead of the presenters of the
            common tools.

    Raises:
        ValueError: A declaration could not be served.
    """

    name: str
    drive: Drive
    policy: PromptPolicy | None = None
    takes_images: bool = True
    takes_audio: bool = False
    takes_resources: bool = True
    modes: tuple[Preset, ...] = PRESETS
    options: tuple[ConfigOption, ...] = ()
    commands: tuple[Command, ...] = ()
    sign_in: SignIn | None = None
    extensions: Mapping[str, Extension] = field(default_factory=dict)
    summarize: Summarize | None = None
    context_size: int | None = None
    presenters: Presenters | None = None

    def __post_init__(self) -> None:
        unknown = [mode for mode in self.modes if mode not in PRESETS]
        if unknown:
            raise ValueError(f"there is no permission preset {unknown[0]!r}; there are: {PRESETS}")
        # `mode` is the second view of the modes, whether an agent has some or not
        # (mode-has-two-views).
        _require_distinct(
            "config option", [MODE_OPTION_ID, *(option.id for option in self.options)]
        )
        _require_distinct("command", [command.name for command in self.commands])
        for method in self.extensions:
            if not method.startswith("_"):
                raise ValueError(f"extension method {method!r} does not begin with '_'")

    async def drive_turn(self, run: TurnRun) -> None:
        """Drive one turn of the engine, through the handle that the author's function takes."""
        from acp_server.agents.turn import Turn  # noqa: PLC0415 - not before the first turn

        await self.drive(Turn(run))

    async def __call__(self, turn: Turn) -> None:
        """Drive one turn, so that a decorated function can still be called."""
        await self.drive(turn)


@overload
def agent(drive: Drive, /) -> Agent: ...
@overload
def agent(
    *, name: str | None = None, **declared: Unpack[Declarations]
) -> Callable[[Drive], Agent]: ...
def agent(
    drive: Drive | None = None,
    /,
    *,
    name: str | None = None,
    **declared: Unpack[Declarations],
) -> Agent | Callable[[Drive], Agent]:
    """Turn `async def f(turn)` into an agent; use it bare or with what the agent declares.

    Args:
        drive: The coroutine function, when used bare.
        name: Name of the agent; the function's name by default.
        declared: What else `Agent` has.

    Raises:
        TypeError: The decorated object is not a coroutine function.
        ValueError: See `Agent`.
    """

    def decorate(function: Drive) -> Agent:
        if not inspect.iscoroutinefunction(function):
            message = f"an agent is an `async def` function that takes the turn, not {function!r}"
            raise TypeError(message)
        return Agent(name=name or function.__name__, drive=function, **declared)

    return decorate if drive is None else decorate(drive)


def _require_distinct(what: str, names: list[str]) -> None:
    for number, name in enumerate(names):
        if name in names[:number]:
            raise ValueError(f"{what} {name!r} is declared twice")

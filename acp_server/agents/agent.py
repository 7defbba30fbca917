"""What an agent is: one coroutine that drives a turn, and what it declares about itself."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    from acp_server.agents.turn import Turn

Drive = Callable[["Turn"], Awaitable[None]]
"""What an author writes: it drives one turn and returns when the turn is over."""

PromptPolicy = Callable[[str], "str | None"]
"""Given the text of a prompt, the reason to refuse it, or None (contract 1.14 step 2)."""


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent and all that it declares: the one place for both.

    Attributes:
        name: Shown to the client and recorded as the model of its messages.
        drive: The coroutine function that drives one turn.
        policy: May veto a prompt before anything else sees it; the turn then ends `rejected`.
        takes_images: Whether prompts may hold `image` blocks.
        takes_audio: Whether prompts may hold `audio` blocks.
        takes_resources: Whether prompts may hold embedded `resource` blocks.
    """

    name: str
    drive: Drive
    policy: PromptPolicy | None = None
    takes_images: bool = True
    takes_audio: bool = False
    takes_resources: bool = True

    async def __call__(self, turn: Turn) -> None:
        """Drive one turn, so that a decorated function can still be called."""
        await self.drive(turn)


@overload
def agent(drive: Drive, /) -> Agent: ...
@overload
def agent(
    *,
    name: str | None = None,
    policy: PromptPolicy | None = None,
    takes_images: bool = True,
    takes_audio: bool = False,
    takes_resources: bool = True,
) -> Callable[[Drive], Agent]: ...
def agent(
    drive: Drive | None = None,
    /,
    *,
    name: str | None = None,
    policy: PromptPolicy | None = None,
    takes_images: bool = True,
    takes_audio: bool = False,
    takes_resources: bool = True,
) -> Agent | Callable[[Drive], Agent]:
    """Turn `async def f(turn)` into an agent; use it bare or with what the agent declares.

    Args:
        drive: The coroutine function, when used bare.
        name: Name of the agent; the function's name by default.
        policy: See `Agent`.
        takes_images: See `Agent`.
        takes_audio: See `Agent`.
        takes_resources: See `Agent`.

    Raises:
        TypeError: The decorated object is not a coroutine function.
    """

    def decorate(function: Drive) -> Agent:
        if not inspect.iscoroutinefunction(function):
            message = f"an agent is an `async def` function that takes the turn, not {function!r}"
            raise TypeError(message)
        return Agent(
            name=name or function.__name__,
            drive=function,
            policy=policy,
            takes_images=takes_images,
            takes_audio=takes_audio,
            takes_resources=takes_resources,
        )

    return decorate if drive is None else decorate(drive)

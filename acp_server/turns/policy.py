"""The agent's policy: sees a prompt before anything else does, and may refuse it.

Rules: policy-blocks-prompt-first, policy-sees-all-text.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from acp_server.turns.content import clean_text
from acp_server.turns.errors import AgentsError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import CodeType, TracebackType


@dataclass(frozen=True, slots=True)
class PromptView:
    """A prompt as a policy sees it.

    Attributes:
        text: All its text: the text blocks as they stand, and each embedded resource's text on
            lines of its own.
        blocks: All its blocks, as the client sent them.
    """

    text: str
    blocks: tuple[Mapping[str, Any], ...]

    @classmethod
    def of(cls, blocks: Sequence[Mapping[str, Any]]) -> PromptView:
        """Return the view of a prompt."""
        return cls("".join(map(_text_in, blocks)), tuple(blocks))


PromptPolicy = Callable[[PromptView], "str | Awaitable[str | None] | None"]
"""Given a prompt, the reason to refuse it, or None. It may be `async`."""


class PolicyFailedError(AgentsError):
    """A policy raised, or returned something else than a reason or None.

    Its text says where; it has nothing of the exception but the type, for the client is told.
    """


async def veto_of(policy: PromptPolicy, blocks: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the policy's reason to refuse a prompt, or None.

    Raises:
        PolicyFailedError: The policy failed, so that nothing may go through.
    """
    try:
        verdict = policy(PromptView.of(blocks))
        # In two steps, for what an author returns may be anything.
        answer: object = await verdict if inspect.isawaitable(verdict) else verdict
    except (Exception, SystemExit) as error:
        message = f"the policy failed ({type(error).__name__}) at {_place(policy, error)}"
        raise PolicyFailedError(message) from error
    if answer is None:
        return None
    if isinstance(answer, str):
        return clean_text(answer)
    kind = type(answer).__name__
    message = f"the policy at {_place(policy)} returned {kind} instead of a reason or None"
    raise PolicyFailedError(message)


def _text_in(block: Mapping[str, Any]) -> str:
    if block["type"] == "text":
        return str(block["text"])
    if block["type"] == "resource" and "text" in block["resource"]:
        return f"\n{block['resource']['text']}\n"
    return ""


def _place(policy: PromptPolicy, error: BaseException | None = None) -> str:
    """Return file and line of the policy: of its last line that took part in the error, if any."""
    code = _code_of(policy)
    if code is None:
        return repr(type(policy).__name__)
    line = code.co_firstlineno
    traceback: TracebackType | None = None if error is None else error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == code.co_filename:
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return f"{code.co_filename}:{line}"


def _code_of(policy: object) -> CodeType | None:
    while isinstance(policy, functools.partial):
        policy = policy.func
    function = inspect.unwrap(policy) if callable(policy) else policy
    code = getattr(function, "__code__", None)
    return code or getattr(type(function).__call__, "__code__", None)

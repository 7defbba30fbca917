"""What the arguments of a tool call are: the JSON object in a text, read in this one place.

Models write arguments as text, and the log keeps that text. What is read from it goes into cards,
frames and tool bodies, so it must be JSON that every reader keeps as it is.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Never

from acp_server.turns.bounds import MAX_SHOWN_DEPTH
from acp_server.turns.content import clean_text
from acp_server.turns.errors import ToolArgumentsError
from session_core import NotJsonError, clean_json
from session_core.json_value import freeze_json

if TYPE_CHECKING:
    from collections.abc import Mapping


def arguments_text(arguments: Mapping[str, Any] | None) -> str:
    """Return a call's arguments as the JSON text that a model would have sent.

    Rule: cards-are-stored.
    """
    raw = "{}" if arguments is None else json.dumps(dict(arguments), ensure_ascii=False)
    return clean_text(raw)


def parse_arguments(text: str) -> dict[str, Any]:
    """Return the arguments in a text, `{}` for an empty one; lone surrogates become U+FFFD.

    Rule: lone-surrogates-are-replaced.

    Raises:
        ToolArgumentsError: They are not a JSON object, or hold what JSON readers do not keep as it
            is: NaN, Infinity, -0.0, integers beyond 2^53, too deep a nesting.
    """
    try:
        value = json.loads(clean_text(text) or "{}", parse_constant=_refuse_constant)
        if "\\u" in text:
            value = clean_json(value)  # an escape may stand for half a character
    except RecursionError:
        raise ToolArgumentsError(_TOO_DEEP) from None
    except ValueError as error:
        raise ToolArgumentsError(f"the arguments are not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ToolArgumentsError("the arguments must be a JSON object")
    try:
        freeze_json(value, max_depth=MAX_SHOWN_DEPTH)
    except NotJsonError as error:
        reason = f"the arguments cannot be kept as they are: {error.reason}"
        raise ToolArgumentsError(reason) from None
    return value


def arguments_or_none(text: str) -> dict[str, Any] | None:
    """Return the arguments in a text, or None where `parse_arguments` raises: for `rawInput`."""
    try:
        return parse_arguments(text)
    except ToolArgumentsError:
        return None


_TOO_DEEP: Final = "the arguments cannot be kept as they are: it is nested too deep"


def _refuse_constant(name: str) -> Never:
    raise ValueError(f"{name} is not JSON")

"""Neutral card views: what a tool call and its result look like, whoever shows them.

Rules: views-have-fixed-types, cards-are-stored.

A view is a JSON object tagged by `type`, the payload of a `tool/card`. Owns their shapes; knows
nothing of any protocol.

Call views:
    {"type": "generic-call", "title", "kind"?, "rawInput"?, "content"?: [block], "locations"?}
    {"type": "diff-call", "title", "diffs", "locations"?}
    {"type": "terminal-call", "title", "description"?, "cwd"?, "terminalId"?}
Result views:
    {"type": "generic-result", "title"?, "content"?: [block], "rawOutput"?}
    {"type": "diff-result", "title"?, "diffs"}
    {"type": "terminal-result", "title"?, "output"?, "exitCode"?, "signal"?}
where "terminalId" names a terminal of the client that lives only as long as the client shows it,
with locations [{"path", "line"?}] and diffs [{"path", "oldText": str | null, "newText"}].
"""

from typing import Any, Final

from session_core.core_events import BLOCKS
from session_core.errors import CardError, NotJsonError
from session_core.json_value import FrozenDict, freeze_json
from session_core.shapes import Check, Problem, anything, at_least, exactly, list_of, text, whole

_LOCATIONS: Final = list_of(exactly({"path": text}, {"line": at_least(0)}))


def _text_or_null(value: Any) -> Problem | None:
    return None if value is None or type(value) is str else Problem("", "a string or null")


_DIFFS: Final = list_of(exactly({"path": text, "oldText": _text_or_null, "newText": text}))

CALL_VIEWS: Final[dict[str, Check]] = {
    "generic-call": exactly(
        {"type": text, "title": text},
        {"kind": text, "rawInput": anything, "content": BLOCKS, "locations": _LOCATIONS},
    ),
    "diff-call": exactly({"type": text, "title": text, "diffs": _DIFFS}, {"locations": _LOCATIONS}),
    "terminal-call": exactly(
        {"type": text, "title": text}, {"description": text, "cwd": text, "terminalId": text}
    ),
}

RESULT_VIEWS: Final[dict[str, Check]] = {
    "generic-result": exactly(
        {"type": text}, {"title": text, "content": BLOCKS, "rawOutput": anything}
    ),
    "diff-result": exactly({"type": text, "diffs": _DIFFS}, {"title": text}),
    "terminal-result": exactly(
        {"type": text}, {"title": text, "output": text, "exitCode": whole, "signal": text}
    ),
}


def check_view(view: object) -> FrozenDict:
    """Return `view` frozen, if it is a card view.

    Raises:
        CardError: It is none, or of a kind that does not exist: a programming error.
    """
    try:
        frozen = freeze_json(view)
    except NotJsonError as error:
        raise CardError("view", f"JSON: {error.reason}") from error
    if type(frozen) is not FrozenDict:
        raise CardError("view", "an object")
    kind = frozen.get("type")
    check = (CALL_VIEWS.get(kind) or RESULT_VIEWS.get(kind)) if type(kind) is str else None
    if check is None:
        raise CardError("type", "one of " + ", ".join((*CALL_VIEWS, *RESULT_VIEWS)))
    if problem := check(frozen):
        raise CardError(problem.field, problem.expected)
    return frozen


def is_call_view(view: dict[str, Any]) -> bool:
    """Return whether the checked `view` shows a call, not a result."""
    return view["type"] in CALL_VIEWS

from typing import Any

import pytest

from session_core import CardError, check_view, is_call_view

DIFFS = [{"path": "/a", "oldText": None, "newText": "x"}]
LOCATIONS = [{"path": "/a", "line": 3}, {"path": "/b"}]

VIEWS: list[dict[str, Any]] = [
    {"type": "generic-call", "title": "t"},
    {
        "type": "generic-call",
        "title": "t",
        "kind": "read",
        "rawInput": {"x": None},
        "content": [{"type": "text", "text": "x"}],
        "locations": LOCATIONS,
    },
    {"type": "diff-call", "title": "t", "diffs": DIFFS, "locations": LOCATIONS},
    {"type": "terminal-call", "title": "ls", "description": "list", "cwd": "/"},
    {"type": "generic-result"},
    {"type": "diff-result", "diffs": [], "title": "t"},
    {"type": "terminal-result", "output": "x", "exitCode": 1, "signal": "SIGTERM", "title": "t"},
]


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_comes_back_frozen(view: dict[str, Any]) -> None:
    frozen = check_view(view)
    assert frozen == view
    assert frozen is not view
    assert is_call_view(frozen) is view["type"].endswith("-call")
    with pytest.raises(TypeError):
        frozen["title"] = "x"


@pytest.mark.parametrize(
    ("view", "field"),
    [
        ({"type": "generic-call"}, "title"),
        ({"type": "generic-call", "title": "t", "colour": "red"}, "colour"),
        (
            {"type": "diff-call", "title": "t", "diffs": [{"path": "/a", "newText": ""}]},
            "diffs.0.oldText",
        ),
        (
            {"type": "diff-call", "title": "t", "diffs": [{**DIFFS[0], "oldText": 1}]},
            "diffs.0.oldText",
        ),
        (
            {"type": "generic-call", "title": "t", "locations": [{"path": "/a", "line": -1}]},
            "locations.0.line",
        ),
        ({"type": "terminal-result", "exitCode": True}, "exitCode"),
        ({"type": "hologram"}, "type"),
        ({"type": None}, "type"),
        ({}, "type"),
        ([], "view"),
        ({"type": "generic-call", "title": {1}}, "view"),
    ],
)
def test_what_is_no_view_is_refused(view: Any, field: str) -> None:
    with pytest.raises(CardError) as info:
        check_view(view)
    assert info.value.field == field

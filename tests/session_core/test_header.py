from typing import Any

import pytest

from session_core import SessionHeader, SessionHeaderError, SessionId

FULL: dict[str, Any] = {
    "version": 0,
    "id": "s",
    "createdAt": 5,
    "cwd": "/work",
    "parentSession": "p",
    "seedLength": 3,
    "delegationDepth": 1,
}


def test_a_header_survives_storage_with_what_it_does_not_know() -> None:
    stored = {**FULL, "later": {"kept": [1]}}
    header = SessionHeader.from_json(stored)
    assert header.to_json() == stored
    assert list(header.to_json()) == list(stored)
    assert SessionHeader.from_json(header.to_json()) == header
    assert header.extra == {"later": {"kept": [1]}}


def test_what_is_not_known_is_absent() -> None:
    header = SessionHeader.from_json({"version": 0, "id": "s", "createdAt": 0})
    assert header == SessionHeader(SessionId("s"), 0)
    assert header.to_json() == {"version": 0, "id": "s", "createdAt": 0}
    assert header.delegation_depth is None


def test_a_header_never_changes() -> None:
    stored = {**FULL, "later": [1]}
    header = SessionHeader.from_json(stored)
    stored["later"].append(2)
    assert header.extra == {"later": [1]}
    with pytest.raises(AttributeError):
        header.cwd = "/other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        header.extra["x"] = 1


@pytest.mark.parametrize("cwd", ["/", "/a/../b", "C:\\work", "C:/work"])
def test_a_folder_may_be_of_another_platform(cwd: str) -> None:
    assert SessionHeader.from_json({**FULL, "cwd": cwd}).cwd == cwd


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"version": 1}, "version"),
        ({"version": "0"}, "version"),
        ({"version": False}, "version"),
        ({"id": ""}, "id"),
        ({"id": 5}, "id"),
        ({"createdAt": 1.5}, "createdAt"),
        ({"createdAt": -1}, "createdAt"),
        ({"cwd": "relative"}, "cwd"),
        ({"cwd": 5}, "cwd"),
        ({"cwd": None}, "cwd"),
        ({"parentSession": 5}, "parentSession"),
        ({"seedLength": -1}, "seedLength"),
        ({"seedLength": None}, "seedLength"),
        ({"delegationDepth": 1.5}, "delegationDepth"),
        ({"delegationDepth": -0.0}, "header"),
        ({"extra": {1}}, "header"),
    ],
)
def test_a_wrong_field_is_named(change: dict[str, Any], field: str) -> None:
    with pytest.raises(SessionHeaderError) as info:
        SessionHeader.from_json({**FULL, **change})
    assert info.value.field == field


@pytest.mark.parametrize("key", ["version", "id", "createdAt"])
def test_a_missing_field_is_named(key: str) -> None:
    with pytest.raises(SessionHeaderError) as info:
        SessionHeader.from_json({k: v for k, v in FULL.items() if k != key})
    assert info.value.field == key
    wrong: list[Any] = [None, [], "header"]
    for value in wrong:
        with pytest.raises(SessionHeaderError):
            SessionHeader.from_json(value)

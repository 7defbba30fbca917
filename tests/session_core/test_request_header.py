from typing import Any

import pytest

from session_core import (
    RequestHeaderRecorder,
    Session,
    canonical_header,
    fold_request_header,
    header_equals,
)

CONFIG = {"provider": "p", "model": "m"}


def tool(name: str) -> dict[str, Any]:
    return {"name": name, "description": "d", "parameters": {"type": "object"}}


def record(session: Session, header: dict[str, Any], reason: str = "initial") -> None:
    session.append("request/header", {"header": header, "reason": reason})


@pytest.mark.rule("request-header-is-canonical", "request-header-is-logged-on-change")
def test_empty_parts_are_absent_and_the_order_of_tools_matters() -> None:
    full = {"config": CONFIG, "tools": [], "system": "", "messagePrefix": []}
    assert canonical_header(full) == {"config": CONFIG}
    assert header_equals(full, {"config": CONFIG})
    one = {"config": CONFIG, "tools": [tool("a"), tool("b")]}
    other = {"config": CONFIG, "tools": [tool("b"), tool("a")]}
    assert not header_equals(one, other)
    assert header_equals(one, {**one})
    assert not header_equals(one, None)
    assert header_equals(None, None)
    assert not header_equals(
        {"config": CONFIG | {"temperature": 1}}, {"config": CONFIG | {"temperature": True}}
    )


@pytest.mark.rule("request-header-is-canonical", "request-header-is-logged-on-change")
def test_a_runner_records_its_first_request_and_then_only_changes(session: Session) -> None:
    header = {"config": CONFIG, "system": "s"}
    recorder = RequestHeaderRecorder()
    assert recorder.reason(header, session.request_header()) == "initial"
    assert recorder.reason(header, session.request_header()) == "initial"  # it was not recorded
    record(session, header)
    recorder.note_recorded()
    assert recorder.reason(header, session.request_header()) is None
    assert recorder.reason({**header, "tools": []}, session.request_header()) is None
    changed = {**header, "system": "t"}
    assert recorder.reason(changed, session.request_header()) == "change"
    record(session, changed, "change")
    assert recorder.reason(changed, session.request_header()) is None

    resumed = RequestHeaderRecorder()
    assert resumed.reason(changed, session.request_header()) == "resume"
    record(session, changed, "resume")
    resumed.note_recorded()
    assert resumed.reason(changed, session.request_header()) is None


def test_the_last_header_wins_live_and_folded(session: Session) -> None:
    assert session.request_header() is None
    assert fold_request_header(session.events) is None
    assert fold_request_header([], {"config": CONFIG, "tools": []}) == {"config": CONFIG}
    for system in ("a", "b", ""):
        record(session, {"config": CONFIG, "system": system})
        session.append_delta(1, 1, "text-delta", 0, "x")
        expected = {"config": CONFIG} | ({"system": system} if system else {})
        assert session.request_header() == expected
        assert fold_request_header(session.events) == expected
    header = session.request_header()
    assert header is not None
    with pytest.raises(TypeError):
        header["system"] = "x"
    assert session.request_header() is header

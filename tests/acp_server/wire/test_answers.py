import pytest
from pydantic import BaseModel

from acp_server.wire.client_results import (
    CancelledOutcome,
    CreateTerminalResult,
    ElicitationResult,
    EmptyResult,
    ExitStatus,
    ReadTextFileResult,
    RequestPermissionResult,
    SelectedOutcome,
    TerminalOutputResult,
    WaitForExitResult,
)
from acp_server.wire.errors import WireError
from acp_server.wire.model import parse


@pytest.mark.rule("answer-decides-the-call")
def test_a_permission_answer_is_a_choice_or_cancelled() -> None:
    selected = {"outcome": {"outcome": "selected", "optionId": "o", "_meta": None}}
    cancelled = {"outcome": {"outcome": "cancelled"}}
    assert parse(RequestPermissionResult, selected).outcome == SelectedOutcome(
        outcome="selected", optionId="o"
    )
    assert parse(RequestPermissionResult, cancelled).outcome == CancelledOutcome(
        outcome="cancelled"
    )


@pytest.mark.parametrize(
    "answer",
    [
        None,
        {},
        {"outcome": "selected"},
        {"outcome": {"outcome": "selected"}},
        {"outcome": {"outcome": "selected", "optionId": 5}},
        {"outcome": {"outcome": "maybe", "optionId": "o"}},
        {"optionId": "o"},
    ],
)
def test_any_other_permission_answer_does_not_parse(answer: object) -> None:
    with pytest.raises(WireError, match="outcome"):
        parse(RequestPermissionResult, answer)


@pytest.mark.parametrize("answer", [None, {}, {"_meta": None}, {"future": 1}])
def test_an_empty_answer_may_be_null(answer: object) -> None:
    assert parse(EmptyResult, answer) == EmptyResult()


@pytest.mark.parametrize(
    ("model", "answer", "detail"),
    [
        (ReadTextFileResult, None, "`content` is missing"),
        (ReadTextFileResult, {"content": 5}, "`content` must be a string"),
        (CreateTerminalResult, {}, "`terminalId` is missing"),
        (TerminalOutputResult, {"truncated": False}, "`output` is missing"),
        (ElicitationResult, {"content": {}}, "`action` is missing"),
        (EmptyResult, "ok", "params must be an object"),
    ],
)
def test_what_an_answer_must_have_is_named(
    model: type[BaseModel], answer: object, detail: str
) -> None:
    with pytest.raises(WireError) as caught:
        parse(model, answer)
    assert caught.value.detail == detail


@pytest.mark.parametrize(
    ("status", "read"),
    [
        (None, None),
        ("done", None),
        ({}, ExitStatus()),
        ({"exitCode": 0, "signal": None}, ExitStatus(exitCode=0)),
        ({"exitCode": None, "signal": "SIGKILL"}, ExitStatus(signal="SIGKILL")),
        ({"exitCode": "0", "signal": 9}, ExitStatus()),
    ],
)
def test_a_terminal_status_is_read_leniently(status: object, read: ExitStatus | None) -> None:
    answer = parse(TerminalOutputResult, {"output": "x", "exitStatus": status})
    assert answer == TerminalOutputResult(output="x", exitStatus=read)
    if isinstance(status, dict) and read is not None:
        assert parse(WaitForExitResult, status).exit_code == read.exit_code


def test_an_elicitation_answer_keeps_unknown_actions() -> None:
    accepted = parse(ElicitationResult, {"action": "accept", "content": {"a": 1}})
    assert (accepted.action, accepted.content) == ("accept", {"a": 1})
    later = parse(ElicitationResult, {"action": "postpone", "content": 5})
    assert (later.action, later.content) == ("postpone", None)

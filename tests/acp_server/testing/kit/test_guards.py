"""Guards: what lies around in a directory of scenarios is found."""

import json
from pathlib import Path
from typing import Any

import orjson
import pytest

from acp_server.testing.kit.guards import suite_faults

FRAME = {"jsonrpc": "2.0", "id": 1, "result": {"sessionId": "{{session.1}}"}}
SESSION = {"type": "session", "id": "{{session.1}}", "createdAt": 0, "delegationDepth": 0}
STEPS = [{"op": "initialize"}, {"op": "newSession"}]
HEADER = {
    "type": "request/header",
    "seq": 0,
    "time": 0,
    "data": {"header": {"tools": "{{tools}}"}, "reason": "initial"},
}


def scenario(suite: Path, name: str = "one", **members: Any) -> Path:
    path = suite / name
    path.mkdir()
    text = {"about": "x", "agent": "demo", "steps": STEPS, **members}
    (path / "scenario.json").write_text(json.dumps(text), "utf-8")
    (path / "frames.expected.jsonl").write_bytes(orjson.dumps(FRAME) + b"\n")
    return path


def lines(path: Path, *values: Any) -> None:
    path.write_bytes(b"".join(orjson.dumps(value) + b"\n" for value in values))


def test_a_directory_in_order_has_no_fault(tmp_path: Path) -> None:
    path = scenario(tmp_path, agent="script", given=["given.jsonl"])
    (path / "model.json").write_text("[]", "utf-8")
    (path / "given.jsonl").write_text("{}\n", "utf-8")
    (path / "workspace").mkdir()
    (path / "README.md").write_text("why", "utf-8")
    lines(path / "session.expected.jsonl", SESSION)
    lines(path / "session.1.expected.jsonl", SESSION)
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / ".hidden").mkdir()
    (path / "frames.expected.jsonl.new").write_text("left by a failed run", "utf-8")
    assert list(suite_faults(tmp_path)) == []


@pytest.mark.rule("nothing-lies-around-in-suites")
def test_a_directory_without_a_script_is_an_orphan(tmp_path: Path) -> None:
    scenario(tmp_path)
    (tmp_path / "lost").mkdir()
    assert list(suite_faults(tmp_path)) == ["lost has no scenario.json"]


@pytest.mark.rule("nothing-lies-around-in-suites")
@pytest.mark.parametrize(
    ("file", "fault"),
    [
        ("modle.json", "one: nothing names the file modle.json"),
        ("model.json", "one: nothing names the file model.json"),
        ("model.override.json", "one: nothing names the file model.override.json"),
        ("header.expected.json", "one: header.expected.json is there and not declared"),
    ],
)
def test_a_file_that_nothing_names_is_found(tmp_path: Path, file: str, fault: str) -> None:
    (scenario(tmp_path) / file).write_text("[]\n" if file.startswith("m") else "{}\n", "utf-8")
    assert fault in list(suite_faults(tmp_path))


@pytest.mark.rule("nothing-lies-around-in-suites")
def test_an_override_is_there_exactly_when_it_is_declared(tmp_path: Path) -> None:
    path = scenario(tmp_path, agent="script", log="nothing")
    (path / "model.json").write_text("[]", "utf-8")
    (path / "model.override.json").write_text("[]", "utf-8")
    assert list(suite_faults(tmp_path)) == ["one: model.override.json is there and not declared"]
    other = scenario(tmp_path, "two", overridden=True)
    assert list(suite_faults(tmp_path))[1:] == [
        "two: model.override.json is declared and not there"
    ]
    assert other.exists()


def test_missing_expectations_are_found(tmp_path: Path) -> None:
    path = scenario(tmp_path, agent="script")
    (path / "model.json").write_text("[]", "utf-8")
    (path / "frames.expected.jsonl").unlink()
    assert list(suite_faults(tmp_path)) == [
        "one: there is no frames.expected.jsonl",
        "one: the model answers, and no log is expected",
    ]


def test_logs_are_numbered_without_gaps(tmp_path: Path) -> None:
    path = scenario(tmp_path)
    lines(path / "session.expected.jsonl", SESSION)
    lines(path / "session.2.expected.jsonl", SESSION)
    assert list(suite_faults(tmp_path)) == [
        "one: the expected logs are numbered [0, 2], which leaves gaps"
    ]


def test_expected_files_are_normalized(tmp_path: Path) -> None:
    path = scenario(tmp_path)
    lines(path / "frames.expected.jsonl", {**FRAME, "result": {"sessionId": "018f-some-real-id"}})
    (fault,) = suite_faults(tmp_path)
    assert fault == "one: frames.expected.jsonl is not normalized; was it edited by hand?"


def test_expected_logs_are_normalized(tmp_path: Path) -> None:
    path = scenario(tmp_path)
    event = {"type": "turn/start", "seq": 0, "time": 1700000000000, "data": {"turn": 1}}
    lines(path / "session.expected.jsonl", SESSION, event)
    (fault,) = suite_faults(tmp_path)
    assert fault == "one: session.expected.jsonl is not normalized; was it edited by hand?"


@pytest.mark.rule("bad-script-names-its-line")
def test_a_bad_script_is_one_fault_and_the_others_are_looked_at(tmp_path: Path) -> None:
    (scenario(tmp_path) / "scenario.json").write_text("{\n", "utf-8")
    (tmp_path / "two").mkdir()
    first, second = suite_faults(tmp_path)
    assert first.startswith(f"{tmp_path}/one/scenario.json:2: ")
    assert second == "two has no scenario.json"


@pytest.mark.rule("headers-are-pinned-once")
def test_a_header_class_is_pinned_by_one_scenario(tmp_path: Path) -> None:
    path = scenario(tmp_path)
    lines(path / "session.expected.jsonl", SESSION, HEADER)
    assert list(suite_faults(tmp_path)) == [
        "header class 'default' is pinned by 0 scenarios, not by one"
    ]
    for name in ("two", "three"):
        pin = scenario(tmp_path, name, pinsHeader=True)
        lines(pin / "header.expected.json", {"tools": []})
    assert list(suite_faults(tmp_path)) == [
        "header class 'default' is pinned by 2 scenarios, not by one"
    ]

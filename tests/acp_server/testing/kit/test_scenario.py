"""Scenario files: what is wrong is named by file and line."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from acp_server.testing.kit.runner import variants_of
from acp_server.testing.kit.scenario import ScenarioDirectory, ScenarioFault, load_scenario

STEPS = [{"op": "initialize"}, {"op": "newSession"}, {"op": "prompt", "text": "hi"}]


def written(path: Path, **members: Any) -> ScenarioDirectory:
    text = {"about": "a test", "agent": "demo", "steps": STEPS, **members}
    (path / "scenario.json").write_text(json.dumps(text), "utf-8")
    return load_scenario(path)


def names_of(directory: ScenarioDirectory, *stores: str) -> list[str]:
    return [variant.name for variant in variants_of(directory, stores)]


@pytest.mark.rule("bad-script-names-its-line")
@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"op": "promt", "text": "x"}', "steps[1]: there is no op 'promt'"),
        ('{"text": "x"}', "steps[1]: a step needs an `op`"),
        ('{"op": "prompt", "txt": "x"}', "steps[1].txt: there is no such member"),
        ('{"op": "prompt", "text": 3}', "steps[1].text: Input should be a valid string"),
        ('{"op": "prompt"}', "steps[1]: a prompt has either `text` or `blocks`"),
        ('{"op": "setMode"}', "steps[1].modeId: is missing"),
        (
            '{"op": "prompt", "text": "x", "code": 1}',
            "steps[1]: `code` belongs to promptExpectError",
        ),
    ],
)
def test_a_bad_step_is_named_with_its_line(tmp_path: Path, line: str, reason: str) -> None:
    text = f'{{"about": "x",\n"agent": "demo",\n"steps": [\n{{"op": "initialize"}},\n{line}]}}'
    (tmp_path / "scenario.json").write_text(text, "utf-8")
    with pytest.raises(ScenarioFault) as caught:
        load_scenario(tmp_path)
    assert (caught.value.line, caught.value.reason) == (5, reason)
    assert str(caught.value).startswith(f"{tmp_path}/scenario.json:5: ")


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"agent": "script"}, "the agent is `script`, and there is no model.json"),
        ({"agent": "agent.py:x"}, "it names 'agent.py', which is not there"),
        ({"colour": "red"}, "colour: there is no such member"),
        ({"permissionAnswers": [{}]}, "has one of `kind`, `optionId` and `never`"),
        ({"permissionAnswers": ["alow_once"]}, "there is no permission kind 'alow_once'"),
        ({"without": {"everything": "no"}}, "without.everything"),
        ({"steps": None}, "steps: "),
    ],
)
def test_a_bad_member_is_named(tmp_path: Path, members: Mapping[str, Any], reason: str) -> None:
    with pytest.raises(ScenarioFault, match="scenario") as caught:
        written(tmp_path, **members)
    assert reason in caught.value.reason


def test_a_missing_script_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(ScenarioFault, match="cannot be read"):
        load_scenario(tmp_path)


def test_a_permission_answer_may_be_a_kind_alone(tmp_path: Path) -> None:
    directory = written(tmp_path, permissionAnswers=["allow_once", {"never": True}])
    first, second = directory.scenario.permission_answers
    assert (first.kind, second.never) == ("allow_once", True)


def test_files_of_agents_are_named_by_absolute_paths(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text("", "utf-8")
    assert written(tmp_path, agent="agent.py:x").agent_spec() == f"{tmp_path}/agent.py:x"
    assert written(tmp_path, agent="package.module:x").agent_spec() == "package.module:x"
    (tmp_path / "model.json").write_text("[]", "utf-8")
    assert written(tmp_path, agent="script").agent_spec() == f"script:{tmp_path}/model.json"


@pytest.mark.rule("scenario-runs-on-each-store")
def test_a_scenario_runs_in_a_process_once_and_over_memory_on_each_store(tmp_path: Path) -> None:
    assert names_of(written(tmp_path)) == [
        "jsonl-subprocess",
        "jsonl-memory",
        "sqlite-memory",
        "memory-memory",
    ]
    assert names_of(written(tmp_path), "sqlite") == ["sqlite-subprocess", "sqlite-memory"]
    assert names_of(written(tmp_path, stores=["jsonl"])) == ["jsonl-subprocess", "jsonl-memory"]
    assert names_of(written(tmp_path, transports=["memory"]), "memory") == ["memory-memory"]


def test_signals_need_a_process_on_each_store(tmp_path: Path) -> None:
    directory = written(tmp_path, steps=[*STEPS, {"op": "kill"}])
    assert names_of(directory) == ["jsonl-subprocess", "sqlite-subprocess"]

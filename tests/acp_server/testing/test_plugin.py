"""The pytest plugin in a project that knows nothing of ours."""

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

import pytest

from acp_server.models.script_file import read_script

ROOT = Path(__file__).parents[3]

SCENARIO = {
    "kit": "acp",
    "about": "The agent greets.",
    "agent": "agent.py:greeter",
    "steps": [
        {"op": "initialize"},
        {"op": "newSession"},
        {"op": "prompt", "text": "Ada"},
    ],
}
AGENT = """
from acp_server import agent


@agent
async def greeter(turn):
    await turn.text(f"Hello {turn.prompt}")
"""
# What other snapshot plugins register: with the same names pytest would not start.
OTHER_PLUGIN = """
import pytest


def pytest_addoption(parser):
    group = parser.getgroup("other")
    group.addoption("--snapshot-update", action="store_true")
    group.addoption("--inline-snapshot")
    group.addoption("--update-snapshots", action="store_true")
    group.addoption("--snapshot-patch-pycharm-diff", action="store_true")


@pytest.fixture
def snapshot():
    return "other"
"""
TESTS = """
async def greeter(turn):
    await turn.text(f"Hello {turn.prompt}")


def test_in_python(acp):
    with acp("scenarios/greeting/agent.py:greeter") as run:
        turn = run.prompt("Grace")
        assert (turn.stop_reason, turn.text) == ("end_turn", "Hello Grace")


def test_with_an_agent_of_its_own(acp):
    with acp(greeter) as run:
        assert run.prompt("Joan").text == "Hello Joan"


def test_beside_another_plugin(acp, snapshot):
    assert snapshot == "other"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    scenario = root / "scenarios" / "greeting"
    scenario.mkdir(parents=True)
    (root / "pyproject.toml").write_text("[tool.pytest.ini_options]\n", "utf-8")
    (root / "other_plugin.py").write_text(OTHER_PLUGIN, "utf-8")
    (root / "test_greeter.py").write_text(TESTS, "utf-8")
    (scenario / "scenario.json").write_text(json.dumps(SCENARIO), "utf-8")
    (scenario / "agent.py").write_text(AGENT, "utf-8")
    # Whatever lies in a workspace is no test of the project.
    (scenario / "workspace").mkdir()
    (scenario / "workspace" / "test_trap.py").write_text("raise SystemExit(9)\n", "utf-8")
    return root


def run(
    project: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    known = {
        key: value for key, value in os.environ.items() if not key.startswith(("CI", "PYTEST"))
    }
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "other_plugin", "-q", *arguments],
        cwd=project,
        env={
            **known,
            "PYTHONPATH": os.pathsep.join([str(project), str(ROOT)]),
            **(environment or {}),
        },
        capture_output=True,
        text=True,
        timeout=120,
    )


def expected_files(project: Path) -> list[str]:
    found = (project / "scenarios" / "greeting").glob("*.expected.jsonl*")
    return sorted(path.name for path in found)


@pytest.mark.rule("scenario-is-a-directory")
def test_a_scenario_is_written_run_changed_reviewed_and_accepted(project: Path) -> None:
    scenario = project / "scenarios" / "greeting"

    first = run(project, "scenarios")
    assert first.returncode == 1
    assert "greeting: nothing is expected yet" in first.stdout

    written = run(project, "--acp-update", "scenarios")
    assert written.returncode == 0, written.stdout + written.stderr
    assert expected_files(project) == ["frames.expected.jsonl", "session.expected.jsonl"]

    # Warnings of our libraries fail nobody's test.
    passed = run(project, "scenarios", "-W", "error", "-p", "no:asyncio")
    assert "5 passed" in passed.stdout, passed.stdout  # guards, a process, three stores

    (scenario / "agent.py").write_text(AGENT.replace("Hello", "Bye"), "utf-8")
    changed = run(project, "scenarios")
    assert changed.returncode == 1
    assert (
        'has `params.update.content.text` "Bye Ada" where "Hello Ada" is expected' in changed.stdout
    )
    assert "to accept: pytest scenarios --acp-accept=greeting" in changed.stdout
    # Once, although four variants differ.
    assert changed.stdout.count('content.text: "Hello Ada" -> "Bye Ada"') == 1
    assert "greeting: differs as jsonl-subprocess does" in changed.stdout
    assert (
        "1 scenario differs: greeting; to decide on each: pytest scenarios --acp-review; "
        "to accept all: pytest scenarios --acp-update\n"
    ) in changed.stdout
    assert expected_files(project) == [
        "frames.expected.jsonl",
        "frames.expected.jsonl.new",
        "session.expected.jsonl",
        "session.expected.jsonl.new",
    ]

    accepted = run(project, "scenarios", "--acp-accept=greeting")
    assert accepted.returncode == 0, accepted.stdout
    assert expected_files(project) == ["frames.expected.jsonl", "session.expected.jsonl"]
    assert "Bye Ada" in (scenario / "frames.expected.jsonl").read_text("utf-8")

    (scenario / "agent.py").write_text(AGENT, "utf-8")
    reviewed = run(project, "scenarios", "--acp-review")
    assert reviewed.returncode == 1
    # Nobody is asked without a terminal.
    assert reviewed.stdout.count('params.update.content.text: "Bye Ada" -> "Hello Ada"') == 2
    assert "Bye Ada" in (scenario / "frames.expected.jsonl").read_text("utf-8")


def test_a_mode_that_is_none_is_refused(project: Path) -> None:
    done = run(project, "--acp-update=most", "scenarios")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "'most' is neither a mode (new, changed, all) nor a path" in done.stderr


@pytest.mark.rule("unchanged-run-writes-nothing")
def test_nothing_is_written_in_ci(project: Path) -> None:
    in_ci = {"CI": "true"}
    refused = run(project, "scenarios", "--acp-update=new", environment=in_ci)
    assert refused.returncode == pytest.ExitCode.USAGE_ERROR
    assert "--acp-update: nothing is written while CI is set" in refused.stderr
    run(project, "--acp-update", "scenarios")
    (project / "scenarios" / "greeting" / "agent.py").write_text(
        AGENT.replace("Hello", "Bye"), "utf-8"
    )
    failed = run(project, "scenarios", environment=in_ci)
    assert failed.returncode == 1
    assert "CI is set, so nothing was written" in failed.stdout
    assert "1 scenario differs: greeting\n" in failed.stdout
    assert expected_files(project) == ["frames.expected.jsonl", "session.expected.jsonl"]


@pytest.mark.rule("kit-meets-no-other-plugin")
def test_the_fixture_and_scenarios_work_under_xdist_beside_another_plugin(project: Path) -> None:
    run(project, "--acp-update", "scenarios")
    done = run(project, "-n", "2", "--snapshot-update")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 passed" in done.stdout
    (project / "scenarios" / "greeting" / "agent.py").write_text(
        AGENT.replace("Hello", "Bye"), "utf-8"
    )
    assert "1 scenario differs: greeting; " in run(project, "-n", "2", "scenarios").stdout


def test_a_scenario_to_accept_that_is_not_there_is_refused(project: Path) -> None:
    run(project, "--acp-update", "scenarios")
    done = run(project, "scenarios", "--acp-accept=greeting", "--acp-accept=greting")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "--acp-accept: no scenario is called 'greting'; there are: greeting" in done.stderr


def test_scenarios_of_another_kit_are_left_to_it(project: Path) -> None:
    folder = project / "scenarios" / "greeting"
    (folder / "scenario.json").write_text('{"kit": "theirs", "steps": "acp"}', "utf-8")
    (folder / "test_theirs.py").write_text("def test_theirs():\n    pass\n", "utf-8")
    done = run(project, "scenarios/greeting/test_theirs.py", "test_greeter.py")
    assert "4 passed" in done.stdout, done.stdout
    (project / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\nacp_scenarios = ["scenarios"]\n', "utf-8"
    )
    done = run(project, "scenarios")
    assert "scenario.json:1: kit: Input should be 'acp'" in done.stdout


def test_a_scenario_with_a_syntax_error_is_still_ours(project: Path) -> None:
    bad = '{"kit": "acp",\n"about" "x"}'
    (project / "scenarios" / "greeting" / "scenario.json").write_text(bad, "utf-8")
    assert "scenario.json:2: " in run(project, "scenarios").stdout


BROKEN = """
import pytest


@pytest.mark.parametrize("agent", ["broken.py:x", "absent.py:x"])
def test_start(acp, agent):
    with acp(agent):
        pass


def test_turn(acp):
    with acp("fine.py:x") as run:
        run.prompt("go")
"""


def test_an_agent_that_cannot_be_loaded_fails_its_test_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n", "utf-8")
    (tmp_path / "other_plugin.py").write_text("", "utf-8")
    (tmp_path / "broken.py").write_text("def (", "utf-8")
    (tmp_path / "fine.py").write_text("async def x(turn):\n    raise ValueError('Ada')\n", "utf-8")
    (tmp_path / "test_it.py").write_text(BROKEN, "utf-8")
    done = run(tmp_path, "-k", "test_start")  # within the time that `run` gives it
    assert "2 failed" in done.stdout, done.stdout + done.stderr
    raised = "".join(line for line in done.stdout.splitlines() if line.startswith("E  "))
    assert "SyntaxError: invalid syntax (broken.py, line 1)" in raised
    assert "there is no file" in raised


def test_the_traceback_of_an_agent_is_shown_with_the_failed_test(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n", "utf-8")
    (tmp_path / "other_plugin.py").write_text("", "utf-8")
    (tmp_path / "fine.py").write_text("async def x(turn):\n    raise ValueError('Ada')\n", "utf-8")
    (tmp_path / "test_it.py").write_text(BROKEN, "utf-8")
    done = run(tmp_path, "-k", "test_turn")
    assert done.returncode == 1
    assert 'fine.py", line 2, in x' in done.stdout
    assert "ValueError: Ada" in done.stdout


def test_the_traceback_of_an_agent_is_shown_with_the_failed_scenario(project: Path) -> None:
    run(project, "--acp-update", "scenarios")
    failing = AGENT.replace("await turn.text", "raise ValueError")
    (project / "scenarios" / "greeting" / "agent.py").write_text(failing, "utf-8")
    done = run(project, "scenarios", "-k", "subprocess")
    assert done.returncode == 1
    assert "ValueError: Hello Ada" in done.stdout


@pytest.mark.rule("bad-script-names-its-line")
def test_a_bad_scenario_is_an_error_with_its_line(project: Path) -> None:
    bad = '{"kit": "acp", "about": "x",\n"agent": "demo",\n"steps": [{"op": "initialise"}]}'
    (project / "scenarios" / "greeting" / "scenario.json").write_text(bad, "utf-8")
    done = run(project, "scenarios")
    assert done.returncode == pytest.ExitCode.INTERRUPTED
    assert "scenario.json:3: steps[0]: there is no op 'initialise'" in done.stdout


def test_conformance_cases_take_the_place_of_the_tests(project: Path) -> None:
    server = f"{sys.executable} -m acp_server.testing.serve --store memory: --agent demo"
    done = run(project, "--acp-agent", server, "-k", "initialize or unknown_method", "-v")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout
    assert "test_greeter" not in done.stdout
    assert f"acp agent: {server}" in done.stdout


@pytest.mark.rule("kit-meets-no-other-plugin")
def test_a_project_that_does_not_use_it_pays_for_nothing(project: Path) -> None:
    shutil.rmtree(project / "scenarios")
    (project / "test_greeter.py").write_text(
        textwrap.dedent(
            """
            import sys


            def test_nothing_of_the_kit_is_there():
                heavy = ("anyio", "orjson", "pydantic", "acp", "session_core", "persistence")
                assert [name for name in heavy if name in sys.modules] == []
                kit = [name for name in sys.modules if name.startswith("acp_server")]
                assert kit == ["acp_server", "acp_server.testing", "acp_server.testing.plugin"]
            """
        ),
        "utf-8",
    )
    done = run(project, "test_greeter.py", "-p", "no:anyio", "-p", "no:hypothesispytest")
    assert done.returncode == 0, done.stdout


PAGE = ROOT / "docs" / "snapshot-testing.md"
WRITER = """
from acp_server import PermissionDenied, agent


@agent
async def writer(turn):
    try:
        async with turn.tool("write", title="Write a.txt", kind="edit", ask=True):
            await turn.files.write("a.txt", "new")
    except PermissionDenied:
        await turn.text("So I leave it.")
"""


def blocks_of(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


def test_the_page_on_snapshot_testing_works_as_it_stands(tmp_path: Path) -> None:
    scenario = tmp_path / "scenarios" / "greeting"
    scenario.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n", "utf-8")
    (tmp_path / "other_plugin.py").write_text("", "utf-8")
    python, script = blocks_of("python"), blocks_of("json")
    (scenario / "agent.py").write_text(python[0], "utf-8")
    (scenario / "scenario.json").write_text(script[0], "utf-8")
    (tmp_path / "agent.py").write_text(WRITER, "utf-8")
    (tmp_path / "test_writer.py").write_text(python[1], "utf-8")
    assert run(tmp_path, "scenarios", "--acp-update=new").returncode == 0
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout
    assert "6 passed" in done.stdout
    # The model script of the page is one.
    (tmp_path / "model.json").write_text(script[1], "utf-8")
    assert read_script(tmp_path / "model.json").length == 4

"""The suite of scenarios as a whole; each scenario is a test by itself (fixtures/scenarios)."""

import json
from pathlib import Path

import pytest

from acp_server.testing.kit.guards import suite_faults
from acp_server.testing.kit.runner import run_scenario, variants_of
from acp_server.testing.kit.scenario import load_scenario

SUITE = Path(__file__).parents[2] / "fixtures" / "scenarios"

# Contract 7.7, first wave, as far as its features are part of this server.
FIRST_WAVE = {
    "handshake",
    "relative-extra-dirs",
    "text-turn",
    "multi-turn",
    "tool-call-turn",
    "parallel-tool-calls",
    "todo-plan",
    "terminal-card",
    "fs-read-from-disk",
    "fs-write-new",
    "fs-edit",
    "cancel",
    "cancel-tool-calls",
    "error-finish",
    "prompt-blocked",
    "packed-chunks",
    "model-from-recorded-fork",
    "permission-approved",
    "permission-rejected",
    "tool-outcome-unknown",
    "load-replay",
    "load-interrupted",
    "load-cwd-mismatch",
    "load-twice",
    "load-unknown",
    "list",
    "two-sessions",
    "eof-mid-turn",
    "max-tokens",
    "fork",
    "fork-of-a-fork",
}


def names() -> set[str]:
    return {path.parent.name for path in SUITE.glob("*/scenario.json")}


def test_the_suite_is_in_order() -> None:
    assert list(suite_faults(SUITE)) == []


@pytest.mark.rule("scenario-is-a-directory")
def test_the_first_wave_is_there() -> None:
    assert FIRST_WAVE - names() == set()
    assert len(names()) >= 40


@pytest.mark.rule("scenario-is-a-directory")
def test_each_scenario_says_what_it_pins_in_one_sentence() -> None:
    for path in SUITE.glob("*/scenario.json"):
        about = json.loads(path.read_text("utf-8"))["about"]
        assert about.endswith("."), path.parent.name
        assert 20 < len(about) < 140, path.parent.name


@pytest.mark.rule("unchanged-run-writes-nothing")
@pytest.mark.parametrize("name", ["load-replay", "fork-of-a-fork", "two-sessions"])
def test_two_runs_give_the_same(name: str) -> None:
    directory = load_scenario(SUITE / name)
    variant = variants_of(directory, ["memory"])[-1]
    first, second = (run_scenario(directory, variant) for _ in range(2))
    assert first.passed, first.report()
    assert first.snapshot == second.snapshot

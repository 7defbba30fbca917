"""The pytest plugin of the kit: scenario directories as tests, and the fixture `acp`.

Installed projects get it by entry point, so this module imports nothing but pytest. What the hooks
need is imported when a directory of scenarios is met, the fixture is asked for or `--acp-agent` is
given.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acp_server.testing.kit.fixture import AcpFixture

_UPDATE_MODES = ("new", "changed", "all")
_PATHS = "acp_update_paths"


class _UpdateAction(argparse.Action):
    """Takes a mode, or nothing; what is no mode is a path that argparse has handed over."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        del parser
        mode = "changed" if values is None else str(values)
        if mode not in _UPDATE_MODES:
            if "=" in (option_string or "") or not Path(mode.partition("::")[0]).exists():
                message = f"{mode!r} is neither a mode ({', '.join(_UPDATE_MODES)}) nor a path"
                raise argparse.ArgumentError(self, message)
            setattr(namespace, _PATHS, [*getattr(namespace, _PATHS, ()), mode])
            mode = "changed"
        setattr(namespace, self.dest, mode)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, named so that they meet those of no other snapshot plugin.

    Rule: kit-meets-no-other-plugin.
    """
    group = parser.getgroup("acp", "ACP agents: scenarios and conformance")
    group.addoption(
        "--acp-update",
        action=_UpdateAction,
        nargs="?",
        metavar="new|changed|all",
        help="write the expected files of scenarios: those that are missing (new), those that "
        "differ, too (changed, the default), or also remove what no run gives any more (all)",
    )
    group.addoption(
        "--acp-review",
        action="store_true",
        help="show what differs, scenario by scenario, and ask whether to accept it",
    )
    group.addoption(
        "--acp-accept",
        action="append",
        metavar="SCENARIO",
        help="make the .new files of a failed run the expected ones, then run it again",
    )
    group.addoption(
        "--acp-record",
        action="store_true",
        help="run the live agent of scenarios that name one in `recorded`, and keep its log as "
        "their model script",
    )
    group.addoption(
        "--acp-stores",
        metavar="KINDS",
        help="kinds of stores that scenarios run on, e.g. jsonl,sqlite (default: all there are)",
    )
    group.addoption(
        "--acp-agent",
        metavar="COMMAND",
        help="run the ACP conformance cases against the agent that this command line starts, "
        "instead of the tests",
    )
    parser.addini(
        "acp_scenarios",
        "names of the directories whose subdirectories are scenarios, whatever they hold; else "
        'those called "scenarios" where a scenario.json has the member "kit": "acp"',
        type="args",
        default=[],
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to write in CI; turn to the conformance cases if an agent is given."""
    paths = [path for path in getattr(config.option, _PATHS, ()) if path not in config.args]
    if paths:
        given = config.args_source is pytest.Config.ArgsSource.ARGS
        config.args = [*config.args, *paths] if given else paths
    writes = [
        f"--acp-{name}"
        for name in ("update", "review", "accept", "record")
        if config.getoption(f"acp_{name}", None)
    ]
    if writes:
        from acp_server.testing.kit.accepting import writing_is_allowed  # noqa: PLC0415 - if used

        if not writing_is_allowed():
            message = f"{writes[0]}: nothing is written while CI is set"
            raise pytest.UsageError(message)
    if config.getoption("acp_record", None) and getattr(config.option, "numprocesses", None):
        # A provider is asked for one thing after the other.
        message = "--acp-record runs one scenario after the other, without -n"
        raise pytest.UsageError(message)
    command = config.getoption("acp_agent", None)
    if command:
        from acp_server.testing.conformance.pytest_cases import (  # noqa: PLC0415 - if used
            ConformancePlugin,
        )

        config.pluginmanager.register(ConformancePlugin(command), "acp-conformance")


def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect a directory of scenarios as such, if it says that they are ours."""
    named = path.name in parent.config.getini("acp_scenarios")
    if not named and path.name != "scenarios":
        return None
    if not any(named or _is_ours(script) for script in path.glob("*/scenario.json")):
        return None
    from acp_server.testing.kit.items import ScenarioSuite  # noqa: PLC0415 - only with scenarios

    suite: pytest.Collector = ScenarioSuite.from_parent(parent, path=path)
    return suite


def _is_ours(script: Path) -> bool:
    # By its text: one with a syntax error is to be an error, and not passed over.
    try:
        return re.search(r'"kit"\s*:\s*"acp"', script.read_text("utf-8")) is not None
    except (OSError, UnicodeDecodeError):
        return False


def pytest_collection_modifyitems(config: pytest.Config) -> None:
    """Refuse `--acp-accept` for a scenario that is not there."""
    if config.getoption("acp_accept", None):
        from acp_server.testing.kit.items import check_accepted  # noqa: PLC0415 - if used

        check_accepted(config)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many scenarios differ, and what to run."""
    failed = terminalreporter.stats.get("failed", ())
    if any(report.user_properties for report in failed):
        from acp_server.testing.kit.items import closing_line  # noqa: PLC0415 - if used

        line = closing_line(failed)
        if line is not None:
            terminalreporter.write_line(line)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Ask about what differed, with `--acp-review`."""
    if session.config.getoption("acp_review", default=False):
        from acp_server.testing.kit.review import review  # noqa: PLC0415 - if used

        review(session.config)


@pytest.fixture
def acp(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[AcpFixture]:
    """Return a function that starts a server with an agent and returns a run with it.

    `with acp("agent.py:name", permissions=["allow_once"]) as run: turn = run.prompt("…")`
    """
    from acp_server.testing.kit.fixture import AcpFixture  # noqa: PLC0415 - only who asks for it

    with AcpFixture(tmp_path, request.path.parent) as runs:
        yield runs

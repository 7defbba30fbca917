"""Scenario directories as pytest sees them: a suite, its scenarios, one test for each variant."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from acp_server.testing.kit.accepting import (
    accept,
    forget_new,
    leave_new,
    update,
    writing_is_allowed,
)
from acp_server.testing.kit.guards import suite_faults
from acp_server.testing.kit.live import RecordError, record
from acp_server.testing.kit.runner import run_scenario, variants_of
from acp_server.testing.kit.scenario import SCENARIO_FILE, ScenarioFault, load_scenario

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from _pytest._code.code import TerminalRepr

    from acp_server.testing.kit.runner import Variant, Verdict
    from acp_server.testing.kit.scenario import ScenarioDirectory
    from acp_server.testing.kit.snapshot import Snapshot

GUARDS = "guards"
_WRITING = ("update", "accept", "review", "record")
DIFFERING = pytest.StashKey[dict[Path, tuple[str, "Snapshot"]]]()
"""Scenarios that were not as expected: the first variant that was not, and what it gave."""


DIFFERS = "acp-differs"
"""Property of a test whose scenario is not as expected: the scenario's directory."""
SCENARIOS = pytest.StashKey[set[str]]()
"""Names of the scenarios that were met."""


def check_accepted(config: pytest.Config) -> None:
    """Check that the scenarios of `--acp-accept` were met.

    Raises:
        pytest.UsageError: One was not.
    """
    known = config.stash.get(SCENARIOS, set())
    for name in config.getoption("acp_accept", None) or ():
        if name not in known:
            there = ", ".join(sorted(known)) or "none"
            message = f"--acp-accept: no scenario is called {name!r}; there are: {there}"
            raise pytest.UsageError(message)


def closing_line(reports: Iterable[pytest.TestReport]) -> str | None:
    """Say how many scenarios differ and what to run, None if none does.

    Args:
        reports: Those of failed tests, maybe from other processes.
    """
    properties = [pair for report in reports for pair in report.user_properties]
    paths = sorted({Path(str(value)) for name, value in properties if name == DIFFERS})
    if not paths:
        return None
    names = ", ".join(path.name for path in paths)
    count = "1 scenario differs" if len(paths) == 1 else f"{len(paths)} scenarios differ"
    if not writing_is_allowed():
        return f"{count}: {names}"
    command = f"pytest {' '.join(sorted({str(path.parent) for path in paths}))}"
    return (
        f"{count}: {names}; to decide on each: {command} --acp-review; "
        f"to accept all: {command} --acp-update"
    )


class ScenarioFailed(Exception):  # noqa: N818 - reported as it is, without a traceback
    """A scenario is not as it should be; the message is the whole report."""


class ScenarioSuite(pytest.Directory):
    """A directory of scenarios: a test of the directory itself, then its scenarios."""

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        """Yield the guards and the scenarios."""
        accepted = self.config.getoption("acp_accept", None)
        names = self.config.stash.setdefault(SCENARIOS, set())
        if not any(self.config.getoption(f"acp_{name}", None) for name in _WRITING):
            yield SuiteGuards.from_parent(self, name=GUARDS)
        for path in sorted(self.path.iterdir()):
            if not (path / SCENARIO_FILE).is_file():
                continue
            names.add(path.name)
            if not accepted or path.name in accepted:
                yield ScenarioFolder.from_parent(self, path=path)


class ScenarioFolder(pytest.Directory):
    """One scenario's directory; only its script is collected, whatever else lies in it."""

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        """Yield the script."""
        yield ScenarioFile.from_parent(self, path=self.path / SCENARIO_FILE)


class ScenarioFile(pytest.File):
    """A script: one test for each way to run it."""

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        """Yield the variants; only the first one where files are written."""
        try:
            directory = load_scenario(self.path.parent)
        except ScenarioFault as error:
            raise self.CollectError(str(error)) from error
        option = self.config.getoption
        stores = [kind for kind in (option("acp_stores") or "").split(",") if kind]
        variants = variants_of(directory, stores)
        if option("acp_record", None) and directory.scenario.recorded is None:
            return
        writes = any(option(f"acp_{name}", None) for name in _WRITING)
        for position, variant in enumerate(variants[:1] if writes else variants):
            yield ScenarioItem.from_parent(
                self, name=variant.name, directory=directory, variant=variant, first=not position
            )


class ScenarioItem(pytest.Item):
    """One scenario run in one way."""

    def __init__(
        self, *, directory: ScenarioDirectory, variant: Variant, first: bool, **others: object
    ) -> None:
        super().__init__(**others)  # type: ignore[arg-type]  # pytest's own arguments, passed on
        self._directory = directory
        self._variant = variant
        self._first = first

    def runtest(self) -> None:
        """Run, compare, and write what the options ask for.

        Raises:
            ScenarioFailed: It is not as it should be.
        """
        path = self._directory.path
        option = self.config.getoption
        mode = option("acp_update", None)
        if option("acp_accept", None):
            accept(path)
        if option("acp_record", None):
            record(self._directory, self._variant)
            mode = "all"
        verdict = run_scenario(self._directory, self._variant)
        if mode and verdict.snapshot is not None and not verdict.hard_faults:
            update(path, verdict.snapshot, mode)
            verdict = verdict.against(path)
        if verdict.passed:
            if self._first and writing_is_allowed():
                forget_new(path)
            return
        raise ScenarioFailed(self._failure(verdict))

    def repr_failure(
        self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None
    ) -> str | TerminalRepr:
        """Return the report; what is no failure of the scenario is shown with its traceback."""
        if isinstance(excinfo.value, ScenarioFailed | ScenarioFault | RecordError):
            return str(excinfo.value)
        return super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Return where the scenario stands and its name."""
        return self.path, None, f"{self._directory.name}[{self.name}]"

    def _failure(self, verdict: Verdict) -> str:
        report = verdict.report()
        if verdict.snapshot is None or verdict.hard_faults:
            return report
        path = self._directory.path
        self.user_properties.append((DIFFERS, str(self._shown(path))))
        differing = self.config.stash.setdefault(DIFFERING, {})
        variant, snapshot = differing.setdefault(path, (self.name, verdict.snapshot))
        if variant != self.name and snapshot.files == verdict.snapshot.files:
            return f"{self._directory.name}: differs as {variant} does"
        if not self._first:
            return f"{report}\n\nonly {self._variant.name} was run here; see the first variant"
        if not writing_is_allowed():
            return f"{report}\n\nCI is set, so nothing was written"
        leave_new(path, verdict.snapshot)
        command = f"pytest {self._shown(path.parent)} --acp-accept={path.name}"
        return f"{report}\n\nto accept: {command}"

    def _shown(self, path: Path) -> Path:
        start = self.config.invocation_params.dir
        return path.relative_to(start) if path.is_relative_to(start) else path


class SuiteGuards(pytest.Item):
    """The directory itself: nothing lies around in it, nothing is missing.

    Rule: nothing-lies-around-in-suites.
    """

    def runtest(self) -> None:
        """Check it.

        Raises:
            ScenarioFailed: Something does.
        """
        faults = list(suite_faults(self.path))
        if faults:
            raise ScenarioFailed("\n".join(faults))

    def repr_failure(
        self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None
    ) -> str | TerminalRepr:
        """Return the faults."""
        if isinstance(excinfo.value, ScenarioFailed):
            return str(excinfo.value)
        return super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Return where the suite stands."""
        return self.path, None, f"{self.path.name}[{GUARDS}]"

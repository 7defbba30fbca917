"""The conformance cases as pytest items: with `--acp-agent` they run, and nothing else does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from acp_server.testing.conformance.catalog import CASES
from acp_server.testing.conformance.harness import AgentStartError, Harness
from acp_server.testing.conformance.outcome import CaseFailed
from acp_server.testing.conformance.running import run_case

if TYPE_CHECKING:
    from _pytest._code.code import TerminalRepr

    from acp_server.testing.conformance.case import Case


class ConformanceItem(pytest.Item):
    """One case."""

    def __init__(self, *, case: Case, harness: Harness, **others: object) -> None:
        super().__init__(**others)  # type: ignore[arg-type]  # pytest's own arguments, passed on
        self._case = case
        self._harness = harness
        self.user_properties.append(("spec", case.spec))

    def runtest(self) -> None:
        """Run the case.

        Raises:
            CaseFailed: The agent does not pass.
        """
        result = anyio.run(run_case, self._case, self._harness)
        if result.outcome == "skipped":
            pytest.skip(result.reason)
        if result.outcome == "failed":
            raise CaseFailed(result.reason)

    def repr_failure(
        self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None
    ) -> str | TerminalRepr:
        """Return what the agent did, and where the specification speaks of it."""
        if isinstance(excinfo.value, CaseFailed):
            return f"{self._case.title}\n{excinfo.value}\nsee {self._case.spec}"
        return super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Return the case's name; it stands in no file."""
        return Path("acp-conformance"), None, self._case.id


class ConformancePlugin:
    """Puts the cases in the place of the tests.

    Args:
        command: The agent's command line.
    """

    def __init__(self, command: str) -> None:
        self._harness = Harness(command)

    def pytest_report_header(self) -> str:
        """Name the agent."""
        return f"acp agent: {self._harness.command}"

    def pytest_collection(self, session: pytest.Session) -> bool:
        """Collect the cases.

        Raises:
            pytest.UsageError: The agent cannot be started.
        """
        try:
            anyio.run(self._harness.check_start)
        except AgentStartError as error:
            raise pytest.UsageError(str(error)) from error
        session.items = [
            ConformanceItem.from_parent(
                session,
                name=case.id,
                nodeid=f"acp-conformance::{case.id}",
                case=case,
                harness=self._harness,
            )
            for case in CASES
        ]
        hook = session.config.hook
        hook.pytest_collection_modifyitems(
            session=session, config=session.config, items=session.items
        )
        hook.pytest_collection_finish(session=session)
        session.testscollected = len(session.items)
        return True

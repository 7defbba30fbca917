"""Conformance cases that any ACP agent can be held to, by its command line.

    python -m acp_server.testing.conformance "my-agent --acp" [--json]
    pytest --acp-agent "my-agent --acp"

Each case has a stable id and a link into the specification, starts the agent afresh, and is skipped
where the agent does not advertise what it is about. `harness` starts agents, `cases_*` are the
cases, `catalog` lists them, `running` runs them, `report` says what came of it; `pytest_cases`
shows them to pytest and is imported by name.
"""

from acp_server.testing.conformance.case import Case, CaseResult, Outcome
from acp_server.testing.conformance.catalog import CASES
from acp_server.testing.conformance.harness import AgentStartError, Harness
from acp_server.testing.conformance.running import run_case

__all__ = ["CASES", "AgentStartError", "Case", "CaseResult", "Harness", "Outcome", "run_case"]

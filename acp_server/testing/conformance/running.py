"""Runs cases: whatever the agent does, a case ends as passed, failed or skipped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from acp_server.testing.conformance.case import Case, CaseResult
from acp_server.testing.conformance.outcome import CaseFailed, CaseSkipped
from acp_server.testing.errors import AcpClientError

if TYPE_CHECKING:
    from acp_server.testing.conformance.harness import Harness

CASE_LIMIT_S = 240.0
"""How long one case may take in all; each of its waits is bounded, too."""


async def run_case(case: Case, harness: Harness) -> CaseResult:
    """Run one case."""
    try:
        with anyio.fail_after(CASE_LIMIT_S):
            await case.run(harness)
    except CaseSkipped as skipped:
        return CaseResult(case, "skipped", str(skipped))
    except CaseFailed as failed:
        return CaseResult(case, "failed", str(failed))
    except (AcpClientError, TimeoutError, OSError) as error:
        return CaseResult(case, "failed", f"{type(error).__name__}: {error}")
    except (KeyError, TypeError, AttributeError) as error:
        # An answer without the members that a case reads.
        return CaseResult(case, "failed", f"an answer of another shape: {error!r}")
    return CaseResult(case, "passed")

"""`python -m acp_server.testing.conformance COMMAND`: the cases without pytest."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

import anyio

from acp_server.testing.conformance.catalog import CASES
from acp_server.testing.conformance.harness import AgentStartError, Harness
from acp_server.testing.conformance.report import case_line, json_report, text_lines
from acp_server.testing.conformance.running import run_case

if TYPE_CHECKING:
    from collections.abc import Mapping

    from acp_server.testing.conformance.case import CaseResult


def main() -> int:
    """Run the cases; return 0 if none failed, 1 if one did, 2 if the agent cannot be started."""
    parser = argparse.ArgumentParser(
        prog="acp_server.testing.conformance",
        description="Hold an ACP agent to the protocol.",
    )
    parser.add_argument("command", help="command line that starts the agent")
    parser.add_argument("--json", action="store_true", help="write the report as JSON")
    parser.add_argument("--case", action="append", metavar="ID", help="run only this case")
    parser.add_argument("--authenticate", metavar="METHOD", help="auth method to sign in with")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds a turn may take")
    options = parser.parse_args()
    harness = Harness(options.command, authenticate=options.authenticate, timeout_s=options.timeout)
    try:
        about, results = anyio.run(_run, harness, options.case, options.json)
    except AgentStartError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    write = sys.stdout.write
    if options.json:
        write(json.dumps(json_report(options.command, about, results), indent=2) + "\n")
    else:
        write(list(text_lines(results))[-1] + "\n")
    return 1 if any(result.outcome == "failed" for result in results) else 0


async def _run(
    harness: Harness, ids: list[str] | None, quiet: bool
) -> tuple[Mapping[str, Any], list[CaseResult]]:
    about = await harness.check_start()
    results: list[CaseResult] = []
    for case in CASES:
        if ids is None or case.id in ids:
            results.append(await run_case(case, harness))
            if not quiet:
                sys.stdout.write(case_line(results[-1]) + "\n")
                sys.stdout.flush()
    return about, results


if __name__ == "__main__":
    sys.exit(main())

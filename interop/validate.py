"""`validate.py LOG...`: check all recorded frames, of both directions; exit 1 on any problem."""

# ruff: noqa: INP001 - a script, no package
from __future__ import annotations

import json
import sys
from pathlib import Path

from acp_server.testing import FrameChecker


def problems_of(log: Path) -> tuple[int, list[str]]:
    """Return the number of frames in a log, and what is wrong with them."""
    checker = FrameChecker(sdk=True)
    frames, code = 0, None
    for entry in log.read_text("utf-8").splitlines():
        sender, what = json.loads(entry)
        if sender == "exit":
            code = what
            continue
        frames += 1
        feed = checker.from_client if sender == "client" else checker.from_agent
        feed(what.encode())
    checker.finish(complete=code == 0)
    problems = [str(violation) for violation in checker.violations]
    return frames, problems if frames else [*problems, "no frame was recorded"]


def main() -> int:
    """Check, print a line for each log, and return the exit code."""
    logs = [Path(name) for name in sys.argv[1:]]
    total = failed = 0
    for log in logs:
        frames, problems = problems_of(log)
        total += frames
        failed += len(problems)
        for problem in problems:
            print(f"{log.name}: {problem}")  # noqa: T201 - a command line speaks
    print(f"{len(logs)} connections, {total} frames, {failed} problems")  # noqa: T201 - as above
    return 1 if failed or not logs else 0


if __name__ == "__main__":
    sys.exit(main())

"""`--acp-review`: shows what differed and asks, scenario by scenario, whether to accept it."""

import sys
from pathlib import Path

import pytest

from acp_server.testing.kit.accepting import accept, forget_new
from acp_server.testing.kit.compare import differences
from acp_server.testing.kit.items import DIFFERING
from acp_server.testing.kit.snapshot import EXPECTED_PATTERN, NEW_SUFFIX, read_expected, read_lines


def review(config: pytest.Config) -> None:
    """Go through the scenarios that differed in this run."""
    differing = config.stash.get(DIFFERING, None)
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    capture = config.pluginmanager.get_plugin("capturemanager")
    if not differing or terminal is None:
        return
    if capture is not None:
        capture.suspend_global_capture(in_=True)
    try:
        for path in differing:
            terminal.write_line("")
            for line in _report(path):
                terminal.write_line(line)
            if not sys.stdin.isatty():
                continue
            answer = _ask(f"{path.name}: accept (a), reject (r) or leave (enter)? ")
            if answer.startswith("a"):
                terminal.write_line(f"accepted: {', '.join(accept(path))}")
            elif answer.startswith("r"):
                forget_new(path)
    finally:
        if capture is not None:
            capture.resume_global_capture()


def _report(path: Path) -> list[str]:
    fresh = {
        file.name.removesuffix(NEW_SUFFIX): read_lines(file)
        for file in sorted(path.glob(f"{EXPECTED_PATTERN}{NEW_SUFFIX}"))
    }
    expected = {name: lines for name, lines in read_expected(path).items() if name in fresh}
    lines = [f"{path.name}:"]
    for difference in differences(expected, fresh):
        lines += difference.report()
    return lines


def _ask(question: str) -> str:
    try:
        return input(question).strip().lower()
    except EOFError:
        return ""

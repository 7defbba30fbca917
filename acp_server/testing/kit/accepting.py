"""Writing expected files: after a failed run, on demand, and never in CI.

Rule: unchanged-run-writes-nothing.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from acp_server.testing.kit.compare import differences
from acp_server.testing.kit.snapshot import (
    EXPECTED_PATTERN,
    NEW_SUFFIX,
    Snapshot,
    read_expected,
    write_lines,
)

UpdateMode: TypeAlias = Literal["new", "changed", "all"]

_UNSET = ("", "0", "false", "no")


def writing_is_allowed(environment: Mapping[str, str] | None = None) -> bool:
    """Say whether files may be written: not while `CI` is set."""
    given = os.environ if environment is None else environment
    return given.get("CI", "").lower() in _UNSET


def update(directory: Path, snapshot: Snapshot, mode: UpdateMode) -> list[str]:
    """Write expected files and return the names of those that changed.

    Args:
        directory: The scenario.
        snapshot: What a run gave.
        mode: `new` writes what is missing, `changed` also what differs, `all` also removes files
            that the run did not give.
    """
    expected = read_expected(directory)
    differing = {difference.file for difference in differences(expected, snapshot.files)}
    written: list[str] = []
    for name, lines in snapshot.files.items():
        if name not in expected or (name in differing and mode != "new"):
            write_lines(directory / name, lines)
            written.append(name)
    if mode == "all":
        for name in sorted(set(expected) - set(snapshot.files)):
            (directory / name).unlink()
            written.append(name)
    forget_new(directory)
    return written


def leave_new(directory: Path, snapshot: Snapshot) -> list[Path]:
    """Write what differs beside the expected files and return the paths.

    A file that the run did not give any more is left empty: accepting it removes the file.
    """
    forget_new(directory)
    expected = read_expected(directory)
    left: list[Path] = []
    for difference in differences(expected, snapshot.files):
        path = directory / f"{difference.file}{NEW_SUFFIX}"
        write_lines(path, list[dict[str, Any]](snapshot.files.get(difference.file, ())))
        left.append(path)
    return left


def accept(directory: Path) -> list[str]:
    """Make the `.new` files of a scenario the expected ones and return the names."""
    accepted: list[str] = []
    for path in sorted(directory.glob(f"{EXPECTED_PATTERN}{NEW_SUFFIX}")):
        target = path.with_name(path.name.removesuffix(NEW_SUFFIX))
        if path.stat().st_size:
            path.replace(target)
        else:
            path.unlink()
            target.unlink(missing_ok=True)
        accepted.append(target.name)
    return accepted


def forget_new(directory: Path) -> None:
    """Remove the `.new` files of a scenario."""
    for path in directory.glob(f"{EXPECTED_PATTERN}{NEW_SUFFIX}"):
        path.unlink(missing_ok=True)

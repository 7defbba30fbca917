"""docs/spec/coverage.md names only what exists: every file, every name in it, every test."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from persistence.testing import CONTRACT, check_name

ROOT: Final = Path(__file__).parent.parent
PAGE: Final = ROOT / "docs" / "spec" / "coverage.md"

TOPICS: Final = (
    "Events and envelope",
    "Surface",
    "Projections",
    "Turns and steps",
    "Ends and triggers",
    "Fork",
    "Store lifecycle",
    "Out-of-band",
    "Request header",
    "Lossless JSON",
    "Chunk rows",
    "Crash repair",
    "Persistence seam",
    "Backends",
    "Versioning",
    "Resume",
    "ACP mapping",
    "Plugins",
)
COLUMNS: Final = ["statement", "where", "test", "state"]
NOTHING: Final = "–"  # noqa: RUF001 - the dash of the page

_CITED: Final = r"(?:Z\d{1,2}|contract \d\.\d+)"
STATE: Final = re.compile(rf"held|open: \S.*|replaced by {_CITED}(?: and {_CITED})*(?:; \S.*)?")
REFERENCE: Final = re.compile(r"`([\w./-]+\.py)(?:::([\w.]+))?`")
# What counts as a test though it is called by others: the checks that every backend passes.
CHECKS: Final = frozenset(check_name(check) for check in CONTRACT)


class Row(NamedTuple):
    """One line of a table."""

    topic: str
    statement: str
    where: str
    test: str
    state: str


def rows_in(page: str) -> list[Row]:
    """Return the rows of all tables, in order."""
    rows = []
    for section in page.split("\n## ")[1:]:
        topic, _, body = section.partition("\n")
        lines = [cells_of(line) for line in body.splitlines() if line.startswith("|")]
        assert lines[0] == COLUMNS, f"{topic}: other columns"
        assert set("".join(lines[1])) == {"-"}, f"{topic}: no line under the columns"
        for cells in lines[2:]:
            assert len(cells) == len(COLUMNS), f"{topic}: {cells}"
            rows.append(Row(topic, *cells))
    return rows


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def references_in(cell: str) -> list[tuple[str, str]]:
    """Return the pairs of file and name of a cell; anything else in it fails."""
    if cell == NOTHING:
        return []
    found = [REFERENCE.fullmatch(part) for part in cell.split("<br>")]
    assert None not in found, f"no reference: {cell}"
    return [(match[1], match[2] or "") for match in found if match is not None]


@cache
def names_in(path: Path) -> frozenset[str]:
    """Return what a file defines at its top and in its classes, as `name` and `Class.name`."""
    names = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        names.update(names_of(node))
        if isinstance(node, ast.ClassDef):
            names.update(
                f"{node.name}.{inner}" for member in node.body for inner in names_of(member)
            )
    return frozenset(names)


def names_of(node: ast.stmt) -> list[str]:
    """Return the names that one statement defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else []
    if isinstance(node, ast.AnnAssign):
        targets = [node.target]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def faults_of(reference: tuple[str, str], *, test: bool) -> list[str]:
    """Return what is wrong with a file and a name."""
    file, name = reference
    path = ROOT / file
    if not path.is_file():
        return [f"{file} does not exist"]
    if name and name not in names_in(path):
        return [f"{file} has no {name}"]
    is_test = name.startswith("test_") and file.startswith("tests/")
    is_check = name in CHECKS and file.startswith("persistence/testing/")
    if test and not (is_test or is_check):
        return [f"{file}::{name} is no test"]
    return []


def faults_in(row: Row) -> list[str]:
    """Return what is wrong with a row."""
    where, tests = references_in(row.where), references_in(row.test)
    faults = [fault for item in where for fault in faults_of(item, test=False)]
    faults += [fault for item in tests for fault in faults_of(item, test=True)]
    if STATE.fullmatch(row.state) is None:
        faults.append(f"no state: {row.state}")
    if row.state == "held" and not (where and tests):
        faults.append("held, but by no test or nowhere")
    return [f"{row.topic}: {row.statement}: {fault}" for fault in faults]


def test_every_row_names_what_exists_and_has_a_state() -> None:
    rows = rows_in(PAGE.read_text("utf-8"))
    assert [fault for row in rows for fault in faults_in(row)] == []


def test_every_topic_has_rows_and_no_statement_comes_twice() -> None:
    rows = rows_in(PAGE.read_text("utf-8"))
    assert list(dict.fromkeys(row.topic for row in rows)) == list(TOPICS)
    statements = [row.statement for row in rows]
    assert len(set(statements)) == len(statements)


HERE: Final = "`tests/test_coverage_page.py::test_a_planted_fault_is_found`"
THERE: Final = "`session_core/surface.py::SurfaceTracker.check`"


@pytest.mark.parametrize(
    ("where", "test", "state", "fault"),
    [
        (THERE, HERE, "held", None),
        (THERE, f"{HERE}<br>{HERE}", "replaced by Z7 and contract 1.9; another way", None),
        (NOTHING, NOTHING, "open: all of it", None),
        ("`session_core/none.py`", HERE, "held", "does not exist"),
        ("`session_core/surface.py::SurfaceTracker.none`", HERE, "held", "has no"),
        (THERE, "`tests/test_coverage_page.py::test_none`", "held", "has no"),
        (THERE, THERE, "held", "is no test"),
        (THERE, "`tests/test_coverage_page.py`", "held", "is no test"),
        (THERE, "`persistence/testing/harness.py::check_name`", "held", "is no test"),
        (THERE, NOTHING, "held", "by no test"),
        (NOTHING, HERE, "held", "nowhere"),
        (THERE, HERE, "done", "no state"),
        (THERE, HERE, "open", "no state"),
        (THERE, HERE, "replaced by somebody", "no state"),
    ],
)
def test_a_planted_fault_is_found(where: str, test: str, state: str, fault: str | None) -> None:
    faults = faults_in(Row("Topic", "statement", where, test, state))
    assert len(faults) == (fault is not None)
    assert fault is None or fault in faults[0]


def test_a_cell_holds_references_only() -> None:
    with pytest.raises(AssertionError, match="no reference"):
        references_in(f"{THERE} and more")


def test_a_table_of_other_columns_is_found() -> None:
    table = "\n## Topic\n\n| statement | where | test |\n|---|---|---|\n"
    with pytest.raises(AssertionError, match="other columns"):
        rows_in(table)

"""Cases of docs/spec/cases.md: each of a covered group has a test, and no test names another."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

ROOT: Final = Path(__file__).parent.parent
CASES: Final = ROOT / "docs" / "spec" / "cases.md"

# The contract suite for backends lives in the package, because authors of backends import it.
SCANNED: Final = ("tests/**/*.py", "persistence/testing*.py", "persistence/testing/**/*.py")

ROW: Final = re.compile(r"^\| ([A-Z]{1,2}\d+|[a-z_]+(?:\.[a-z_]+)+) \|", re.MULTILINE)
COVERED: Final = re.compile(r"^Covered groups: (.+)$", re.MULTILINE)


class Mark(NamedTuple):
    """One argument of a `pytest.mark.case(...)`: its id, or None where it is no literal string."""

    case: str | None
    place: str


def case_ids(page: str) -> list[str]:
    """Return the ids of the tables, in page order."""
    return ROW.findall(page)


def covered_groups(page: str) -> frozenset[str]:
    """Return the groups that the suite must cover today."""
    found = COVERED.search(page)
    assert found, "cases.md has no line 'Covered groups: ...'"
    return frozenset(found[1].split())


def group_of(case: str) -> str:
    """Return the letters of an id such as FI3, or the first word of one such as cancel.idle."""
    return case.rstrip("0123456789").split(".")[0]


def marks_in(source: str, place: str) -> Iterator[Mark]:
    """Yield what decorators, pytestmark and parametrize marks name, wherever the call stands."""
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and ast.unparse(node.func).endswith("mark.case")):
            continue
        for argument in node.args:
            literal = argument.value if isinstance(argument, ast.Constant) else None
            case = literal if isinstance(literal, str) else None
            yield Mark(case, f"{place}:{argument.lineno}")


def marks_under(root: Path) -> Iterator[Mark]:
    """Yield the marks of all scanned files."""
    paths = sorted({path for pattern in SCANNED for path in root.glob(pattern)})
    for path in paths:
        yield from marks_in(path.read_text("utf-8"), path.relative_to(root).as_posix())


def missing_cases(page: str, marks: list[Mark]) -> dict[str, list[str]]:
    """Return, for each covered group, the cases that no test names."""
    held = {mark.case for mark in marks}
    missing: dict[str, list[str]] = {}
    for case in case_ids(page):
        if group_of(case) in covered_groups(page) and case not in held:
            missing.setdefault(group_of(case), []).append(case)
    return missing


def unknown_marks(page: str, marks: list[Mark]) -> list[str]:
    """Return the places whose mark is no listed id."""
    known = frozenset(case_ids(page))
    return [
        f"{mark.place}: {mark.case or 'not a literal string'}"
        for mark in marks
        if mark.case is None or mark.case not in known
    ]


def test_ids_of_the_page_are_unique() -> None:
    ids = case_ids(CASES.read_text("utf-8"))
    assert len(ids) > 300
    assert sorted({case for case in ids if ids.count(case) > 1}) == []


def test_every_covered_group_is_on_the_page() -> None:
    page = CASES.read_text("utf-8")
    assert covered_groups(page) - {group_of(case) for case in case_ids(page)} == set()


def test_every_marked_case_is_on_the_page() -> None:
    assert unknown_marks(CASES.read_text("utf-8"), list(marks_under(ROOT))) == []


def test_every_case_of_a_covered_group_has_a_test() -> None:
    missing = missing_cases(CASES.read_text("utf-8"), list(marks_under(ROOT)))
    lines = [f"  {group}: {' '.join(cases)}" for group, cases in missing.items()]
    if missing:
        pytest.fail("no test is marked with these cases:\n" + "\n".join(lines), pytrace=False)


PAGE: Final = """
Covered groups: J cancel

| id | given | expected |
|---|---|---|
| J1 | a | b |
| J2 | a | b |
| K1 | a | b |
| cancel.idle | a | b |
"""


def test_checker_finds_marks_in_every_form_and_reports_the_missing_case() -> None:
    source = """
import pytest
from pytest import mark

pytestmark = pytest.mark.case("K1")

@mark.case("cancel.idle")
@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.case("J1", "J9"))])
async def test_a(x): ...
"""
    marks = list(marks_in(source, "t.py"))
    assert {mark.case for mark in marks} == {"K1", "cancel.idle", "J1", "J9"}
    assert missing_cases(PAGE, marks) == {"J": ["J2"]}
    assert unknown_marks(PAGE, marks) == ["t.py:8: J9"]


def test_checker_refuses_a_mark_that_it_cannot_read() -> None:
    marks = list(marks_in("import pytest\npytestmark = pytest.mark.case(*IDS)\n", "t.py"))
    assert unknown_marks(PAGE, marks) == ["t.py:2: not a literal string"]

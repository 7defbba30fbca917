"""Rules of docs/spec: each has a test, each id that is named exists, and held.md is up to date."""

import textwrap
from typing import Final

import pytest

from tests.rules import (
    CITING,
    HELD,
    ROOT,
    Rule,
    cited_in,
    faults,
    field_cases,
    held_page,
    marks,
    marks_in,
    prose_of,
    rules,
    rules_in,
)


def test_every_rule_has_a_test_and_every_mark_names_a_rule() -> None:
    found = faults(rules(), field_cases(), marks())
    if found:
        pytest.fail("\n".join(found), pytrace=False)


def test_the_generated_page_is_up_to_date() -> None:
    if HELD.read_text("utf-8") != held_page(rules(), field_cases(), marks()):
        pytest.fail("docs/spec/held.md is out of date: run `make rules`", pytrace=False)


def test_every_rule_cited_in_code_exists() -> None:
    known = {rule.id for rule in rules()}
    cited = [
        (path.relative_to(ROOT).as_posix(), rule)
        for folder in CITING
        for path in sorted((ROOT / folder).rglob("*.py"))
        for part in prose_of(path.read_text("utf-8"))
        for rule in cited_in(part)
    ]
    assert [place for place in cited if place[1] not in known] == []


PAGE: Final = """
# Page

## Group

### first-rule-of-three

Text.

### second-rule-of-three

Text.

### third-rule-of-three

Not held yet.

Text.
"""
RULES: Final = rules_in(PAGE, "page.md")

TESTS: Final = textwrap.dedent(
    """
    import pytest
    from pytest import mark

    pytestmark = pytest.mark.rule("first-rule-of-three")

    class TestOne:
        @mark.rule("second-rule-of-three")
        @pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.case("B41"))])
        async def test_a(self, x): ...
    """
)


def test_rules_are_read_from_headings() -> None:
    assert [
        Rule("first-rule-of-three", "page.md", held=True),
        Rule("second-rule-of-three", "page.md", held=True),
        Rule("third-rule-of-three", "page.md", held=False),
    ] == RULES


def test_marks_are_found_in_every_form() -> None:
    found = marks_in(TESTS, "t.py")
    assert [(mark.kind, mark.id, mark.test) for mark in found] == [
        ("rule", "first-rule-of-three", ""),
        ("rule", "second-rule-of-three", "TestOne.test_a"),
        ("case", "B41", "TestOne.test_a"),
    ]
    assert faults(RULES, ["B41"], found) == []


@pytest.mark.parametrize(
    ("page", "tests", "fault"),
    [
        (PAGE + "\n### another-rule-of-three\n\nText.\n", TESTS, "no test holds page.md: another-"),
        (PAGE + "\n### first-rule-of-three\n\nText.\n", TESTS, "two rules have the id first-rule"),
        (PAGE.replace("Not held yet.", ""), TESTS, "no test holds page.md: third-rule-of-three"),
        (PAGE, TESTS + 'mark.rule("no-rule-at-all")', "t.py:11: no such rule: no-rule-at-all"),
        (PAGE, TESTS + "mark.rule(*IDS)", "t.py:11: no such rule: not a literal string"),
        (
            PAGE,
            TESTS + 'mark.rule("third-rule-of-three")',
            "page.md: third-rule-of-three has a test",
        ),
        (PAGE, TESTS + 'mark.case("B42")', "t.py:11: no such case: B42"),
        (PAGE + "\n### Some Heading\n\nText.\n", TESTS, "not a rule id: page.md: Some Heading"),
    ],
)
def test_a_planted_fault_is_found(page: str, tests: str, fault: str) -> None:
    found = faults(rules_in(page, "page.md"), ["B41"], marks_in(tests, "t.py"))
    assert any(line.startswith(fault) for line in found), found


def test_the_page_lists_the_tests_of_each_rule() -> None:
    assert held_page(RULES, ["B41", "B42"], marks_in(TESTS, "t.py")).splitlines()[4:] == [
        "## page",
        "",
        "- [first-rule-of-three](page.md#first-rule-of-three)",
        "  - `t.py`: all",
        "- [second-rule-of-three](page.md#second-rule-of-three)",
        "  - `t.py`: `TestOne.test_a`",
        "- [third-rule-of-three](page.md#third-rule-of-three): not held yet",
        "",
        "## Field cases",
        "",
        "- B41",
        "  - `t.py`: `TestOne.test_a`",
        "- B42: no test by this name",
    ]


@pytest.mark.parametrize(
    ("prose", "cited"),
    [
        ("Load (first-rule-of-three).", ["first-rule-of-three"]),
        (
            "(first-rule-of-three, second-rule-of-three)",
            ["first-rule-of-three", "second-rule-of-three"],
        ),
        ("(words; first-rule-of-three)", ["first-rule-of-three"]),
        ("Rules: first-rule-of-three,\n  B41.", ["first-rule-of-three"]),
        ("write-ahead (write-behind), one-two-three", []),
    ],
)
def test_citations_are_found_in_prose(prose: str, cited: list[str]) -> None:
    assert cited_in(prose) == cited

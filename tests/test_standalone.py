"""The repository stands alone: no path or host from outside, and every cited rule exists."""

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent
SPEC: Final = ROOT / "docs" / "spec"

# Built from pieces, so that this file passes its own test.
OUTSIDE: Final = tuple(
    "".join(pieces)
    for pieces in (
        ("..", "/shared"),
        ("/work", "/shared"),
        ("/work", "/main"),
        ("/work", "/notes"),
        ("pypi", ".org"),
        ("pythonhosted", ".org"),
        ("npmjs", ".org"),
        ("npmjs", ".com"),
        ("crates", ".io"),
        ("proxy.golang", ".org"),
        ("rubygems", ".org"),
    )
)

HEADING: Final = re.compile(r"^#{2,3} (\d(?:\.\d+)?)[. ]", re.MULTILINE)
RULING: Final = re.compile(r"^### (Z\d+)$", re.MULTILINE)
CASE: Final = re.compile(r"^\| ([A-Z]{1,2}\d+) \|", re.MULTILINE)

# "contract 5.4", also in lists such as "contract 6.2, 6.4 and 1.9".
CITED_SECTIONS: Final = re.compile(r"\bcontract (\d\.\d+(?:(?:, | and |-|\u2013)\d\.\d+)*)")
CITED_RULING: Final = re.compile(r"\bZ\d{1,2}\b")
CITED_CASE: Final = re.compile(r"\b(?:[JASPFIORKLQCNTXVMDGY]\d{1,2}|B\d\d|FI\d|W\d{1,2})\b")

# Shaped like an id, yet none: the control characters C0, a first byte of UTF-8.
NO_CITATION: Final = frozenset({"C0", "F0"})


def tracked_files() -> list[Path]:
    """Return the files that git tracks; of an export without git, all that are not hidden."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode == 0:
        names = [name for name in listed.stdout.split("\0") if name]
    else:
        names = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*")]
        names = [name for name in names if not name.startswith(".") and "/." not in name]
    # A tracked file may be deleted in the working tree.
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def text_of(path: Path) -> str:
    """Return a file's text, nothing for a binary one."""
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        return ""


def defined_ids() -> frozenset[str]:
    """Return the sections as `contract 5.4`, the rulings and the cases that docs/spec defines."""
    sections = HEADING.findall((SPEC / "contract.md").read_text("utf-8"))
    rulings = RULING.findall((SPEC / "rulings.md").read_text("utf-8"))
    cases = CASE.findall((SPEC / "cases.md").read_text("utf-8"))
    return frozenset({*(f"contract {section}" for section in sections), *rulings, *cases})


def prose_of(source: str) -> Iterator[str]:
    """Yield the comments and docstrings of a Python file."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, documented):
            yield ast.get_docstring(node) or ""


def citations_in(prose: str) -> Iterator[str]:
    """Yield the sections, rulings and cases that a text names."""
    for match in CITED_SECTIONS.finditer(prose):
        yield from (f"contract {section}" for section in re.findall(r"\d\.\d+", match[1]))
    yield from CITED_RULING.findall(prose)
    yield from (case for case in CITED_CASE.findall(prose) if case not in NO_CITATION)


def dangling(path: Path) -> list[str]:
    """Return the citations of a Python or Markdown file that lead nowhere."""
    text = text_of(path)
    prose = prose_of(text) if path.suffix == ".py" else [text]
    known = defined_ids()
    name = path.relative_to(ROOT).as_posix()
    return [
        f"{name}: {cited}" for part in prose for cited in citations_in(part) if cited not in known
    ]


def places_outside(text: str) -> list[str]:
    """Return the places outside of the repository that a text names."""
    return [place for place in OUTSIDE if place in text]


def test_no_file_names_a_place_outside() -> None:
    found = {str(path.relative_to(ROOT)): places_outside(text_of(path)) for path in tracked_files()}
    assert {name: places for name, places in found.items() if places} == {}


def test_a_planted_place_is_found() -> None:
    assert places_outside(f"see ../..{OUTSIDE[0][2:]}/x or https://{OUTSIDE[4]}/y") == [
        OUTSIDE[0],
        OUTSIDE[4],
    ]


def test_every_rule_cited_in_code_exists() -> None:
    files = [path for path in tracked_files() if path.suffix == ".py"]
    assert [line for path in files for line in dangling(path)] == []


def test_every_rule_cited_in_the_spec_exists() -> None:
    assert [line for path in sorted(SPEC.glob("*.md")) for line in dangling(path)] == []


def test_the_spec_defines_what_code_may_cite() -> None:
    assert {"contract 1.1", "contract 5.4", "contract 7.7", "Z0", "Z43", "J1", "Y10", "B92"} <= (
        defined_ids()
    )


@pytest.mark.parametrize(
    ("prose", "cited"),
    [
        ("see contract 5.4, 9.9 and Z7", ["contract 5.4", "contract 9.9", "Z7"]),
        ("holds J1/A9, B41 and FI3", ["J1", "A9", "B41", "FI3"]),
        ("UTF-8, v1, Z, JS1, C0 controls", []),
    ],
)
def test_citations_are_found_in_prose(prose: str, cited: list[str]) -> None:
    assert list(citations_in(prose)) == cited


def test_comments_and_docstrings_are_prose_and_other_strings_are_not() -> None:
    source = '"""Holds Z1."""\nx = "Z2"  # by Z3\n\n\ndef f():\n    """Of Z4."""\n'
    assert [cited for part in prose_of(source) for cited in citations_in(part)] == [
        "Z3",
        "Z1",
        "Z4",
    ]

"""The documents: every link leads somewhere, and no line of prose is longer than 100 columns."""

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent
PAGES: Final = [
    page
    for pattern in ("*.md", "docs/*.md", "docs/spec/*.md", "interop/*.md")
    for page in sorted(ROOT.glob(pattern))
]
WIDTH: Final = 100

_FENCE: Final = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"\]\(\s*([^)\s]+)\s*\)")
_HEADING: Final = re.compile(r"^#+ (.+)$", re.MULTILINE)


def prose_of(text: str) -> str:
    """Return a page without its fenced code, line for line."""
    return _FENCE.sub(lambda match: "\n" * match[0].count("\n"), text)


def anchors_of(text: str) -> set[str]:
    """Return what a link may name behind `#`, as GitHub makes it from the headings."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in _HEADING.findall(prose_of(text))
    }


def dead_links(page: Path) -> list[str]:
    """Return the links of a page to files and headings that do not exist."""
    dead = []
    for link in _LINK.findall(prose_of(page.read_text("utf-8"))):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if re.match(r"\w+:", link):
            continue
        if not target.exists() or (anchor and anchor not in anchors_of(target.read_text("utf-8"))):
            dead.append(link)
    return dead


def long_lines(text: str) -> list[str]:
    """Return the lines of prose that are too long; tables and code may be."""
    return [
        line
        for line in prose_of(text).splitlines()
        if len(line) > WIDTH and " " in line.strip() and not line.startswith(("|", "    "))
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(page: Path) -> None:
    assert dead_links(page) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_prose_is_wrapped(page: Path) -> None:
    assert long_lines(page.read_text("utf-8")) == []


def test_a_dead_link_and_a_long_line_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    long = "word " * 21
    page.write_text(
        "# One: `two` three\n\n[a](#one-two-three) [b](#four) [c](none.md) [d](https://x.y)\n\n"
        f"{long}\n\n| {long} |\n\n```\n{long}\n[e](none)\n```\n",
        "utf-8",
    )
    assert dead_links(page) == ["#four", "none.md"]
    assert long_lines(page.read_text("utf-8")) == [long]

"""The repository stands alone: no path or host from outside."""

import subprocess
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent

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

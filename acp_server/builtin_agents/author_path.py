"""How an author's modules are imported beside ours.

An agent may be started in any folder and have modules beside it, whatever their names are. What the
server imports, now or later, must stay what it was installed with; everything else is the author's
first, as for a script that Python runs.
"""

from __future__ import annotations

import os
import re
import sys
from functools import cache
from importlib import metadata
from importlib.machinery import ModuleSpec, PathFinder
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import ModuleType

OUR_PACKAGES: Final = ("acp_server", "persistence", "session_core")
_DISTRIBUTION: Final = "acp-session-server"
_REQUIREMENT_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")


class AuthorFinder:
    """Finds the modules of one folder before installed ones, except those the server imports.

    An `importlib.abc.MetaPathFinder`.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the author's top-level module of this name, if it is the one to be imported."""
        if path is not None:
            return None
        found = PathFinder.find_spec(name, [self.folder])
        # A folder without an `__init__.py` is a package only if nothing else has its name.
        if found is None or found.loader is None:
            return None
        return None if is_the_servers(name) else found


def add_author_path(folder: str) -> None:
    """Make the modules of a folder importable, for the life of the process."""
    known = (finder.folder for finder in sys.meta_path if isinstance(finder, AuthorFinder))
    if folder not in known:
        sys.meta_path.insert(0, AuthorFinder(folder))
        sys.path.append(folder)


def is_the_servers(name: str) -> bool:
    """Tell whether a top-level module is one that the server imports or may import."""
    if name in OUR_PACKAGES or name in sys.stdlib_module_names:
        return True
    # What is nowhere else is nobody else's; this is the usual case, and it is quick.
    return PathFinder.find_spec(name, _path_of_others()) is not None and name in _requirements()


def hides_package(folder: str, name: str) -> bool:
    """Tell whether `folder` has a module with the name of this package of ours."""
    ours = os.path.realpath(__file__.rpartition("/acp_server/")[0])
    if os.path.realpath(folder) == ours:
        return False
    return PathFinder.find_spec(name, [folder]) is not None


def _path_of_others() -> list[str]:
    authors = {finder.folder for finder in sys.meta_path if isinstance(finder, AuthorFinder)}
    return [entry for entry in sys.path if entry not in authors]


@cache
def _requirements() -> frozenset[str]:
    """Return the top-level modules of everything that the server's installation asks for."""
    modules: set[str] = set()
    waiting, seen = [_DISTRIBUTION], set[str]()
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in seen:
            continue
        seen.add(name)
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        modules.update(_top_level_modules(distribution))
        # Our own extras may be installed and imported late; those of a library are not ours.
        waiting += (
            match.group()
            for line in distribution.requires or ()
            if (match := _REQUIREMENT_NAME.match(line))
            and (name == _DISTRIBUTION or "extra" not in line.partition(";")[2])
        )
    return frozenset(modules)


def _top_level_modules(distribution: metadata.Distribution) -> Iterator[str]:
    for file in distribution.files or ():
        first = file.parts[0]
        if len(file.parts) > 1:
            yield first
        elif first.endswith((".py", ".so")):
            yield first.split(".")[0]

"""Imports point down only, some libraries have one home, and the light packages start light.

To add a package, add a row to `ROOMS`; to give a library a home, add one to `HOMES`.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import pytest

ROOT: Final = Path(__file__).parent.parent
PACKAGES: Final = ("session_core", "persistence", "acp_server")
ANYTHING: Final = frozenset({"*"})
# What the test kit may know of the server that it starts and of the logs that it reads.
SERVER: Final = frozenset(
    {
        "session_core",
        "persistence",
        "acp_server.turns",
        "acp_server.agents",
        "acp_server.models",
        "acp_server.builtin_agents",
        "acp_server.app",
        "acp_server.transport",
        "acp_server.rpc",
    }
)

# room -> rooms of ours that it may import besides itself. The longest matching row is a module's
# room, so `persistence.jsonl` is closed to those that may import `persistence`.
ROOMS: Final[Mapping[str, frozenset[str]]] = {
    "session_core": frozenset(),
    "persistence": frozenset(
        # The backends, which open_backend imports late.
        {"session_core", "persistence.jsonl", "persistence.memory", "persistence.sqlite"}
    ),
    "persistence.jsonl": frozenset({"session_core", "persistence"}),
    "persistence.memory": frozenset({"session_core", "persistence"}),
    "persistence.sqlite": frozenset({"session_core", "persistence"}),
    "persistence.testing": ANYTHING,
    "acp_server": frozenset({"acp_server.turns", "acp_server.agents"}),
    "acp_server.__main__": frozenset({"acp_server.cli", "acp_server.own_path"}),
    "acp_server.own_path": frozenset(),
    "acp_server.version": frozenset(),
    "acp_server.wire": frozenset(),
    "acp_server.transport": frozenset(),
    "acp_server.rpc": frozenset({"acp_server.wire", "acp_server.transport"}),
    "acp_server.turns": frozenset({"session_core"}),
    "acp_server.agents": frozenset({"session_core", "acp_server.turns"}),
    "acp_server.models": frozenset({"session_core", "acp_server.turns", "acp_server.agents"}),
    "acp_server.builtin_agents": frozenset(
        {"session_core", "acp_server.turns", "acp_server.agents", "acp_server.models"}
    ),
    # Translates the errors of the lower rooms to wire codes, once, for the bridge.
    "acp_server.errors": frozenset(
        {"session_core", "persistence", "acp_server.turns", "acp_server.wire", "acp_server.rpc"}
    ),
    "acp_server.bridge": frozenset(
        {
            "session_core",
            "persistence",
            "acp_server.turns",
            "acp_server.agents",
            "acp_server.errors",
            "acp_server.version",
            "acp_server.wire",
            "acp_server.rpc",
        }
    ),
    "acp_server.exit_watch": frozenset(),
    "acp_server.app": ANYTHING,
    "acp_server.cli": ANYTHING,
    # The test kit: four packages, `kit` and `conformance` side by side on the other two, and what
    # is started by its path.
    "acp_server.testing": frozenset(
        # The public names, loaded when they are asked for.
        {"acp_server.testing.checks", "acp_server.testing.client", "acp_server.testing.errors"}
    ),
    "acp_server.testing.errors": frozenset(),
    "acp_server.testing.checks": frozenset({"acp_server.testing.errors", "acp_server.wire"}),
    "acp_server.testing.client": frozenset(
        {"acp_server.testing.checks", "acp_server.testing.errors", *SERVER}
    ),
    "acp_server.testing.kit": frozenset(
        {
            "acp_server.testing.checks",
            "acp_server.testing.client",
            "acp_server.testing.errors",
            *SERVER,
        }
    ),
    "acp_server.testing.conformance": frozenset(
        {"acp_server.testing.checks", "acp_server.testing.client", "acp_server.testing.errors"}
    ),
    "acp_server.testing.plugin": frozenset(
        {"acp_server.testing.kit", "acp_server.testing.conformance"}
    ),
    "acp_server.testing.replay": frozenset(
        {
            "acp_server.testing.checks",
            "acp_server.testing.errors",
            "acp_server.testing.kit",
            *SERVER,
        }
    ),
    "acp_server.testing.serve": frozenset(
        {
            "acp_server.exit_watch",
            "acp_server.own_path",
            "acp_server.testing.client",
            *SERVER,
        }
    ),
    "tests": ANYTHING,
}

# library -> the only places that may import it.
HOMES: Final[Mapping[str, tuple[str, ...]]] = {
    "asyncio": (),
    "jsonrpcserver": ("acp_server.rpc.dispatch", "tests"),
    "orjson": (
        "persistence.records",
        "persistence.jsonl",
        "acp_server.transport",
        "acp_server.rpc",
        "acp_server.bridge",
        "acp_server.testing",
        "tests",
    ),
    "sqlite3": ("persistence.sqlite", "tests"),
    "pydantic": ("acp_server.wire", "acp_server.testing", "tests"),
    "pytest": ("persistence.testing", "acp_server.testing", "tests"),
}

# What must start light, and what it must not pull in: each of these libraries costs more than an
# editor should wait for before `initialize` is answered, or belongs to one feature only.
LIGHT: Final = ("session_core", "persistence", "acp_server.transport", "acp_server.rpc")
HEAVY: Final = ("pydantic", "jsonrpcserver", "filelock", "sqlite3", "platformdirs", "pytest")


class Import(NamedTuple):
    """One imported name, `target` as written out in full."""

    module: str
    line: int
    target: str


def modules_under(root: Path) -> dict[str, Path]:
    """Return the modules of our packages and of the tests by dotted name."""
    found: dict[str, Path] = {}
    for package in (*PACKAGES, "tests"):
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def base_of(node: ast.ImportFrom, module: str, path: Path) -> str:
    """Return the package that a `from ... import` names, dots resolved."""
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    # A package's own __init__ counts as inside of it, a plain module as beside it.
    up = node.level - 1 if path.name == "__init__.py" else node.level
    base = parts[: len(parts) - up]
    return ".".join([*base, node.module] if node.module else base)


def called_target(node: ast.Call) -> str | None:
    """Return the literal name that `import_module("x")` or `__import__("x")` imports."""
    if ast.unparse(node.func).split(".")[-1] not in {"import_module", "__import__"}:
        return None
    argument = node.args[0] if node.args else None
    literal = argument.value if isinstance(argument, ast.Constant) else None
    return literal if isinstance(literal, str) else None


def targets_of(node: ast.AST, module: str, path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """Yield the modules that one statement or call imports."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = base_of(node, module, path)
        for alias in node.names:
            inner = f"{base}.{alias.name}"
            yield inner if inner in known else base
    elif isinstance(node, ast.Call):
        target = called_target(node)
        if target is not None:
            yield target


def imports_under(root: Path) -> Iterator[Import]:
    """Yield every import of the tree: at the top, late, and for types only."""
    known = modules_under(root)
    for module, path in known.items():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            for target in targets_of(node, module, path, known):
                yield Import(module, getattr(node, "lineno", 0), target)


def is_within(module: str, prefix: str) -> bool:
    """Say whether a module is the named one or lies in it."""
    return module == prefix or module.startswith(f"{prefix}.")


def room_of(module: str) -> str | None:
    """Return the row that speaks for a module, None if it has none."""
    rows = [row for row in ROOMS if is_within(module, row)]
    room = max(rows, key=len, default=None)
    # The root package is a room of its own; whatever is new below it needs a row.
    return None if room == "acp_server" and module != room else room


def direction_fault(imported: Import) -> str | None:
    """Say what is wrong with an import of our own, None if nothing is."""
    if imported.target.split(".")[0] not in {*PACKAGES, "tests"}:
        return None
    here, there = room_of(imported.module), room_of(imported.target)
    if here is None or there is None:
        return f"{imported.module if here is None else imported.target} has no row in ROOMS"
    open_to_all = ROOMS[here] == ANYTHING and there != "tests"
    if here == there or open_to_all or there in ROOMS[here]:
        return None
    return f"{here} must not import {imported.target}"


def home_fault(imported: Import) -> str | None:
    """Say whether a library is imported outside of its home."""
    homes = HOMES.get(imported.target.split(".")[0])
    if homes is None or any(is_within(imported.module, home) for home in homes):
        return None
    allowed = f"only {' and '.join(homes)}" if homes else "nobody"
    return f"{allowed} may import {imported.target}"


def faults_under(root: Path) -> list[str]:
    """Return all faults of a tree as `module:line: sentence`."""
    return [
        f"{imported.module}:{imported.line}: {fault}"
        for imported in imports_under(root)
        for fault in (direction_fault(imported), home_fault(imported))
        if fault is not None
    ]


def test_imports_point_down_and_libraries_stay_at_home() -> None:
    assert faults_under(ROOT) == []


def test_every_module_has_a_room() -> None:
    assert [module for module in modules_under(ROOT) if room_of(module) is None] == []


def circles_under(root: Path) -> list[list[str]]:
    """Return the modules that import each other, late imports and those for types included."""
    known = modules_under(root)
    graph: dict[str, set[str]] = {module: set() for module in known}
    for imported in imports_under(root):
        # A package is imported by its modules, and names them in its front door.
        if imported.target in known and known[imported.target].name != "__init__.py":
            graph[imported.module].add(imported.target)
    reached = {module: reachable(module, graph) for module in graph}
    circles = {
        tuple(sorted(other for other in reached[module] if module in reached[other]))
        for module in graph
        if module in reached[module]
    }
    return sorted(map(list, circles))


def reachable(module: str, graph: Mapping[str, set[str]]) -> set[str]:
    """Return what a module imports, directly or not."""
    found: set[str] = set()
    ahead = [module]
    while ahead:
        new = graph[ahead.pop()] - found
        found |= new
        ahead.extend(new)
    return found


def test_no_modules_import_each_other() -> None:
    assert circles_under(ROOT) == []


def test_a_planted_circle_is_found(tmp_path: Path) -> None:
    tree = planted_tree(
        tmp_path,
        {
            "session_core/__init__.py": "from session_core.a import x",
            "session_core/a.py": "from session_core import b",
            "session_core/b.py": "def f():\n    from session_core.c import y",
            "session_core/c.py": "import typing\nif typing.TYPE_CHECKING:\n    from . import a",
            "session_core/d.py": "import session_core.a",
        },
    )
    assert circles_under(tree) == [["session_core.a", "session_core.b", "session_core.c"]]


@pytest.mark.parametrize("module", LIGHT)
def test_light_package_starts_without_heavy_libraries(module: str) -> None:
    code = f"import sys, {module}; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (run.returncode, run.stdout.split()) == (0, []), run.stderr


def planted_tree(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return root


@pytest.mark.rule("frame-checker-finds-violations")
@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("session_core/a.py", "import persistence", "session_core must not import persistence"),
        (
            "acp_server/wire/a.py",
            "def f():\n    from acp_server import rpc",
            "acp_server.wire must not import acp_server.rpc",
        ),
        (
            "acp_server/transport/a.py",
            "from ..rpc import peer",
            "acp_server.transport must not import acp_server.rpc",
        ),
        (
            "acp_server/transport/__init__.py",
            "from .. import rpc",
            "acp_server.transport must not import acp_server.rpc",
        ),
        (
            "acp_server/bridge/a.py",
            "import importlib\nimportlib.import_module('persistence.jsonl')",
            "acp_server.bridge must not import persistence.jsonl",
        ),
        (
            "acp_server/agents/a.py",
            "import typing\nif typing.TYPE_CHECKING:\n    import acp_server.wire",
            "acp_server.agents must not import acp_server.wire",
        ),
        (
            "acp_server/testing/checks/a.py",
            "from acp_server.testing.client import AcpClient",
            "acp_server.testing.checks must not import acp_server.testing.client",
        ),
        (
            "acp_server/testing/conformance/a.py",
            "import acp_server.testing.kit.run",
            "acp_server.testing.conformance must not import acp_server.testing.kit.run",
        ),
        ("acp_server/cli/a.py", "import tests.x", "acp_server.cli must not import tests.x"),
        ("acp_server/novel.py", "import session_core", "acp_server.novel has no row in ROOMS"),
        ("tests/test_a.py", "import asyncio", "nobody may import asyncio"),
        (
            "acp_server/rpc/peer.py",
            "def f():\n    import jsonrpcserver.main",
            "only acp_server.rpc.dispatch and tests may import jsonrpcserver.main",
        ),
        (
            "persistence/lock.py",
            "from sqlite3 import connect",
            "only persistence.sqlite and tests may import sqlite3",
        ),
    ],
)
def test_checker_finds_a_planted_fault(tmp_path: Path, name: str, text: str, fault: str) -> None:
    tree = planted_tree(tmp_path, {"acp_server/rpc/__init__.py": "", name: text})
    assert [line.split(": ", 1)[1] for line in faults_under(tree)] == [fault]


def test_checker_passes_a_tree_in_order(tmp_path: Path) -> None:
    tree = planted_tree(
        tmp_path,
        {
            "session_core/a.py": "from session_core.b import c",
            "session_core/b.py": "from . import a",
            "acp_server/rpc/dispatch.py": "import jsonrpcserver\nfrom acp_server.wire import x",
            "acp_server/app.py": "import persistence.jsonl",
        },
    )
    assert faults_under(tree) == []

import ast
import subprocess
import sys
from pathlib import Path

import session_core

PACKAGE = Path(session_core.__file__).parent


def test_the_public_names_are_exactly_those_that_init_imports() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    imported = [
        alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
    ]
    assert sorted(session_core.__all__) == sorted(imported)
    assert len(set(session_core.__all__)) == len(session_core.__all__)
    assert all(hasattr(session_core, name) for name in session_core.__all__)


def test_every_error_is_public_and_of_one_tree() -> None:
    tree = ast.parse((PACKAGE / "errors.py").read_text())
    errors = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    assert errors <= set(session_core.__all__)
    for name in errors:
        assert issubclass(getattr(session_core, name), session_core.SessionCoreError)


def test_the_core_imports_nothing_of_ours_and_nothing_heavy() -> None:
    allowed = {"session_core", "anyio"} | set(sys.stdlib_module_names)
    forbidden = {"asyncio", "sqlite3", "os", "io", "socket", "subprocess", "tempfile"}
    for path in PACKAGE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            roots = {name.split(".")[0] for name in names}
            assert roots <= allowed, path.name
            assert not roots & forbidden, path.name


def test_importing_the_core_loads_no_model_or_storage_library() -> None:
    heavy = ("pydantic", "orjson", "jsonrpcserver", "filelock", "sqlite3", "platformdirs", "pytest")
    program = f"import sys, session_core; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"

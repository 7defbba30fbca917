"""Breaks one rule at a time and demands that a test notices: `make soak` runs this.

Each `*.patch` beside this file begins with two lines, `# what: …` in words and `# test: …`, the
arguments of pytest that must fail with it. A patch that no longer applies, and a test run that
fails for another reason than a failed test, are errors: a guard that cannot fail guards nothing.

    python tests/mutations/run.py [NAME ...]
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
_COPIED = ("session_core", "persistence", "acp_server", "tests", "fixtures", "docs", "examples")
_TESTS_FAILED = 1  # pytest's exit code for failed tests; usage, collection and no tests have others


class Mutation(NamedTuple):
    """One broken rule.

    Attributes:
        name: The patch's name without its suffix.
        what: What it breaks, in words.
        tests: Arguments of pytest.
    """

    name: str
    what: str
    tests: tuple[str, ...]
    patch: Path


def mutations(names: list[str]) -> list[Mutation]:
    """Return the mutations of these names, or all."""
    found = []
    for patch in sorted(HERE.glob("*.patch")):
        what, test = patch.read_text(encoding="utf-8").splitlines()[:2]
        if not what.startswith("# what: ") or not test.startswith("# test: "):
            message = f"{patch.name} must begin with '# what: ' and '# test: '"
            raise ValueError(message)
        tests = tuple(shlex.split(test.removeprefix("# test: ")))
        found.append(Mutation(patch.stem, what.removeprefix("# what: "), tests, patch))
    return [one for one in found if not names or one.name in names]


def outcome(mutation: Mutation) -> str | None:
    """Apply the mutation to a copy of the tree and run its tests; return what is wrong, or None."""
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        tree = Path(folder)
        for name in _COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(
                    ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__")
                )
        shutil.copy(ROOT / "pyproject.toml", tree)
        applied = subprocess.run(
            ["git", "apply", "--unidiff-zero", str(mutation.patch)],
            cwd=tree,
            capture_output=True,
            text=True,
            check=False,
        )
        if applied.returncode:
            return f"does not apply any more: {applied.stderr.strip()}"
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
        # The copy before the installed package, in child processes too.
        environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
        run = subprocess.run(
            [*command, *mutation.tests],
            cwd=tree,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if run.returncode == _TESTS_FAILED:
            return None
        if run.returncode == 0:
            return "no test noticed"
        return f"the tests did not run (exit code {run.returncode}):\n{run.stdout[-2000:]}"


def main(names: list[str]) -> int:
    """Run the mutations and print a line each; return 1 if any survived."""
    survived = 0
    for mutation in mutations(names):
        wrong = outcome(mutation)
        survived += wrong is not None
        print(f"{'SURVIVED' if wrong else 'caught  '} {mutation.name}: {mutation.what}", flush=True)
        if wrong:
            print(f"    {wrong}", flush=True)
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

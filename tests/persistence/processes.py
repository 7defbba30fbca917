"""Programs of the tests as processes of their own, killed when their block is left."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def started(program: Path, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Start a Python program with pipes to its input and from its output."""
    process = subprocess.Popen(
        [sys.executable, str(program), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def read_line(process: subprocess.Popen[str]) -> str:
    """Wait for the next line of a process and return it; "" at its end."""
    assert process.stdout is not None
    return process.stdout.readline().strip()

"""Lets every test of the server run on another store than memory: `ACP_TEST_STORE=jsonl|sqlite`.

A test that asks for `memory:` gets a store on the disk then. `make test` runs the tests of the
bridge and of the agents a second time so.
"""

import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import persistence.memory
from persistence import StorageBackend, open_backend

STORE = os.environ.get("ACP_TEST_STORE", "memory")
_PLACES = {"jsonl": "jsonl:{}", "sqlite": "sqlite:{}.db"}


@pytest.fixture(autouse=True)
def store_of_the_run(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    if STORE != "memory":
        opened = _on_disk(tmp_path_factory.mktemp("store"), _PLACES[STORE])
        monkeypatch.setattr(persistence.memory, "MemoryBackend", opened)


def _on_disk(folder: Path, spec: str) -> Callable[[], StorageBackend]:
    count = itertools.count(1)
    return lambda: open_backend(spec.format(folder / str(next(count))))

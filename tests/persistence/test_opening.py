"""From a specification to a store."""

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from persistence import ForeignStoreError, UnknownStoreError, open_backend
from persistence.jsonl import JsonlBackend
from persistence.memory import MemoryBackend
from persistence.testing.harness import header


def test_a_specification_names_scheme_and_path(tmp_path: Path) -> None:
    assert isinstance(open_backend("memory:"), MemoryBackend)
    odd = tmp_path / "a b?c#d:e%20"
    backend = open_backend(f"jsonl:{odd}")
    assert isinstance(backend, JsonlBackend)
    location = backend.locate(header("s"))
    assert location is not None
    assert location.path.startswith(f"{odd}/")


@pytest.mark.parametrize("spec", ["", "jsonl", "jsonl:", "memory", "memory:x", "nosuch:x", ":x"])
def test_a_specification_that_names_nothing_is_refused(spec: str) -> None:
    with pytest.raises(UnknownStoreError) as raised:
        open_backend(spec)
    assert raised.value.spec == spec


def test_a_place_that_cannot_be_a_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ForeignStoreError):
        open_backend(f"jsonl:{tmp_path}/file")


@pytest.mark.rule("backends-bring-primitives")
def test_a_plugin_brings_its_own_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("other", f"{__name__}:unused", "acp_session_server.stores")
    monkeypatch.setattr(EntryPoint, "load", lambda _point: lambda path: ("opened", path))

    def entry_points(group: str) -> list[Any]:
        return [point] if group == "acp_session_server.stores" else []

    monkeypatch.setattr("importlib.metadata.entry_points", entry_points)
    assert open_backend("other:some:path") == ("opened", "some:path")  # type: ignore[comparison-overlap]
    with pytest.raises(UnknownStoreError, match="other"):
        open_backend("another:x")


def test_importing_the_package_imports_no_backend() -> None:
    code = "import sys, persistence; print(*sys.modules)"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    loaded = output.stdout.split()
    assert "persistence.repository" in loaded
    assert not {"persistence.jsonl", "persistence.memory", "filelock", "hypothesis"} & {*loaded}

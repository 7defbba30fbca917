"""A database file for each test."""

from pathlib import Path

import pytest

from persistence.sqlite.harness import SqliteHarness


@pytest.fixture
def harness(tmp_path: Path) -> SqliteHarness:
    return SqliteHarness(tmp_path / "store.db")

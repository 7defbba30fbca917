"""The SQLite backend keeps the contract of storage backends."""

from pathlib import Path

import pytest

from persistence.sqlite.harness import SqliteHarness
from persistence.testing import CONTRACT, Check, check_name


@pytest.mark.parametrize("check", CONTRACT, ids=check_name)
async def test_sqlite(check: Check, tmp_path: Path) -> None:
    await check(SqliteHarness(tmp_path / "store.db"))

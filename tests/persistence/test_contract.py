"""Every backend of the package keeps the contract of storage backends."""

from pathlib import Path

import pytest

from persistence.testing import CONTRACT, Check, check_name
from persistence.testing.harnesses import JsonlHarness, MemoryHarness


@pytest.mark.rule("backends-bring-primitives")
@pytest.mark.parametrize("check", CONTRACT, ids=check_name)
async def test_memory(check: Check) -> None:
    await check(MemoryHarness())


@pytest.mark.parametrize("check", CONTRACT, ids=check_name)
async def test_jsonl(check: Check, tmp_path: Path) -> None:
    await check(JsonlHarness(tmp_path / "store"))

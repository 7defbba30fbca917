"""The Python of the documents that a reader learns from runs as it stands."""

import re
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parent.parent / "docs"
_BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize("name", ["session-model.md"])
def test_the_examples_of_a_document_run_from_top_to_bottom(name: str) -> None:
    blocks = _BLOCK.findall((DOCS / name).read_text(encoding="utf-8"))
    assert len(blocks) > 3
    namespace: dict[str, Any] = {}
    for number, block in enumerate(blocks):
        exec(compile(block, f"{name} block {number}", "exec"), namespace)

"""`--acp-review`: what differs is shown, and kept, accepted or thrown away as is answered."""

from pathlib import Path
from typing import Any

import pytest

from acp_server.testing.kit import review as module
from acp_server.testing.kit.accepting import leave_new
from acp_server.testing.kit.items import DIFFERING
from acp_server.testing.kit.review import review
from acp_server.testing.kit.snapshot import Snapshot, read_expected, write_lines

OLD = [{"type": "session", "id": "old"}]
NEW = [{"type": "session", "id": "new"}]


class Terminal:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def write_line(self, line: str) -> None:
        self.lines.append(line)


class Config:
    """As much of pytest's configuration as a review needs."""

    def __init__(self, path: Path) -> None:
        self.terminal = Terminal()
        self.stash = pytest.Stash()
        self.stash[DIFFERING] = {path: ("jsonl-subprocess", Snapshot({}))}
        self.pluginmanager = self

    def get_plugin(self, name: str) -> Any:
        return self.terminal if name == "terminalreporter" else None


@pytest.mark.parametrize(
    ("answer", "expected", "left"), [("a", NEW, False), ("r", OLD, False), ("", OLD, True)]
)
def test_an_answer_decides(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    expected: list[dict[str, Any]],
    left: bool,
) -> None:
    write_lines(tmp_path / "session.expected.jsonl", OLD)
    leave_new(tmp_path, Snapshot({"session.expected.jsonl": NEW}))
    config = Config(tmp_path)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr(module, "_ask", lambda _question: answer)
    review(config)  # type: ignore[arg-type]  # a stand-in
    assert '      id: "old" -> "new"' in config.terminal.lines
    assert read_expected(tmp_path)["session.expected.jsonl"] == expected
    assert bool(list(tmp_path.glob("*.new"))) is left

"""How the command line of an agent is read."""

from pathlib import Path

import pytest

from acp_server.testing.conformance.harness import agent_argv


def test_paths_of_the_callers_directory_are_made_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "agent.py").write_text("", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert agent_argv("python bin/agent.py --flag 'a b' /etc no/such") == [
        "python",
        f"{tmp_path}/bin/agent.py",
        "--flag",
        "a b",
        "/etc",
        "no/such",
    ]

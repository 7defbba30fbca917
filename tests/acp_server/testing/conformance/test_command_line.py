"""How the command line of an agent is read."""

from pathlib import Path

import pytest

from acp_server.testing.conformance.harness import agent_argv


def test_paths_of_the_callers_directory_are_made_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("bin/agent.py", "agent.py", "python"):
        (tmp_path / name).write_text("", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    command = (
        "python agent.py bin/agent.py --agent=x agent.py:f bin/agent.py:f --flag 'a b' /etc no/such"
    )
    assert agent_argv(command) == [
        "python",  # found on PATH, as a shell does
        f"{tmp_path}/agent.py",
        f"{tmp_path}/bin/agent.py",
        "--agent=x",
        f"{tmp_path}/agent.py:f",
        f"{tmp_path}/bin/agent.py:f",
        "--flag",
        "a b",
        "/etc",
        "no/such",
    ]

"""Where the command runs, and what it says where it does not."""

import sys

import pytest

from acp_server.cli import main


@pytest.mark.rule("windows-is-refused-early")
def test_windows_is_refused_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert main(["serve"]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "acp-server: Windows is not supported; use WSL\n")

"""What the diagnostic log holds of a failure, and who can read it."""

import os
import sys
from pathlib import Path

import pytest

from acp_server.testing import AcpClient, AcpError
from tests.acp_server.test_serve import AGENTS

KEY = "it's a key\nof two lines"
"""Quotes and line ends are escaped where a traceback shows the value."""


@pytest.mark.rule("diagnostics-hide-secrets")
@pytest.mark.parametrize("former_mode", [None, 0o644])
async def test_a_log_file_is_private_and_has_no_secrets(
    former_mode: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACME_API_KEY", KEY)
    log = tmp_path / "server.log"
    if former_mode is not None:
        log.touch(former_mode)
    argv = [sys.executable, "-m", "acp_server", "--agent", f"{AGENTS}:leaky", "--store", "memory:"]
    before = os.umask(0o022)
    try:
        client = AcpClient.spawn([*argv, "--log-file", str(log)])
        async with client:
            await client.initialize()
            session_id = await client.new_session(tmp_path)
            with pytest.raises(AcpError, match="log entry"):
                await client.prompt(session_id, "go")
    finally:
        os.umask(before)
    text = log.read_text(encoding="utf-8")
    assert "ValueError: no access with [redacted]\nto https://[redacted]@host.example" in text
    assert "KeyError: " in text
    assert "a key" not in text
    assert log.stat().st_mode & 0o777 == 0o600

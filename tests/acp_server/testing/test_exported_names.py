import subprocess
import sys

import pytest

import acp_server.testing


def test_every_exported_name_is_there_once() -> None:
    names = acp_server.testing.__all__
    assert len(set(names)) == len(names)
    assert all(hasattr(acp_server.testing, name) for name in names)


@pytest.mark.rule("kit-meets-no-other-plugin")
def test_importing_the_kit_is_light() -> None:
    heavy = ("acp", "pytest", "pydantic", "jsonrpcserver")
    probe = f"import sys, acp_server.testing; sys.exit(any(n in sys.modules for n in {heavy}))"
    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0

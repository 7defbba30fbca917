"""Where an agent starts, and what lies beside it, changes nothing of what the server imports."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from acp_server.builtin_agents.author_path import OUR_PACKAGES
from acp_server.testing import AcpClient, AcpError

AGENT = """
from acp_server import agent
from notes import GREETING

@agent
async def hello(turn):
    await turn.text(GREETING)
"""

# What the server imports, at the start or late, and an author might call his own modules, too.
TAKEN = (
    "email", "queue", "pydantic", "logging", "json", "typing", "anyio", "orjson", "filelock",
    "jsonrpcserver", "platformdirs", "sqlite3", "select", "signal", "threading", "idna", "inspect",
)  # fmt: skip
BROKEN = "raise RuntimeError('the module of a project was imported in the place of another')\n"


def environment() -> dict[str, str]:
    # What the developer has set must not decide where imports are looked for.
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def server(start: Sequence[str], spec: str, folder: Path) -> AcpClient:
    store = f"jsonl:{folder / 'store'}"
    argv = [*start, "serve", "--agent", spec, "--store", store]
    return AcpClient.spawn(argv, cwd=folder, env=environment())


def project(folder: Path, agent_file: str = "agent.py") -> Path:
    """Make a project whose modules have the names of everybody else's."""
    for name in (*TAKEN, *OUR_PACKAGES):
        (folder / f"{name}.py").write_text(BROKEN, encoding="utf-8")
    (folder / "notes.py").write_text("GREETING = 'hello'\n", encoding="utf-8")
    (folder / agent_file).write_text(AGENT, encoding="utf-8")
    return folder


COMMAND = [str(Path(sys.executable).parent / "acp-server")]
MODULE = [sys.executable, "-m", "acp_server"]


async def says_hello(client: AcpClient, folder: Path) -> None:
    async with client:
        await client.initialize()
        session_id = await client.new_session(folder)
        assert (await client.prompt(session_id, "hi")).text == "hello"
        assert await client.load_session(session_id, folder)


@pytest.mark.rule("author-imports-never-meet-ours")
@pytest.mark.parametrize("start", [COMMAND, MODULE], ids=["command", "python -m"])
@pytest.mark.parametrize("spec", ["agent.py:hello", "agent:hello"])
async def test_a_project_may_hold_modules_of_any_name(
    start: Sequence[str], spec: str, tmp_path: Path
) -> None:
    folder = project(tmp_path)
    if start is MODULE:
        # Which `acp_server` is run with `-m` is decided by Python, before anything of ours.
        (folder / "acp_server.py").unlink()
    await says_hello(server(start, spec, folder), folder)


@pytest.mark.rule("author-imports-never-meet-ours")
@pytest.mark.parametrize("name", ["email.py", "queue.py", "pydantic.py", "orjson.py", "a-b.py"])
async def test_an_agents_file_may_have_any_name(name: str, tmp_path: Path) -> None:
    folder = project(tmp_path, name)
    await says_hello(server(COMMAND, f"{folder / name}:hello", folder), folder)


@pytest.mark.rule("author-imports-never-meet-ours")
async def test_an_authors_module_comes_before_an_installed_one_that_is_not_the_servers(
    tmp_path: Path,
) -> None:
    # `xdist` is installed for the tests; the server has no use for it.
    (tmp_path / "xdist.py").write_text("GREETING = 'hello'\n", encoding="utf-8")
    text = AGENT.replace("from notes import", "from xdist import")
    (tmp_path / "agent.py").write_text(text, encoding="utf-8")
    await says_hello(server(COMMAND, "agent.py:hello", tmp_path), tmp_path)


@pytest.mark.rule("author-imports-never-meet-ours")
@pytest.mark.parametrize("package", OUR_PACKAGES)
@pytest.mark.parametrize("way", ["named", "imported"])
def test_a_package_with_the_name_of_ours_is_said_in_one_sentence(
    package: str, way: str, tmp_path: Path
) -> None:
    folder = tmp_path / package
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "of_mine.py").write_text(AGENT, encoding="utf-8")
    (tmp_path / "start.py").write_text(f"from {package}.of_mine import hello\n", encoding="utf-8")
    spec = f"{package}.of_mine:hello" if way == "named" else "start.py:hello"
    done = subprocess.run(
        [*COMMAND, "serve", "--agent", spec],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert f"{package!r} is also the name of a package of this server" in done.stderr


@pytest.mark.parametrize(
    ("text", "line"),
    [("import nowhere\n", 1), ("\n\n1 / 0\n", 3), ("x = 1\ndef f(:\n", 2)],
)
def test_a_failing_import_names_file_and_line(text: str, line: int, tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(text, encoding="utf-8")
    done = subprocess.run(
        [*COMMAND, "serve", "--agent", "agent.py:hello"],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "agent.py" in done.stderr
    assert f"line {line}" in done.stderr


@pytest.mark.rule("late-import-failure-is-answered")
async def test_a_late_import_that_fails_is_answered_and_the_process_lives(tmp_path: Path) -> None:
    # Found before the installed one because the test says so, as a broken installation would be.
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "jsonrpcserver.py").write_text("import nowhere\n", encoding="utf-8")
    env = environment() | {"PYTHONPATH": str(tmp_path / "broken")}
    argv = [*COMMAND, "serve", "--agent", "demo", "--store", f"jsonl:{tmp_path / 'store'}"]
    async with AcpClient.spawn(argv, cwd=tmp_path, env=env) as client:
        await client.initialize()
        for _ in range(2):
            with pytest.raises(AcpError) as caught:
                await client.new_session(tmp_path)
            assert caught.value.code == -32603
            assert "could not load its methods (ModuleNotFoundError)" in str(caught.value)
        await client.close_stdin()
        with anyio.fail_after(10):
            assert await client.wait() == 0

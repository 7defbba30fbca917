"""Finds the agent that `--agent` names; a wrong name says what was looked for."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from acp_server.agents.agent import Agent
from acp_server.builtin_agents.author_path import (
    OUR_PACKAGES,
    add_author_path,
    hides_package,
    is_the_servers,
)
from acp_server.turns.errors import AgentsError

if TYPE_CHECKING:
    from types import ModuleType

ENTRY_POINT_GROUP = "acp_session_server.agents"
"""Installed packages offer agents under this entry point group."""


class AgentLoadError(AgentsError):
    """A `--agent` value that names nothing that can run.

    Attributes:
        spec: The value as given.
    """

    def __init__(self, spec: str, reason: str) -> None:
        self.spec = spec
        super().__init__(f"cannot load agent {spec!r}: {reason}")


def load_agent(spec: str) -> Agent:
    """Return the agent that `spec` names.

    Args:
        spec: `demo`, `script:FILE`, `module:attribute`, `path/to/file.py:attribute`, or the name
            of an agent that an installed package offers.

    Raises:
        AgentLoadError: There is no such agent, or it cannot be imported.
    """
    if spec == "demo":
        from acp_server.builtin_agents.demo import demo  # noqa: PLC0415 - only who runs it pays for it

        return demo
    head, colon, tail = spec.rpartition(":")
    if spec.startswith("script:"):
        from acp_server.builtin_agents.script import script_agent  # noqa: PLC0415 - as above

        return script_agent(Path(spec.removeprefix("script:")))
    if colon and head and tail:
        return _agent_from(spec, _module(spec, head), tail)
    return _installed_agent(spec)


def _installed_agent(spec: str) -> Agent:
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow, and rarely needed

    offered = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
    if spec not in offered:
        names = ", ".join(sorted({"demo", *offered}))
        reason = (
            f"there is no agent of this name (there are: {names}); "
            "a module or file is given as 'module:attribute' or 'file.py:attribute'"
        )
        raise AgentLoadError(spec, reason)
    try:
        return _as_agent(spec, offered[spec].load())
    except ImportError as error:
        raise AgentLoadError(spec, f"importing it failed: {error}") from error


def _module(spec: str, head: str) -> ModuleType:
    """Import a file, or a module by name as one of the working directory (or an installed one)."""
    is_file = head.endswith(".py")
    path = Path(head).expanduser().absolute()
    folder = str(path.parent if is_file else Path.cwd())
    if is_file and not path.is_file():
        raise AgentLoadError(spec, f"there is no file {os.fspath(path)!r}")
    top_level = head.partition(".")[0]
    if not is_file and top_level in OUR_PACKAGES and hides_package(folder, top_level):
        raise AgentLoadError(spec, _taken(top_level))
    add_author_path(folder)
    try:
        return _module_of_file(path) if is_file else importlib.import_module(head)
    except Exception as error:
        raise AgentLoadError(spec, _why_not_imported(head, folder, error)) from error


def _module_of_file(path: Path) -> ModuleType:
    name = path.stem
    if name in sys.modules or not name.isidentifier() or is_the_servers(name):
        # Under its own name it would be imported in the place of another module.
        name = f"_agent_file_{name}"
    found = importlib.util.spec_from_file_location(name, path)
    assert found is not None  # noqa: S101 - the name ends with .py
    assert found.loader is not None  # noqa: S101 - as above
    module = importlib.util.module_from_spec(found)
    # Dataclasses and pickling look their module up by name.
    sys.modules[name] = module
    try:
        found.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _why_not_imported(head: str, folder: str, error: Exception) -> str:
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    taken = (missing or "").partition(".")[0]
    if taken in OUR_PACKAGES and hides_package(folder, taken):
        return _taken(taken)
    reason = f"importing {head!r} failed: {type(error).__name__}: {error}"
    # The author's own line: the last one that is neither Python's nor the server's.
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if frame.filename.startswith(folder + os.sep)]
    return f"{reason} ({theirs[-1].filename}, line {theirs[-1].lineno})" if theirs else reason


def _taken(package: str) -> str:
    return f"{package!r} is also the name of a package of this server; yours needs another name"


def _agent_from(spec: str, module: ModuleType, attribute: str) -> Agent:
    value: object = module
    for part in attribute.split("."):
        if not hasattr(value, part):
            has = ", ".join(_candidates(module)) or "nothing that could be an agent"
            where = getattr(module, "__file__", None) or module.__name__
            raise AgentLoadError(spec, f"{where} has no {attribute!r}; it has: {has}")
        value = getattr(value, part)
    return _as_agent(spec, value)


def _as_agent(spec: str, value: object) -> Agent:
    if isinstance(value, Agent):
        return value
    if inspect.iscoroutinefunction(value):
        return Agent(name=value.__name__, drive=value)
    reason = f"it is a {type(value).__name__}, not an `async def` function that takes the turn"
    raise AgentLoadError(spec, reason)


def _candidates(module: ModuleType) -> list[str]:
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (
            isinstance(value, Agent)
            or (inspect.iscoroutinefunction(value) and value.__module__ == module.__name__)
        )
    )

"""Finds the agent that `--agent` names; a wrong name says what was looked for (design 6)."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from acp_server.agents.agent import Agent
from acp_server.agents.errors import AgentLoadError

if TYPE_CHECKING:
    from types import ModuleType

ENTRY_POINT_GROUP = "acp_session_server.agents"
"""Installed packages offer agents under this entry point group."""


def load_agent(spec: str) -> Agent:
    """Return the agent that `spec` names.

    Args:
        spec: `demo`, `script:FILE`, `module:attribute`, `path/to/file.py:attribute`, or the name
            of an agent that an installed package offers.

    Raises:
        AgentLoadError: There is no such agent, or it cannot be imported.
    """
    if spec == "demo":
        from acp_server.agents.demo import demo  # noqa: PLC0415 - only who runs it pays for it

        return demo
    head, colon, tail = spec.rpartition(":")
    if spec.startswith("script:"):
        from acp_server.agents.script import script_agent  # noqa: PLC0415 - as above

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
    # Authors start the server beside their code, as they would start python (Z25).
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return _module_of_file(spec, Path(head)) if head.endswith(".py") else _by_name(head)
    except AgentLoadError:
        raise
    except Exception as error:
        reason = f"importing {head!r} failed: {type(error).__name__}: {error}"
        raise AgentLoadError(spec, reason) from error


def _by_name(name: str) -> ModuleType:
    return importlib.import_module(name)


def _module_of_file(spec: str, path: Path) -> ModuleType:
    path = path.expanduser().absolute()
    if not path.is_file():
        raise AgentLoadError(spec, f"there is no file {os.fspath(path)!r}")
    name = path.stem
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        raise AgentLoadError(spec, f"{os.fspath(path)!r} is not a Python file")
    module = importlib.util.module_from_spec(found)
    # Dataclasses and pickling look their module up by name.
    sys.modules.setdefault(name, module)
    found.loader.exec_module(module)
    return module


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

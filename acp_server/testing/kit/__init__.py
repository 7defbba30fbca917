"""The snapshot kit: scenario directories, played against a real server and compared.

A scenario says what a client does; what the server wrote and stored is compared with expected
files beside it. Parts, in the order in which data passes them: `scenario` and `steps` (what is
written), `workspace` and `launchers` (where it plays), `driver` (the play), `recording`, `normalize`,
`compare`, `checks` and `guards` (the judgement), `accepting` (the expected files). `items` shows
all of it to pytest; `fixture` is the way without a directory.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from acp_server.testing.kit.runner import Variant, Verdict, run_scenario, variants_of
    from acp_server.testing.kit.scenario import (
        Scenario,
        ScenarioDirectory,
        ScenarioFault,
        load_scenario,
    )

_HOMES = {
    "Scenario": "scenario",
    "ScenarioDirectory": "scenario",
    "ScenarioFault": "scenario",
    "load_scenario": "scenario",
    "Variant": "runner",
    "Verdict": "runner",
    "run_scenario": "runner",
    "variants_of": "runner",
}

__all__ = [
    "Scenario",
    "ScenarioDirectory",
    "ScenarioFault",
    "Variant",
    "Verdict",
    "load_scenario",
    "run_scenario",
    "variants_of",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

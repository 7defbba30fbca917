"""The snapshot kit: scenario directories, played against a real server and compared.

A scenario says what a client does; what the server wrote and stored is compared with expected
files beside it. The modules, in the order in which data passes them:

- `scenario`, `steps`, `step_model`, `json_places`: the written form, read strictly;
- `workspace`, `launchers`: the directory and the store of a run, and the server on them;
- `driver`, `run` with `session_steps`, `prompt_steps`, `misc_steps`, `waits`,
  `scripted_results`: the steps, carried out;
- `recording`, `normalize`, `snapshot`: what came of it, without what changes from run to run;
- `compare`, `labels`, `checks`, `guards`: the verdict; `runner` joins all of it;
- `accepting`, `review`, `live`: writing the expected files and the model scripts.

`items` shows scenarios to pytest. `fixture`, with `agent_run` and `turn_results`, is the fixture
`acp`, the way without a directory.
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

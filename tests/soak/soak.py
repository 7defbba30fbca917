"""The crash tests at length:
`soak.py [power-cuts | kills | stops | contenders | damage | mutants | interleavings]...`, all by
default.

Each is the test of the suite with larger numbers. Those can be set from outside, as can the seeds
(`ACP_POWER_CUT_SEED`, `ACP_KILL_SEED`, `ACP_STOP_SEED`, `ACP_CONTEND_SEED`, `ACP_FLIP_SEED`,
`ACP_MUTANT_SEED`, `ACP_INTERLEAVE_SEED`), so that nights differ.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parents[1]


class Soak(NamedTuple):
    """A test module and the setting that makes it long."""

    module: str
    setting: str
    value: str


SOAKS = {
    "power-cuts": Soak("persistence/crash/test_power_cuts.py", "ACP_POWER_CUT_STATES", "2000000"),
    "kills": Soak("persistence/crash/test_torture.py", "ACP_KILLS", "500"),
    # More than any life cycle has calls: all of them.
    "stops": Soak("persistence/crash/test_kill_points.py", "ACP_STOPS", "1000000"),
    "contenders": Soak("persistence/crash/test_contenders.py", "ACP_CONTEND_S", "20"),
    "damage": Soak("persistence/crash/test_damage.py", "ACP_FLIPS", "6000"),
    "mutants": Soak("acp_server/bridge/test_mutated_logs.py", "ACP_MUTANTS", "6000"),
    "interleavings": Soak("acp_server/test_interleavings.py", "ACP_INTERLEAVINGS", "200"),
}

_PARALLEL = {
    "persistence/crash/test_power_cuts.py",
    "persistence/crash/test_kill_points.py",
    "acp_server/bridge/test_mutated_logs.py",
}


def run(soak: Soak) -> bool:
    """Run one module at length; return whether it passed."""
    settings = {soak.setting: soak.value, **os.environ}
    # Processes that contend or are killed must not wait for other tests.
    workers = "auto" if soak.module in _PARALLEL else "0"
    command = [sys.executable, "-m", "pytest", "-q", "-n", workers, str(TESTS / soak.module)]
    return subprocess.run(command, env=settings).returncode == 0


def main() -> int:
    chosen = sys.argv[1:] or list(SOAKS)
    failed = [name for name in chosen if not run(SOAKS[name])]
    return 1 if failed else 0


sys.exit(main())

"""An SQLite store whose process is stopped at any I/O call of any life cycle.

It is never refused, keeps what was acknowledged, verifies and goes on. The modes are: `kill` before
the call, `torn` in the middle of a write, `fail` (this call fails, all others work), `full` (from
this call on nothing can grow), and `pause` (another process looks at the store meanwhile).

A sample of the calls by default; `ACP_STOPS` sets at about how many of each life cycle, and
`ACP_STOP_SEED` at which; `ACP_STOP_MODES` may leave modes out, with commas between the others.
"""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

STOPS = int(os.environ.get("ACP_STOPS", "3"))
SEED = int(os.environ.get("ACP_STOP_SEED", "0"))

PROGRAM = Path(__file__).with_name("kill_points.py")

CALLS = {
    "create": 50,
    "create-in-empty-file": 51,
    "append": 126,
    "append-in-rollback-mode": 127,
    "checkpoint": 3344,
    "delete": 134,
}
"""About how many calls each life cycle makes; from these follow the strides of a sample."""


@pytest.mark.parametrize("cycle", CALLS)
def test_a_store_is_sound_wherever_its_process_was_stopped(cycle: str, tmp_path: Path) -> None:
    stride = max(1, CALLS[cycle] // STOPS)
    offset = random.Random(f"{SEED} {cycle}").randrange(stride)
    argv = [sys.executable, str(PROGRAM), cycle, str(stride), str(offset), str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.stdout.startswith("cannot be watched"):
        pytest.skip("the SQLite of this Python does not let its calls be replaced")
    assert done.returncode == 0, done.stderr
    numbers, *problems = done.stdout.splitlines()
    calls, points = map(int, numbers.split())
    assert calls > CALLS[cycle] // 2, "the calls are not seen"
    assert points >= min(STOPS, calls) - 1
    assert problems == []

"""`record.py LOG COMMAND...`: run an agent, pass its stdio through, and log every line.

The log is JSON lines `[sender, line]`, in an order in which no answer precedes its question, and at
the end `["exit", code]`. One log for each process: the pid is appended to its name.
"""

# ruff: noqa: INP001 - a script, no package
from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO


class Recorder:
    """Copies one stream to another, line by line, each written down before it is passed on."""

    def __init__(self, log: Path) -> None:
        self._file = log.open("a", encoding="utf-8")
        self._lock = threading.Lock()

    def note(self, *entry: object) -> None:
        """Write one entry of the log."""
        with self._lock:
            self._file.write(json.dumps(entry) + "\n")
            self._file.flush()

    def copy(self, sender: str, source: IO[bytes], target: IO[bytes]) -> None:
        """Copy until the source ends or the target is gone; then close the target."""
        try:
            with contextlib.suppress(BrokenPipeError):
                for line in source:
                    self.note(sender, line.decode("utf-8", "replace"))
                    target.write(line)
                    target.flush()
        finally:
            with contextlib.suppress(BrokenPipeError):
                target.close()


def main() -> int:
    """Run and return the agent's exit code."""
    log, *command = sys.argv[1:]
    recorder = Recorder(Path(f"{log}.{os.getpid()}"))
    agent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603 - what the caller asks for
    assert agent.stdin is not None  # noqa: S101 - a pipe was asked for
    assert agent.stdout is not None  # noqa: S101 - as above
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _frame: agent.send_signal(number))
    inward = threading.Thread(
        target=recorder.copy, args=("client", sys.stdin.buffer, agent.stdin), daemon=True
    )
    inward.start()
    recorder.copy("agent", agent.stdout, sys.stdout.buffer)
    code = agent.wait()
    recorder.note("exit", code)
    # The other thread may wait in a read of a client that does not close its end.
    os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()

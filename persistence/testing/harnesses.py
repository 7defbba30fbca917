"""The harnesses of the backends in this package."""

from __future__ import annotations

from typing import TYPE_CHECKING

from persistence.jsonl import JsonlBackend
from persistence.memory import MemoryBackend, MemoryDisk

if TYPE_CHECKING:
    from pathlib import Path

# Checks that run into a held lock wait this long.
_LOCK_WAIT_S = 0.2

_HALF_RECORD = b'{"type":"turn/start","seq":'


class MemoryHarness:
    """A `MemoryDisk` and what is done to it."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()

    def open(self) -> MemoryBackend:
        """See `BackendHarness.open`."""
        return MemoryBackend(self.disk, lock_wait_s=_LOCK_WAIT_S)

    def tear(self, session_id: str) -> None:
        """See `BackendHarness.tear`."""
        self.plant(session_id, _HALF_RECORD)

    def plant(self, session_id: str, *records: bytes) -> None:
        """See `BackendHarness.plant`."""
        self.disk.logs[session_id].lines += records

    def damage(self, session_id: str) -> None:
        """See `BackendHarness.damage`."""
        self.disk.logs[session_id].lines[1] = b"{}\n"
        self.disk.logs[session_id].summary = None

    def grow(self, session_id: str) -> None:
        """See `BackendHarness.grow`."""
        self.tear(session_id)
        self.disk.logs[session_id].changes += 1

    def contents(self, session_id: str) -> object:
        """See `BackendHarness.contents`."""
        log = self.disk.logs.get(session_id)
        return None if log is None else list(log.lines)


class JsonlHarness:
    """A directory and what is done to the files in it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def open(self) -> JsonlBackend:
        """See `BackendHarness.open`."""
        return JsonlBackend(str(self.root), lock_wait_s=_LOCK_WAIT_S)

    def tear(self, session_id: str) -> None:
        """See `BackendHarness.tear`."""
        self.plant(session_id, _HALF_RECORD)

    def plant(self, session_id: str, *records: bytes) -> None:
        """See `BackendHarness.plant`."""
        with self.log(session_id).open("ab") as log:
            log.write(b"".join(records))

    def damage(self, session_id: str) -> None:
        """See `BackendHarness.damage`."""
        log = self.log(session_id)
        lines = log.read_bytes().splitlines(keepends=True)
        lines[2] = b"?" * (len(lines[2]) - 1) + b"\n"
        log.write_bytes(b"".join(lines))

    def grow(self, session_id: str) -> None:
        """See `BackendHarness.grow`."""
        self.tear(session_id)

    def contents(self, session_id: str) -> object:
        """See `BackendHarness.contents`."""
        logs = list(self.root.glob(f"*/{session_id}/session.jsonl"))
        return logs[0].read_bytes() if logs else None

    def log(self, session_id: str) -> Path:
        """Return the path of a session's log."""
        (log,) = self.root.glob(f"*/{session_id}/session.jsonl")
        return log

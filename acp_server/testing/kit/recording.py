"""What one run of a scenario gave: frames, logs, what each session showed, what went wrong."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from acp_server.testing.client import RecordedFrame
from acp_server.testing.kit.workspace import StoredSession

Update: TypeAlias = Mapping[str, Any]


class Load(NamedTuple):
    """A load of a session that had been seen whole."""

    session_id: str
    seen: tuple[Update, ...]
    replayed: tuple[Update, ...]


class SessionViews:
    """What a client has seen of each session, over all processes; a load begins it anew.

    Sessions of which a part was not seen are left out: those that a kill cut off, and those that
    were resumed without ever having been replayed.

    Attributes:
        loads: What was seen before each load, and what it replayed.
    """

    def __init__(self) -> None:
        self.loads: list[Load] = []
        self._updates: dict[str, list[Update]] = {}
        self._before_load: dict[str, list[Update] | None] = {}

    def created(self, session_id: str) -> None:
        """Note a new session; updates cannot have come before it."""
        self._updates.setdefault(session_id, [])

    def begin_load(self, session_id: str) -> None:
        """Note that a replay is about to come."""
        self._before_load[session_id] = self._updates.get(session_id)
        self._updates[session_id] = []

    def end_load(self, session_id: str, *, loaded: bool) -> None:
        """Note the answer to a load; one that failed has changed nothing."""
        before = self._before_load.pop(session_id, None)
        if loaded:
            if before is not None:
                self.loads.append(Load(session_id, tuple(before), tuple(self._updates[session_id])))
        elif before is None:
            self._updates.pop(session_id, None)
        else:
            self._updates[session_id] = before

    def cut(self) -> None:
        """Note a kill: what was shown last may be lost."""
        self._updates.clear()

    def update(self, session_id: str, update: Update) -> None:
        """Take one update."""
        if session_id in self._updates:
            self._updates[session_id].append(update)

    def whole(self) -> dict[str, tuple[Update, ...]]:
        """Return the updates of each session that was seen whole."""
        return {session_id: tuple(updates) for session_id, updates in self._updates.items()}


@dataclass(slots=True)
class Recording:
    """One run.

    Attributes:
        cwd: The working directory of the scenario.
        root: What lies around it: the store.
        conversations: All lines of both directions, process by process.
        views: What was seen of each session that was seen whole.
        loads: What was seen before each load in the run, and what it replayed.
        stored: The sessions of the store, after the last process had ended.
        given: Events of each session that were in the store before the run, by session id.
        faults: What went wrong, one sentence each; the first one is the cause of the others.
        killed: Whether the last process was killed, so that a log may end anywhere.
        capabilities: What the client said it can do, in its last `initialize`.
    """

    cwd: Path
    root: Path
    conversations: list[list[RecordedFrame]] = field(default_factory=list)
    views: dict[str, tuple[Update, ...]] = field(default_factory=dict)
    loads: list[Load] = field(default_factory=list)
    stored: list[StoredSession] = field(default_factory=list)
    given: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    killed: bool = False
    capabilities: dict[str, Any] = field(default_factory=dict)

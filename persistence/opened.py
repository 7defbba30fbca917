"""What opening or reading a stored session gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from persistence.errors import SessionLockedError
    from session_core import EventLog, Session, SessionHeader


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What a load put right on the disk.

    Attributes:
        torn: What was cut off or completed at the end of the log; None if nothing.
        closer_count: Events that were appended to close an interrupted turn.
    """

    torn: str | None
    closer_count: int


@dataclass(frozen=True, slots=True)
class OpenedSession:
    """A stored session that is live now.

    Attributes:
        session: The live session.
        repaired: What had to be put right; None if nothing, or if it was live already.
        locked: Who else has it; nothing can be written until that process lets it go.
    """

    session: Session
    repaired: RepairReport | None = None
    locked: SessionLockedError | None = None


@dataclass(frozen=True, slots=True)
class LoadedSession:
    """A stored session; `repaired` is None when its log was whole."""

    header: SessionHeader
    log: EventLog
    repaired: RepairReport | None = None

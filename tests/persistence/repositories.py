"""Repositories of sessions over the storage of a harness, and sessions in them."""

from persistence import SessionRepository
from persistence.testing import BackendHarness
from persistence.testing.harness import header, turn_events
from session_core import SessionStore


def opened(harness: BackendHarness) -> SessionRepository:
    """Open the storage as a process of its own would."""
    return SessionRepository(harness.open(), SessionStore())


async def stored(harness: BackendHarness, session_id: str = "s", turns: int = 1) -> None:
    """Store a session of so many small turns and close it."""
    async with opened(harness) as persistence:
        await persistence.create(header(session_id))
        for turn in range(turns):
            await persistence.append(session_id, turn_events(turn + 1, 3 * turn))

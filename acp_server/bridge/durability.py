"""The checkpoints of one session, and the right to write it, as the agents know them."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from acp_server.turns.errors import CheckpointError
from persistence.errors import PersistenceError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from persistence.repository import SessionRepository
    from session_core import Session

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SessionDurability:
    """See `DurabilityPort`; `caught_up` returns when the client has been sent all that was read."""

    _persistence: SessionRepository
    _session: Session
    _caught_up: Callable[[], Awaitable[None]]

    async def hold(self, *, wait: bool = True) -> None:
        """See `DurabilityPort.hold`; on return the client has been sent what others wrote."""
        await self.take(wait=wait)
        await self._caught_up()

    async def take(self, *, wait: bool = True) -> None:
        """Do as `hold` does, but leave it to the caller to wait for the client.

        What follows in the same step of the event loop comes before whatever else waits for this.

        Raises:
            CheckpointError: As `hold`.
        """
        with self._as_checkpoint():
            await self._persistence.hold(self._session, wait=wait)

    async def flush(self) -> None:
        """See `DurabilityPort.flush`."""
        with self._as_checkpoint():
            await self._persistence.flush(self._session)

    @contextmanager
    def _as_checkpoint(self) -> Iterator[None]:
        try:
            yield
        except PersistenceError as error:
            lost = self._persistence.is_lost(self._session)
            raise CheckpointError(str(error), lost_session=lost) from error
        except Exception as error:
            # A third party's backend may raise anything; the turn must end in order (B86).
            _log.exception("the store of %s failed", self._session.id)
            raise CheckpointError("the store failed unexpectedly") from error

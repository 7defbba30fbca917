"""The right to write an open session: taken when something is to be written, else not held.

Rule: looking-takes-no-lock.

Looking needs no right, so several processes may have one session open. Who wants to write takes it,
sees that the log is what was read, and reads on if another process has gone on meanwhile. It is
given back when the session has been idle for a moment: an idle session keeps no descriptor.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio

from persistence.errors import (
    CorruptLogError,
    PersistenceError,
    SessionChangedError,
    SessionLockedError,
    SessionNotFoundError,
    SessionOvertakenError,
    StoreWriteError,
)
from persistence.ownership import is_prefix
from persistence.storing import read_stored, repair
from session_core import is_turn_open

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from anyio.abc import TaskGroup

    from persistence.slots import LiveSession, SessionSlot
    from persistence.storage import StorageBackend, StoredLog, Writer
    from session_core import SessionHeader

_logger = logging.getLogger(__name__)

# Less than another process waits for the right (`LOCK_WAIT_S`): it gets a session that is idle.
IDLE_S = 2.0


@dataclass(frozen=True, slots=True)
class WriteHolding:
    """Takes the right to write, and gives it back."""

    _backend: StorageBackend
    _tasks: TaskGroup
    _sleep_until: Callable[[float], Awaitable[object]]

    async def take_if_free(self, slot: SessionSlot) -> SessionLockedError | None:
        """Take the right for a session that is about to be read; return who else has it.

        A store that cannot be written can still be looked at.

        Raises:
            SessionNotFoundError: It is not stored.
        """
        if slot.writer is None:
            try:
                slot.writer = await self._backend.acquire_writer(slot.session_id, wait=False)
            except SessionLockedError as error:
                return error
            except StoreWriteError as error:
                _logger.warning("%s; it is opened to be looked at", error)
        return None

    async def read(
        self, slot: SessionSlot, check_header: Callable[[SessionHeader], None] | None
    ) -> StoredLog:
        """Read a session that may be written meanwhile, unless the right is taken.

        Raises:
            PersistenceError: See `read_stored`.
        """
        try:
            return await read_stored(self._backend, slot.session_id, check_header)
        except CorruptLogError:
            if slot.writer is not None:
                raise
        # Half of it may have been read before a repair and half behind it: it is read once more
        # before it is called damaged.
        return await read_stored(self._backend, slot.session_id, check_header)

    async def take(self, live: LiveSession, *, wait: bool) -> int | None:
        """Take the right for a stored session whose queue is held.

        Returns:
            How many events the session had before it read on what another process has written;
            None if nobody has.

        Raises:
            SessionLockedError: Another process has it; nothing has changed.
            SessionOvertakenError: Another process went on, and something here is not stored.
            SessionChangedError: What is stored does not begin with what was read.
            PersistenceError: The store could not be read, or not be repaired.
        """
        slot = live.slot
        try:
            writer = await self._backend.acquire_writer(slot.session_id, wait=wait)
        except SessionNotFoundError as error:
            raise SessionChangedError(slot.session_id, "it is gone") from error
        try:
            known = None if await _continues(writer, slot) else await self._read_on(live, writer)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await writer.release()
            raise
        slot.writer = writer
        return known

    def use(self, live: LiveSession) -> None:
        """Note that a session is used; once it is not any more, the right is given back."""
        live.used_at = anyio.current_time()
        if not live.watched and live.slot.writer is not None:
            live.watched = True
            self._tasks.start_soon(self._give_back_when_idle, live)

    async def _read_on(self, live: LiveSession, writer: Writer) -> int | None:
        slot, session = live.slot, live.session
        if live.pending:
            raise SessionOvertakenError(session.id, writer.former_pid)
        stored = await read_stored(self._backend, session.id)
        birth = (stored.header.created_at, stored.header.cwd)
        is_same = birth == (session.header.created_at, session.header.cwd)
        if not is_same or not is_prefix(session.events, stored.log):
            raise SessionChangedError(session.id, "another history is stored under it")
        loaded = await repair(writer, stored)
        known = session.seq
        slot.stands_at(loaded)
        if len(loaded.log) == known:
            return None
        session.read_on(loaded.log)
        return known

    async def _give_back_when_idle(self, live: LiveSession) -> None:
        slot, look_at = live.slot, live.used_at + IDLE_S
        while slot.owner is live and slot.writer is not None:
            await self._sleep_until(look_at)
            async with slot.queue:
                idle_at = live.used_at + IDLE_S
                is_idle = idle_at <= look_at and not live.pending and not live.is_busy()
                # Used meanwhile: as soon as that is long enough ago. Busy: after as long again.
                look_at = idle_at if idle_at > look_at else look_at + IDLE_S
                if slot.owner is live and is_idle and not is_turn_open(live.session.events):
                    try:
                        await slot.give_back()
                    except PersistenceError as error:
                        _logger.warning("%s", error)
        live.watched = False


async def _continues(writer: Writer, slot: SessionSlot) -> bool:
    if slot.position is None:
        return False
    try:
        await writer.continue_from(slot.position)
    except SessionChangedError:
        return False
    return True

"""The primitives a backend provides (backends-bring-primitives).

Owns the Protocols and the plain records that cross them; knows neither files nor tables. What a
session store *does* (queues, repair, ownership, write-behind) is the repository's, over these.

A backend does its own threading: its methods are async, never block the event loop, and never
abandon a half-done write when they are cancelled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from session_core import Event, EventLog, Record, SessionHeader


class Location(NamedTuple):
    """Where a backend keeps one session, for messages and tools."""

    kind: str
    path: str


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """The derived cache of one log: rebuilt when missing, never a source of truth.

    Rule: summary-is-only-a-cache.

    Attributes:
        updated_at: Epoch ms of the end of the last message turn, never below `createdAt`.
        turn_count: Number of turns that have started.
    """

    title: str | None
    first_prompt: str | None
    updated_at: int
    event_count: int
    turn_count: int


@dataclass(frozen=True, slots=True)
class StoredLog:
    """One log as it stands in the store, its torn tail left out.

    Attributes:
        log: Every complete event.
        torn: Backend's own description of what `commit_repair` has to cut or complete; None when
            the stored form is whole.
        mark: Backend's own note of the exact state that was read, for `commit_repair`.
        problems: Oddities worth one warning each that did not stop the read.
        revision: Opaque, see `SessionEntry.revision`.
    """

    header: SessionHeader
    log: EventLog
    torn: object | None
    mark: object
    problems: tuple[str, ...]
    revision: str


class SessionEntry(NamedTuple):
    """One row of a list.

    Attributes:
        revision: The same while the log is unchanged, another after every append, mutating repair
            or recreation.
    """

    header: SessionHeader
    summary: SessionSummary
    revision: str


class EntryPage(NamedTuple):
    """One page of a list; `next_cursor` is None on the last one."""

    entries: list[SessionEntry]
    next_cursor: str | None


class Writer(Protocol):
    """The exclusive right to write one session, and the memory of how its log was left.

    Calls on one writer are made one at a time. Before the first `append_batch` on a stored log
    `commit_repair` is called with what `load_stored` returned under this writer, or `continue_from`
    with where a former writer of this backend has left it.
    """

    @property
    def materialized(self) -> bool:
        """Whether the session is stored."""

    @property
    def position(self) -> object | None:
        """Where the log was left, opaque, for `continue_from`; None while that is not known.

        It is kept for every session that is open and idle, so it is small.
        """

    @property
    def former_pid(self) -> int | None:
        """The process that held the right last, for messages; None for this one or no trace."""

    async def append_batch(
        self,
        header: SessionHeader,
        records: Sequence[Record],
        summary: SessionSummary | None = None,
    ) -> None:
        """Store a batch durably, all or nothing; the first one creates the session.

        Args:
            header: Written with the first batch, ignored afterwards.
            records: Contiguous with the log as this writer left it.
            summary: The cache after this batch, given at the end of a turn; it may be dropped.

        Raises:
            SessionCollisionError: The first batch found the session stored already.
            SessionChangedError: The log is not as this writer left it; nothing was written.
            StoreWriteError: Nothing was stored.
        """

    async def commit_repair(self, stored: StoredLog, closers: Sequence[Event]) -> None:
        """Cut the torn tail, append the closers durably, and continue from there.

        With nothing torn and no closers it writes nothing.

        Raises:
            SessionChangedError: The log is no longer the one that was read.
            StoreWriteError: The repair is not complete; a later load repeats it.
        """

    async def continue_from(self, position: object) -> None:
        """Continue a log that nobody has touched since a writer left it; writes nothing.

        Args:
            position: What that writer had as its `position` after its last successful call.

        Raises:
            SessionChangedError: The log is no longer there, or not exactly that; it has to be read.
            StoreWriteError: The operating system refused to look.
        """

    async def delete(self) -> None:
        """Remove every trace of the session and give the right to write back.

        Raises:
            StoreWriteError: Something was left behind; the writer is released nevertheless.
        """

    async def release(self) -> None:
        """Give the right to write back; a second call does nothing."""


class StorageBackend(Protocol):
    """One place where sessions are stored."""

    def locate(self, header: SessionHeader) -> Location | None:
        """Return where the session of this header is or would be stored, without any I/O."""

    async def load_stored(self, session_id: str) -> StoredLog | None:
        """Read one log without a lock and without changing anything; None when there is none.

        Raises:
            CorruptLogError: Committed bytes are damaged.
            UnsupportedVersionError: The header names another format version.
            StoreReadError: The operating system refused.
        """

    async def list_page(self, cwd: str | None, cursor: str | None, limit: int) -> EntryPage:
        """Return stored sessions, latest `updated_at` first, then by id (list-rows-fold-the-log).

        Damaged sessions never fail a page; each is left out or shown with what its header says,
        and logged as one warning.

        Args:
            cwd: Only sessions whose `cwd` is this directory by realpath.
            cursor: `next_cursor` of a former page.
            limit: Most rows of a page; at least 1.

        Raises:
            InvalidCursorError: The cursor is not one of ours.
        """

    async def acquire_writer(
        self, session_id: str, header: SessionHeader | None = None, *, wait: bool = True
    ) -> Writer:
        """Take the exclusive right to write a session (writing-takes-the-lock).

        Args:
            session_id: The session to write.
            header: Given when the session may have to be created: backends that place a log by
                its header need it.
            wait: Whether to wait for another holder, up to 3 s: an editor that restarts its agent
                gives the old one this long to go.

        Raises:
            SessionNotFoundError: The session is not stored and no header was given.
            SessionLockedError: Another holder kept it.
        """

    async def close(self) -> None:
        """Let go of everything the backend holds open."""

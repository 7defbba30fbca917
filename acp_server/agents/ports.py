"""What a turn needs from the outside, as seen from the agents' room.

The bridge implements these over ACP and the store; tests implement them in memory.
"""

from __future__ import annotations

from typing import Literal, Protocol

PermissionOutcome = Literal[
    "allowed-once", "allowed-always", "rejected", "rejected-always", "cancelled", "unavailable"
]
"""The outcome that `approval/decided` records."""


class ClientPort(Protocol):
    """What a turn may ask of the client of its session."""

    @property
    def can_read_files(self) -> bool:
        """Whether the client offers `fs/read_text_file`."""

    @property
    def can_write_files(self) -> bool:
        """Whether the client offers `fs/write_text_file`."""

    async def request_permission(self, call_id: str) -> PermissionOutcome:
        """Ask the user about an announced call; a client that is gone answers `unavailable`."""

    async def read_text_file(self, path: str) -> str:
        """Read a file as the editor shows it; `path` is absolute.

        Raises:
            OSError: The client refused or answered nonsense.
        """

    async def write_text_file(self, path: str, content: str) -> None:
        """Write a file through the editor; `path` is absolute.

        Raises:
            OSError: The client refused.
        """


class DurabilityPort(Protocol):
    """The checkpoint of the session's log."""

    async def flush(self) -> None:
        """Return when all that was appended is durable.

        Raises:
            CheckpointError: It is not.
        """


class PacePort(Protocol):
    """Back-pressure of the connection the session's updates go to."""

    @property
    def congested(self) -> bool:
        """Whether updates should wait; read once per update, so it must be cheap."""

    async def room(self) -> None:
        """Return when updates may go on."""

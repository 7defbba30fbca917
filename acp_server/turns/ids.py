"""Where identities come from: one injected source, so that tests can count them.

Rule: clock-and-ids-are-injected.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

_RANDOM_BYTES = 10
_VERSION_7 = 0x7
_VARIANT = 0b10


class IdSource(Protocol):
    """Identities of sessions, calls, approvals and log entries."""

    def session_id(self) -> str:
        """Return a new session id, unique across processes."""

    def call_id(self) -> str:
        """Return a new tool call id, unique within its session."""

    def approval_id(self) -> str:
        """Return a new id that pairs `approval/asked` with `approval/decided`."""

    def diagnostic_id(self) -> str:
        """Return a short id that names one entry of the diagnostic log."""


class TimeOrderedIds:
    """UUIDv7 for sessions (session-ids-are-time-ordered), short random ids for the rest."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock

    def session_id(self) -> str:
        """Return a UUIDv7: 48 bits of epoch milliseconds, then randomness (RFC 9562 5.7)."""
        random = int.from_bytes(os.urandom(_RANDOM_BYTES))
        value = (self._clock() & (1 << 48) - 1) << 80
        value |= _VERSION_7 << 76 | (random >> 62 & (1 << 12) - 1) << 64
        value |= _VARIANT << 62 | random & (1 << 62) - 1
        text = f"{value:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def call_id(self) -> str:
        """Return `call_` and 96 random bits."""
        return f"call_{os.urandom(12).hex()}"

    def approval_id(self) -> str:
        """Return `approval_` and 64 random bits."""
        return f"approval_{os.urandom(8).hex()}"

    def diagnostic_id(self) -> str:
        """Return 32 random bits in hex, short enough to read aloud."""
        return os.urandom(4).hex()

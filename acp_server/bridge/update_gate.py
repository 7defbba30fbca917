"""The way of a session's updates to the connection: in order, and held where they must wait.

A final tool status must not be seen before it is durable (stored-before-shown-or-done), and nothing
of a running turn may fall between the frames of a replay (load-during-turn-loses-nothing). Both are
waits of the gate, not of its callers.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class UpdateGate:
    """Sends frames, or keeps them back in order."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._held: deque[tuple[int, bytes]] = deque()
        self._hold_seq = -1
        self._replaying = False

    def emit(self, frame: bytes) -> None:
        """Send a frame behind all earlier ones."""
        if self._hold_seq >= 0 or self._replaying:
            self._held.append((self._hold_seq, frame))
        else:
            self._send(frame)

    def hold_until_durable(self, seq: int) -> None:
        """Keep back what is emitted from now on until the event `seq` is durable."""
        self._hold_seq = seq

    def on_durable(self, length: int) -> None:
        """Let go what waited for events below `length`."""
        if self._hold_seq < length:
            self._hold_seq = -1
        self._release(length)

    def release(self) -> None:
        """Let everything go: the store failed, and an error response is about to say so."""
        self._hold_seq = -1
        self._release(None)

    def begin_replay(self) -> None:
        """Keep back the frames of a running turn until `end_replay`."""
        self._replaying = True

    def end_replay(self, durable_length: int) -> None:
        """Let go what the replay kept back, as far as it is durable."""
        self._replaying = False
        self._release(durable_length)

    def _release(self, length: int | None) -> None:
        if self._replaying:
            return
        held = self._held
        while held and (length is None or held[0][0] < length):
            self._send(held.popleft()[1])

"""Cut a byte stream into frames. No I/O: bytes go in, complete lines come out.

A frame is one line of the ACP stdio transport: UTF-8 JSON ended by LF, and by LF alone. Other line
ends of Unicode (U+2028, U+0085, ...) are text inside a frame, which is why nothing here decodes.
This module knows neither JSON nor descriptors.
"""

from typing import Final, NamedTuple

DEFAULT_MAX_FRAME_BYTES: Final = 64 * 1024 * 1024
"""Largest frame accepted: above what any known client sends, below what harms a small machine."""

_BOM: Final = b"\xef\xbb\xbf"


class OversizeFrame(NamedTuple):
    """Stands for one line that was longer than `limit_bytes`; its bytes are gone."""

    limit_bytes: int


class Framer:
    """Sans-IO splitter of a byte stream into frames.

    However the stream is cut into pieces, the frames are the same. At most one frame's bytes are
    held, and each byte is looked at once.

    Args:
        max_frame_bytes: Largest frame, counted without its line end.
    """

    __slots__ = ("_limit", "_partial", "_skipping", "_started")

    def __init__(self, max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES) -> None:
        self._limit = max_frame_bytes
        self._partial = bytearray()
        self._skipping = False
        self._started = False

    def feed(self, data: bytes) -> list[bytes | OversizeFrame]:
        """Take the next bytes and return the frames that they complete.

        Frames come without LF and without the CR before it. Blank lines are dropped, and so is a
        byte order mark at the very start. A line beyond the limit yields one `OversizeFrame` as
        soon as that is certain, and the rest of it is skipped.
        """
        frames: list[bytes | OversizeFrame] = []
        first, *others = data.split(b"\n")
        if not others:
            self._grow(first, frames)
            return frames
        last = others.pop()
        if self._partial or self._skipping or not self._started:
            self._grow(first, frames)
            self._end_line(frames)
        else:
            others.insert(0, first)
        for line in others:
            self._emit(line, frames)
        self._grow(last, frames)
        return frames

    def finish(self) -> list[bytes | OversizeFrame]:
        """Return the last frame, if the stream ended without an LF behind it."""
        frames: list[bytes | OversizeFrame] = []
        if self._partial:
            self._end_line(frames)
        return frames

    def _grow(self, piece: bytes, frames: list[bytes | OversizeFrame]) -> None:
        if self._skipping or not piece:
            return
        self._partial += piece
        # A CR may still turn out to belong to the line end, and a BOM at the start does not count.
        slack = 1 if self._started else 1 + len(_BOM)
        if len(self._partial) > self._limit + slack:
            frames.append(OversizeFrame(self._limit))
            self._partial = bytearray()
            self._skipping = True

    def _end_line(self, frames: list[bytes | OversizeFrame]) -> None:
        line = bytes(self._partial)
        self._partial = bytearray()
        if not self._started:
            self._started = True
            line = line.removeprefix(_BOM)
        if self._skipping:
            self._skipping = False
            return
        self._emit(line, frames)

    def _emit(self, line: bytes, frames: list[bytes | OversizeFrame]) -> None:
        if line.endswith(b"\r"):
            line = line[:-1]
        if len(line) > self._limit:
            frames.append(OversizeFrame(self._limit))
        elif line and not line.isspace():
            frames.append(line)

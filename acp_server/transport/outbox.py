"""The queue between those who send frames and the one task that writes them.

`put` is the hottest call of the server (one per streamed token) and therefore only appends. The
writer takes all that is there at once, so frames that are ready together leave in one write. This
module counts bytes and knows nothing of descriptors or of what a frame says.
"""

from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import anyio
from anyio.lowlevel import checkpoint

MIB: Final = 1024 * 1024

CONGESTED_BYTES: Final = 8 * MIB
"""Above this many unwritten bytes producers of updates wait (producers-wait-for-readers)."""

ROOM_BYTES: Final = 4 * MIB
"""Congestion ends here: half of the mark, so that producers are not woken for every write."""

OVERLOADED_BYTES: Final = 64 * MIB
"""Above this many unwritten bytes the read loop pauses (producers-wait-for-readers)."""

RELIEVED_BYTES: Final = 48 * MIB
"""Reading goes on here; below the mark for the reason that `ROOM_BYTES` is."""

WRITE_BYTES: Final = 256 * 1024
"""One write's size: a few pipe buffers; larger ones only copy more before the first byte leaves."""

_READY_BYTES: Final = 16 * 1024
"""A batch of this size is worth a system call at once."""

_DENSE_PASSES: Final = 2
"""Loop passes in a row in which the batch grew, after which a stream is taken to be dense.

A batch that did not grow during one pass leaves at once, so a lone response is not held up.
"""

_DENSE_PAUSE_S: Final = 0.0005
"""How long a dense stream's batch grows before it leaves.

Writing costs about as much as twenty frames, and waiting loop pass by loop pass costs as much as
writing; nobody sees half a millisecond.
"""


class Outbox:
    """Unbounded by itself: it tells how full it is and leaves waiting to the producers.

    Closing is for good: what is queued is dropped, later frames are dropped, waiters return.
    """

    __slots__ = (
        "_attention",
        "_closed",
        "_congested",
        "_frames",
        "_overloaded",
        "_progress",
        "_size",
        "_wake",
        "_written",
    )

    def __init__(self) -> None:
        self._frames: list[bytes] = []
        self._size = 0
        self._written = 0
        self._closed = False
        self._congested = False
        self._overloaded = False
        # One flag for both rare states (writer asleep, box closed) keeps `put` to one test.
        self._attention = False
        self._wake = anyio.Event()
        self._progress: anyio.Event | None = None

    def put(self, frame: bytes) -> None:
        """Enqueue one frame, its LF included. Never blocks, never fails."""
        self._frames.append(frame)
        self._size += len(frame)
        if self._attention:
            self._attend()

    @property
    def closed(self) -> bool:
        """Whether frames are dropped because nobody can read them."""
        return self._closed

    @property
    def unwritten_bytes(self) -> int:
        """Bytes enqueued and not yet handed to the reader's side."""
        return self._size

    @property
    def congested(self) -> bool:
        """Whether producers of updates should wait for `room`."""
        self._congested = self._size > (ROOM_BYTES if self._congested else CONGESTED_BYTES)
        return self._congested

    @property
    def overloaded(self) -> bool:
        """Whether reading should pause until `relieved`."""
        self._overloaded = self._size > (RELIEVED_BYTES if self._overloaded else OVERLOADED_BYTES)
        return self._overloaded

    async def room(self) -> None:
        """Return as soon as the box is not congested, or is closed."""
        while self.congested:
            await self._next_progress()

    async def relieved(self) -> None:
        """Return as soon as the box is not overloaded, or is closed."""
        while self.overloaded:
            await self._next_progress()

    async def drained(self) -> None:
        """Return when all frames put before this call are written, or the box is closed."""
        target = self._written + self._size
        while self._written < target and not self._closed:
            await self._next_progress()

    def close(self) -> None:
        """Drop what is queued and what will come, and release every waiter."""
        self._closed = True
        self._attention = True
        self._attend()
        self._wake.set()
        self._made_progress()

    async def run(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        """Write frames in order until the box is closed.

        Args:
            write: Writes all of the bytes given; raises `OSError` when nobody reads any more,
                which closes the box.
        """
        try:
            while not self._closed:
                await self._wait_for_frames()
                await self._gather()
                frames, self._frames = self._frames, []
                for batch in _batches(frames):
                    await write(batch)
                    if self._closed:
                        return
                    self._size -= len(batch)
                    self._written += len(batch)
                    self._made_progress()
        except OSError:
            self.close()

    def _attend(self) -> None:
        if self._closed:
            self._frames = []
            self._size = 0
        else:
            self._attention = False
            self._wake.set()

    async def _wait_for_frames(self) -> None:
        if not self._frames and not self._closed:
            self._wake = anyio.Event()
            self._attention = True
            try:
                await self._wake.wait()
            finally:
                self._attention = self._closed

    async def _gather(self) -> None:
        count = 0
        for _ in range(_DENSE_PASSES):
            if len(self._frames) == count or self._size >= _READY_BYTES:
                return
            count = len(self._frames)
            await checkpoint()
        if len(self._frames) > count:
            await anyio.sleep(_DENSE_PAUSE_S)

    async def _next_progress(self) -> None:
        if self._progress is None:
            self._progress = anyio.Event()
        await self._progress.wait()

    def _made_progress(self) -> None:
        if self._progress is not None:
            self._progress.set()
            self._progress = None


def _batches(frames: list[bytes]) -> Iterator[bytes]:
    """Join frames into pieces of about `WRITE_BYTES`; a larger frame is a piece of its own."""
    start = size = 0
    for end, frame in enumerate(frames):
        if size and size + len(frame) > WRITE_BYTES:
            yield b"".join(frames[start:end])
            start, size = end, 0
        size += len(frame)
    if size:
        yield b"".join(frames[start:])

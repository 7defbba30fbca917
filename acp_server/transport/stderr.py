"""A standard error that never blocks who writes to it, though nobody may read it.

Descriptor 2 becomes a pipe of our own, whose other end a thread always empties, so that neither a
print of an agent nor a child process nor a log record waits. A second thread writes to what was
stderr and may block there. Two threads and not a descriptor that does not block: `O_NONBLOCK`
would be set for everybody who shares that open file, the client included.

Rule: stderr-never-blocks.
"""

import atexit
import contextlib
import fcntl
import os
import select
import stat
import sys
import threading
from typing import Final

_STDOUT: Final = 1
_STDERR: Final = 2
_FIRST_FREE: Final = 3

_HELD_BYTES: Final = 4 * 1024 * 1024
"""Kept for a slow reader; what comes above this is dropped."""

_PIPE_BYTES: Final = 1024 * 1024
"""Above the size of the pipe, so that one read takes all that is in it."""

_FLUSH_S: Final = 0.5
"""At the exit, how long what was written may take to leave."""


def unblock_stderr() -> None:
    """Put ourselves between descriptor 2 and what it was, until the exit.

    A regular file stays as it is, for nobody has to read it. Call it once, in the life of the
    process, while descriptor 2 is open.
    """
    if not stat.S_ISREG(os.fstat(_STDERR).st_mode):
        relay = _Relay()
        atexit.register(relay.close)


class _Relay:
    def __init__(self) -> None:
        self._target = fcntl.fcntl(_STDERR, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE)
        self._source, end = os.pipe()
        os.set_blocking(self._source, False)
        os.dup2(end, _STDERR)
        os.close(end)
        self._held = bytearray()
        self._dropped = 0
        self._writing = False
        self._changed = threading.Condition()
        for run in (self._collect, self._write):
            threading.Thread(target=run, name=f"stderr {run.__name__}", daemon=True).start()

    def close(self) -> None:
        """Write what is left, and let descriptors 1 and 2 be what they were.

        If nobody reads, they become /dev/null.
        """
        for stream in (sys.stdout, sys.stderr):
            # None, closed, or whatever an agent has put in its place.
            with contextlib.suppress(Exception):
                stream.flush()
        self._take()
        with self._changed:
            written = self._changed.wait_for(self._is_idle, _FLUSH_S)
        last = self._target if written else os.open(os.devnull, os.O_WRONLY)
        os.dup2(last, _STDERR)
        os.dup2(last, _STDOUT)

    def _is_idle(self) -> bool:
        return not self._held and not self._writing

    def _collect(self) -> None:
        poll = select.poll()
        poll.register(self._source, select.POLLIN)
        while poll.poll() and self._take():
            pass

    def _take(self) -> bool:
        """Take what is in the pipe; return whether it has writers left."""
        with self._changed:
            try:
                data = os.read(self._source, _PIPE_BYTES)
            except BlockingIOError:
                return True
            if len(self._held) + len(data) > _HELD_BYTES:
                self._dropped += len(data)
            else:
                if self._dropped:
                    self._held += b"\n[%d bytes that nobody read were dropped]\n" % self._dropped
                    self._dropped = 0
                self._held += data
            self._changed.notify_all()
            return data != b""

    def _write(self) -> None:
        while True:
            with self._changed:
                self._writing = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._held)
                data, self._held = self._held, bytearray()
                self._writing = True
            rest = memoryview(data)
            # Whoever read it is gone: so is what was written.
            with contextlib.suppress(OSError):
                while rest:
                    rest = rest[os.write(self._target, rest) :]

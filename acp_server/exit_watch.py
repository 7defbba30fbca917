"""Ends the process in time, whatever its event loop, its threads and its agents do.

A thread of its own sees the end of input and the signals, since a blocked event loop sees neither.
It gives the loop the time to end in order, and then ends the process. Only code that never lets go
of the interpreter's lock (a regular expression in C that runs for ever) can stop it.

Rule: exit-needs-no-event-loop.
"""

import contextlib
import fcntl
import os
import select
import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn, Self

import anyio

EXIT_LIMIT_S: Final = 4.5
"""From the order to stop to the end of the process, at the most; clients kill after 5 s."""

_NO_SIGNAL: Final = 0

_EXIT_CODES: Final = {
    _NO_SIGNAL: 0,
    signal.SIGTERM: 0,
    signal.SIGHUP: 0,
    # What a shell reports of a program that SIGINT ended.
    signal.SIGINT: 128 + signal.SIGINT,
}

_INPUT_ENDED: Final = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)
"""What `poll` says of a pipe, socket or terminal whose other side is gone, read or unread.

Never POLLIN, which would be said of each frame. Files and devices have no such event; nor have the
sockets of macOS. There the reader's word counts, see `begin`.
"""


class ExitWatch:
    """Waits for the order to stop, and from then on limits the life of the process.

    The signals SIGTERM, SIGINT and SIGHUP belong to it until the process ends.
    """

    def __init__(self, input_fd: int) -> None:
        # A copy stays the same open file after the transport has closed its own.
        self._input_fd = fcntl.fcntl(input_fd, fcntl.F_DUPFD_CLOEXEC, 3)
        self._orders, self._order = os.pipe()
        self._signaled, self._tell = os.pipe()
        self._exit_code = 0

    @classmethod
    def start(cls, input_fd: int) -> Self:
        """Watch from now on. Call it in the main thread, once in the life of the process.

        Args:
            input_fd: Where the client's frames come from; nothing is read from it.
        """
        watch = cls(input_fd)
        os.set_blocking(watch._order, False)
        # The descriptor is written to at once, the handler runs only when the main thread gets to
        # it; but the descriptor may be taken by an agent that handles signals in the event loop.
        signal.set_wakeup_fd(watch._order, warn_on_full_buffer=False)
        for number in _EXIT_CODES.keys() - {_NO_SIGNAL}:
            signal.signal(number, watch._handle)
        os.register_at_fork(after_in_child=_leave_signals_alone)
        threading.Thread(target=watch._run, name="exit watch", daemon=True).start()
        return watch

    @property
    def exit_code(self) -> int:
        """What the process returns: 130 after SIGINT, else 0."""
        return self._exit_code

    def begin(self) -> None:
        """Limit the life of the process from now on: its end has begun in order. Idempotent."""
        self._write_order(_NO_SIGNAL)

    async def signaled(self) -> None:
        """Return when a signal has ordered the process to stop."""
        await anyio.wait_readable(self._signaled)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self._write_order(number)

    def _write_order(self, number: int) -> None:
        # The first order counts, so a full pipe has all that is needed.
        with contextlib.suppress(BlockingIOError):
            os.write(self._order, bytes([number]))

    def _run(self) -> NoReturn:
        number = self._wait_for_order()
        self._exit_code = _EXIT_CODES[number]
        if number != _NO_SIGNAL:
            os.write(self._tell, bytes([number]))
        threading.Event().wait(EXIT_LIMIT_S)
        _kill_children()
        os._exit(self._exit_code)

    def _wait_for_order(self) -> int:
        poll = select.poll()
        # First, so that a signal counts before the end of input that came with it.
        poll.register(self._orders, select.POLLIN)
        poll.register(self._input_fd, _INPUT_ENDED)
        while True:
            for fd, events in poll.poll():
                if fd == self._orders:
                    # Signals that others handle are written here too.
                    for number in os.read(fd, select.PIPE_BUF):
                        if number in _EXIT_CODES:
                            return number
                elif events & _INPUT_ENDED:
                    return _NO_SIGNAL
                else:
                    poll.unregister(fd)  # POLLNVAL: macOS does not poll devices.


def _leave_signals_alone() -> None:
    """Give a forked child the usual signals: its parent's pipe is not for it."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _kill_children() -> None:
    """Kill the children of this process, with their group where they lead one; Linux alone."""
    for listing in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for pid in map(int, listing.read_text().split()):
                with contextlib.suppress(ProcessLookupError):
                    (os.killpg if os.getpgid(pid) == pid else os.kill)(pid, signal.SIGKILL)

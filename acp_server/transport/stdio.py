"""The transport over the process's own stdin and stdout.

ACP v1 transports#stdio: the agent MUST NOT write anything to stdout that is not a message. So the
wire becomes private: after `StdioTransport.open` descriptor 0 is /dev/null and descriptor 1 is
stderr, and neither a print nor a child process can touch the frames. Nor can stderr block them.
"""

import fcntl
import os
import signal
import sys
import threading
from typing import Final, Self

from acp_server.transport.descriptors import DescriptorStream
from acp_server.transport.framing import DEFAULT_MAX_FRAME_BYTES
from acp_server.transport.stderr import unblock_stderr
from acp_server.transport.stream import StreamTransport

_STDIN: Final = 0
_STDOUT: Final = 1
_STDERR: Final = 2
_FIRST_FREE: Final = 3
"""Private copies stay above the standard three: as descriptor 2 the wire would get all errors."""


class StdioTransport(StreamTransport):
    """Frames over what were stdin and stdout when it was opened.

    Attributes:
        input_fd: Where the client's frames come from; only to be watched by others.
    """

    def __init__(
        self, input_fd: int, output_fd: int, *, max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES
    ) -> None:
        super().__init__(DescriptorStream(input_fd, output_fd), max_frame_bytes=max_frame_bytes)
        self.input_fd = input_fd

    @classmethod
    def open(cls, *, max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES) -> Self:
        """Take stdin and stdout for the frames, for the rest of the process's life.

        `aclose` gives `O_NONBLOCK` back to whoever shares the descriptors, but not the descriptors:
        what is printed until the very end goes to stderr. Call it once and first of all, before
        the event loop runs. What was printed before goes to stderr too if it is still buffered;
        what was flushed is on the wire.
        """
        _ignore_sigpipe()
        null_fd = os.open(os.devnull, os.O_RDWR)
        # Python leaves these None when the descriptor was closed at the start; then its number may
        # belong to anything by now, the event loop's own descriptor included, and is left alone.
        has_stdin, has_stdout = sys.__stdin__ is not None, sys.__stdout__ is not None
        input_fd = _private_copy(_STDIN if has_stdin else null_fd)
        output_fd = _private_copy(_STDOUT if has_stdout else null_fd)
        has_stderr = sys.__stderr__ is not None
        if has_stderr:
            unblock_stderr()
        if has_stdin:
            os.dup2(null_fd, _STDIN)
        if has_stdout:
            os.dup2(_STDERR if has_stderr else null_fd, _STDOUT)
        os.close(null_fd)
        return cls(input_fd, output_fd, max_frame_bytes=max_frame_bytes)


def _private_copy(fd: int) -> int:
    """Copy a descriptor for this process alone: no child inherits it."""
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE)


def _ignore_sigpipe() -> None:
    """A client that goes away must be an error of a write, not the end of the process.

    Python starts with SIGPIPE ignored; a host program may have put the default back.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)

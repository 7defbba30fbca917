"""Handlers' parts that keep the diagnostic log private (diagnostics-hide-secrets)."""

from __future__ import annotations

import logging
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from io import TextIOWrapper


class RedactingFormatter(logging.Formatter):
    """Takes secrets out of whole entries: of the message, the traceback and the stack."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the entry, redacted."""
        from acp_server.turns.redaction import redact  # noqa: PLC0415 - not at the server's start

        return redact(super().format(record))


class PrivateFileHandler(logging.FileHandler):
    """Logs to a file that its owner alone can read, whatever the umask and its former mode."""

    def _open(self) -> TextIOWrapper:
        file = open(  # noqa: SIM115 - with an opener; the handler closes it
            self.baseFilename,
            self.mode,
            encoding=self.encoding,
            errors=self.errors,
            opener=_open_private,
        )
        return cast("TextIOWrapper", file)


def _open_private(path: str, flags: int) -> int:
    descriptor = os.open(path, flags, 0o600)
    # A file that is there already keeps its mode otherwise. A device or a pipe is not ours.
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        with suppress(PermissionError):  # somebody else's file, which we may write
            os.fchmod(descriptor, 0o600)
    return descriptor

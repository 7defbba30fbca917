"""Exceptions that nobody expected: the whole story into the log, a bland word to the client."""

import logging
import os
from collections.abc import Callable

from acp_server.rpc.errors import RpcError

logger = logging.getLogger(__name__)


def random_diagnostic_id() -> str:
    """Return a short name for one entry of the log, unlikely to occur twice in a log."""
    return os.urandom(4).hex()


class FailureLog:
    """Records failures under entry names that the client is told, so that both can be matched.

    Args:
        new_entry: Source of entry names.
    """

    def __init__(self, new_entry: Callable[[], str] = random_diagnostic_id) -> None:
        self._new_entry = new_entry

    def record(self, doing: str, error: BaseException) -> RpcError:
        """Log an exception with its traceback; return the error that the client may see."""
        entry = self._new_entry()
        logger.error("log entry %s: %s failed", entry, doing, exc_info=error)
        return RpcError.unexpected(entry)

"""What all commands share: the program's name, its usage errors, the default store."""

from __future__ import annotations

PROGRAM = "acp-server"
USAGE_ERROR = 2


class UsageError(Exception):
    """A command line that cannot be carried out; the message says why."""


def default_store() -> str:
    """Return where sessions are kept unless the command line says otherwise.

    Rule: each-agent-has-own-store.
    """
    import platformdirs  # noqa: PLC0415 - only without --store

    return f"jsonl:{platformdirs.user_data_dir('acp-session-server', appauthor=False)}"

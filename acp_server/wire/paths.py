"""The rule for paths that a client sends."""

from acp_server.wire.errors import WireError


def require_absolute_path(path: str, name: str = "cwd") -> str:
    r"""Return `path` if it is an absolute POSIX path.

    ACP v1 session-setup: the working directory MUST be an absolute path. `~`, `C:\x` and `\\?\C:\x`
    are relative names on POSIX and would make an oddly named folder, so they are refused as such.

    Args:
        path: The path as sent.
        name: The field, for the message.

    Raises:
        WireError: If the path is relative, or holds a NUL, which no POSIX path can.
    """
    reason = path_fault(path)
    if reason is not None:
        msg = f"`{name}` {reason}"
        raise WireError(msg)
    return path


def path_fault(path: str) -> str | None:
    """Say what keeps `path` from being an absolute POSIX path, or None."""
    if not path.startswith("/"):
        return f"must be an absolute path, not {path[:200]!r}"
    if "\0" in path:
        return "must not contain a NUL character"
    return None

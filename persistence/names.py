"""A session id as the name of a file or directory (ids-are-encoded-injectively)."""

from __future__ import annotations

import re

from persistence.errors import InvalidSessionIdError

MAX_NAME = 255  # what every file system in use allows for one name

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


def encode_id(session_id: str) -> str:
    """Return the name of a session id, injective over UTF-16 code units.

    Raises:
        InvalidSessionIdError: The id is empty, or its name longer than file systems allow.
    """
    if not session_id:
        raise InvalidSessionIdError(session_id, "it is empty")
    encoded = escape_unsafe(session_id)
    if encoded in {".", ".."}:
        encoded = encoded.replace(".", "~002E")
    if len(encoded) > MAX_NAME:
        raise InvalidSessionIdError(session_id, f"its name exceeds {MAX_NAME} characters")
    return encoded


def escape_unsafe(text: str) -> str:
    """Return a text with every character that a file name might not take as `~XXXX`."""
    return _UNSAFE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    units = match.group().encode("utf-16-be", "surrogatepass")
    return "".join(f"~{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2))

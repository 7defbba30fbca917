"""Takes secrets out of failure text before it is stored or shown (failure-text-hides-secrets).

For text that strangers wrote about a failure: providers, MCP servers, hooks; and for diagnostics
(diagnostics-hide-secrets). What users, models and tools say is never altered.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_MASK: Final = "[redacted]"

_MIN_SECRET_CHARS: Final = 6
"""Shorter values are no secrets, and to mask each `1` would make the text unreadable."""

_SECRET_NAME: Final = re.compile(
    r"(?:^|[_\W]|(?<=[a-z]))(?:api)?(?:key|token|secret|password|passwd|passphrase)s?(?:$|[_\W\d])",
    re.IGNORECASE,
)

_PATTERNS: Final = (
    # A header's name, its mark, and all of its value up to the end of the line or of the quote.
    re.compile(
        r"""((?:proxy-)?authorization|x-api-key|api-key)(["']?\s*[:=]\s*["']?)[^"'\r\n,}]+""", re.I
    ),
    re.compile(r"\b(bearer)(\s+)[\w.~+/=-]+", re.I),
    re.compile(r"\b([a-z][a-z0-9+.-]*)(://)[^/\s@]+@", re.I),
    re.compile(r"\b(sk)(-)[\w-]{6,}"),
)


def redact(text: str, values: Mapping[str, str] | None = None) -> str:
    """Return `text` without what looks like a secret, or is known to be one.

    Args:
        text: One failure's text.
        values: Where secrets are kept by name; the environment by default.
    """
    known = os.environ if values is None else values
    secrets = {
        value
        for name, value in known.items()
        if len(value) >= _MIN_SECRET_CHARS and _SECRET_NAME.search(name)
    }
    # A traceback shows the `repr` of a value, where line ends, quotes and the like are escaped.
    secrets |= {repr(value)[1:-1] for value in secrets}
    # The longest first: one secret may be part of another.
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, _MASK)
    for pattern in _PATTERNS:
        text = pattern.sub(_replacement, text)
    return text


def redact_json(value: Any) -> Any:
    """Return a JSON value with all its texts redacted; names of members stay."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [redact_json(item) for item in value]
    if isinstance(value, dict):
        return {name: redact_json(item) for name, item in value.items()}
    return value


def _replacement(found: re.Match[str]) -> str:
    tail = "@" if found[2] == "://" else ""
    return f"{found[1]}{found[2]}{_MASK}{tail}"

"""Small readings of JSON that more than one module of this room needs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson


def object_or_none(text: str) -> dict[str, Any] | None:
    """Return the JSON object in `text`, `{}` for an empty one, else None: for `rawInput` (Z26)."""
    try:
        value = orjson.loads(text or b"{}")
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def iso_time(time_ms: int) -> str:
    """Return epoch milliseconds as ISO 8601 in UTC."""
    stamp = datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return stamp.replace("+00:00", "Z")

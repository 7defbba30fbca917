"""Pure checks of one JSON value: strict reading, forbidden nulls, exact equality."""

import json
import re
from collections.abc import Iterator
from typing import Any

import orjson

# Null is legal where the schema needs it, and the rule does not reach into values of others
# (frames-hold-no-null).
_MAY_BE_NULL = frozenset({"oldText", "id", "requestId"})
_LONG_INTEGER = re.compile(rb"\d{19}")
_NOT_LOOKED_INTO = frozenset({"rawInput", "rawOutput", "_meta"})


def read_strict(line: bytes) -> Any:
    """Parse one line as strict UTF-8 JSON; NaN, infinities and lone surrogates are refused.

    Raises:
        ValueError: If it is not.
    """
    value = orjson.loads(line)
    # orjson judges, the standard library reads: integers of any size stay integers
    # (lone-surrogates-are-replaced).
    return json.loads(line) if _LONG_INTEGER.search(line) else value


def find_null(value: Any, path: str = "") -> str | None:
    """Return the path of the first null that a frame must not carry, or None."""
    return next(_nulls(value, path), None)


def _nulls(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            if item is None and key not in _MAY_BE_NULL and key not in _NOT_LOOKED_INTO:
                yield f"{path}.{key}"
            elif key not in _NOT_LOOKED_INTO:
                yield from _nulls(item, f"{path}.{key}")
    elif isinstance(value, list):
        for position, item in enumerate(value):
            if item is None:
                yield f"{path}[{position}]"
            yield from _nulls(item, f"{path}[{position}]")


def difference(left: Any, right: Any, path: str = "") -> str | None:
    """Say where two JSON values first differ; `true` is not 1, but 1.0 is 1."""
    if isinstance(left, dict) and isinstance(right, dict):
        if left.keys() != right.keys():
            keys = sorted(left.keys() ^ right.keys())
            return f"{path or 'object'} differs in the keys {keys}"
        pairs = [(left[key], right[key], f"{path}.{key}") for key in left]
    elif isinstance(left, list) and isinstance(right, list):
        if len(left) != len(right):
            return f"{path} has {len(left)} items, not {len(right)}"
        pairs = [
            (one, other, f"{path}[{position}]")
            for position, (one, other) in enumerate(zip(left, right, strict=True))
        ]
    elif isinstance(left, bool) is isinstance(right, bool) and left == right:
        return None
    else:
        return f"{path or 'value'} is {left!r:.80}, not {right!r:.80}"
    return next((found for pair in pairs if (found := difference(*pair))), None)

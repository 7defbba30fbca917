"""JSON at the edge of the connection: bytes to values and back, with its odd inputs.

Rules: lone-surrogates-are-replaced, unsafe-integers-are-refused,
numbers-beyond-doubles-are-refused.

orjson does the work. What it refuses although JSON allows it (lone surrogates, numbers beyond a
double), and what it would change silently (integers beyond 64 bits become floats), goes through the
standard library once more. This module knows nothing of requests and responses.
"""

import json
import math
import re
from typing import Any, Final

import orjson

from acp_server.rpc.scan import is_deeper

MAX_DEPTH: Final = 1024
"""Deepest nesting accepted: what orjson reads too, so both ways in have one limit."""

MAX_SAFE_INTEGER: Final = 2**53
"""Beyond this an integer does not survive a client that keeps numbers as doubles."""

_MAX_PLAIN_FLOAT: Final = float(2**63)
"""orjson turns an integer into a float only above 64 bits; smaller floats were floats before."""

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_REPLACEMENT: Final = "\ufffd"


class ParseError(ValueError):
    """The bytes are not JSON that is accepted here. Says no more: they are a stranger's."""

    def __init__(self) -> None:
        super().__init__("not acceptable JSON")


def parse_frame(frame: bytes) -> Any:
    """Read one JSON text.

    Lone surrogates become U+FFFD and integers keep all of their digits. A number beyond the range
    of a double becomes an infinity, for `has_unsafe_number` to find.

    Raises:
        ParseError: For anything else that JSON, UTF-8 or the depth limit rules out, NaN and
            `Infinity` included.
    """
    try:
        value = orjson.loads(frame)
    except ValueError:
        return _parse_carefully(frame)
    return _parse_carefully(frame) if _reaches(value, float, _MAX_PLAIN_FLOAT) else value


def has_unsafe_number(value: Any) -> bool:
    """Whether an integer beyond ±2^53 or a number beyond a double is anywhere inside `value`."""
    return _reaches(value, int, MAX_SAFE_INTEGER + 1) or is_beyond_doubles(value)


def is_beyond_doubles(value: Any) -> bool:
    """Whether a number beyond the range of a double is anywhere inside `value`."""
    return _reaches(value, float, math.inf)


def encode_value(value: Any) -> bytes:
    """Write one JSON text without line ends.

    What must not reach the wire is made harmless: lone surrogates become U+FFFD, non-finite numbers
    null. Integers of any size are kept.

    Raises:
        TypeError: For what is no JSON value.
        ValueError: For what is nested too deeply or contains itself.
    """
    try:
        return orjson.dumps(value)
    except TypeError:
        return _encode_carefully(value)


def _parse_carefully(frame: bytes) -> Any:
    if is_deeper(frame, MAX_DEPTH):
        raise ParseError
    try:
        # The decoding is ours because the library's lets encoded surrogates pass.
        value = json.loads(
            frame.decode(), parse_constant=_refuse_constant, parse_int=_parse_integer
        )
    except (ValueError, RecursionError) as error:
        raise ParseError from error
    return _replace_surrogates(value)


def _refuse_constant(text: str) -> Any:
    raise ParseError


def _parse_integer(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        # More digits than the interpreter converts, since that takes the square of their number.
        return float(text)


def _reaches(value: Any, kind: type[int | float], limit: float) -> bool:
    """Whether a number of this very kind is ±`limit` or beyond, anywhere in a parsed value.

    Without recursion, since the value may be deep; it is run over every frame, so it is plain.
    """
    containers: list[Any] = [[value]]
    for container in containers:
        for item in container.values() if type(container) is dict else container:
            found = type(item)
            if found is kind:
                if not -limit < item < limit:
                    return True
            elif found is dict or found is list:
                containers.append(item)
    return False


def _replace_surrogates(value: Any) -> Any:
    """Clean a freshly parsed value in place; without recursion, since it may be deep."""
    root = [value]
    containers: list[Any] = [root]
    for container in containers:
        if type(container) is dict:
            _replace_in_keys(container)
            items = list(container.items())
        else:
            items = list(enumerate(container))
        for key, item in items:
            if type(item) is str:
                container[key] = _cleaned(item)
            elif type(item) is dict or type(item) is list:
                containers.append(item)
    return root[0]


def _replace_in_keys(value: dict[str, Any]) -> None:
    if any(_SURROGATE.search(key) for key in value):
        items = [(_cleaned(key), item) for key, item in value.items()]
        value.clear()
        value.update(items)


def _cleaned(text: str) -> str:
    return _SURROGATE.sub(_REPLACEMENT, text)


def _encode_carefully(value: Any) -> bytes:
    try:
        text = json.dumps(
            _harmless(value), ensure_ascii=False, allow_nan=False, separators=(",", ":")
        )
    except RecursionError as error:
        message = "value is nested too deeply to be sent"
        raise ValueError(message) from error
    return text.encode()


def _harmless(value: Any) -> Any:
    if isinstance(value, str):
        return _cleaned(value)
    if isinstance(value, dict):
        return {_cleaned(key): _harmless(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_harmless(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value

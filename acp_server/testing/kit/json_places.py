"""Where the values of a JSON text stand: a fault in a scenario is named with its line.

The standard decoder throws positions away, so this walks the text itself; it is for small files
that people write.
"""

import json
import re
from typing import Any, TypeAlias

Path: TypeAlias = tuple[str | int, ...]
"""Keys and positions from the root to a value."""

_SPACE = re.compile(r"[ \t\n\r]*")


class JsonFault(ValueError):  # noqa: N818 - a fault of a file, named like ScenarioFault
    """A text that is no JSON.

    Attributes:
        line: 1-based line of the fault.
        reason: What is wrong.
    """

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line
        self.reason = reason


def read_with_places(text: str) -> tuple[Any, dict[Path, int]]:
    """Return the value of a JSON text and the 1-based line on which each value in it begins.

    Raises:
        JsonFault: It is no JSON, or an object has a key twice.
    """
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise JsonFault(error.lineno, error.msg) from error
    walk = _Walk(text)
    walk.value(0, ())
    return value, walk.lines


def line_of(lines: dict[Path, int], path: Path) -> int:
    """Return the line of a value, or of the nearest value around it that is there."""
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 1)


class _Walk:
    """Goes once through a text that is known to be JSON."""

    def __init__(self, text: str) -> None:
        self.lines: dict[Path, int] = {}
        self._text = text
        self._decoder = json.JSONDecoder()

    def value(self, at: int, path: Path) -> int:
        at = self._skip(at)
        self.lines[path] = self._line(at)
        match self._text[at]:
            case "{":
                return self._object(at + 1, path)
            case "[":
                return self._array(at + 1, path)
            case _:
                return self._scalar(at)[1]

    def _object(self, at: int, path: Path) -> int:
        at = self._skip(at)
        while self._text[at] != "}":
            key, end = self._scalar(at)
            if (*path, key) in self.lines:
                raise JsonFault(self._line(at), f"the key {key!r} is there twice")
            colon = self._skip(end)
            at = self._skip(self.value(colon + 1, (*path, key)))
            if self._text[at] == ",":
                at = self._skip(at + 1)
        return at + 1

    def _array(self, at: int, path: Path) -> int:
        at, position = self._skip(at), 0
        while self._text[at] != "]":
            at = self._skip(self.value(at, (*path, position)))
            position += 1
            if self._text[at] == ",":
                at = self._skip(at + 1)
        return at + 1

    def _scalar(self, at: int) -> tuple[Any, int]:
        return self._decoder.raw_decode(self._text, at)

    def _skip(self, at: int) -> int:
        match = _SPACE.match(self._text, at)
        return match.end() if match else at

    def _line(self, at: int) -> int:
        return self._text.count("\n", 0, at) + 1

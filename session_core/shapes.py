"""Small checks that payload shapes are put together from.

A check looks at one JSON value and answers `None`, or the problem it found. Knows nothing of
events.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from session_core.json_value import FrozenDict, FrozenList


class Problem(NamedTuple):
    """What is wrong: the field, as a dotted path from the value, and what belongs there."""

    field: str
    expected: str

    def inside(self, key: str) -> "Problem":
        """Return this problem as seen from the object that holds the value under `key`."""
        return Problem(f"{key}.{self.field}" if self.field else key, self.expected)


Check: TypeAlias = Callable[[Any], Problem | None]


def anything(_value: Any) -> Problem | None:
    """Accept every JSON value."""
    return None


def text(value: Any) -> Problem | None:
    """Accept a string."""
    return None if type(value) is str else Problem("", "a string")


def filled_text(value: Any) -> Problem | None:
    """Accept a string that is not empty."""
    return None if type(value) is str and value else Problem("", "a string that is not empty")


def flag(value: Any) -> Problem | None:
    """Accept a boolean."""
    return None if type(value) is bool else Problem("", "a boolean")


def number(value: Any) -> Problem | None:
    """Accept an integer or a float, no boolean."""
    return None if type(value) in (int, float) else Problem("", "a number")


def whole(value: Any) -> Problem | None:
    """Accept an integer; neither `True` nor `1.0` is one."""
    return None if type(value) is int else Problem("", "an integer")


def at_least(minimum: int) -> Check:
    """Accept an integer from `minimum` up."""
    problem = Problem("", f"an integer from {minimum} up")

    def check(value: Any) -> Problem | None:
        return None if type(value) is int and value >= minimum else problem

    return check


def one_of(*values: str) -> Check:
    """Accept one of the given strings: a closed set."""
    problem = Problem("", "one of " + ", ".join(values))

    def check(value: Any) -> Problem | None:
        return None if type(value) is str and value in values else problem

    return check


def list_of(item: Check) -> Check:
    """Accept an array whose every element passes `item`."""

    def check(value: Any) -> Problem | None:
        if type(value) is not FrozenList:
            return Problem("", "an array")
        for index, element in enumerate(value):
            if problem := item(element):
                return problem.inside(str(index))
        return None

    return check


def fields(required: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    """Accept an object that has the given fields; others may stand beside them."""
    optional = optional or {}

    def check(value: Any) -> Problem | None:
        if type(value) is not FrozenDict:
            return Problem("", "an object")
        for key, field in required.items():
            if key not in value:
                return Problem(key, "present")
            if problem := field(value[key]):
                return problem.inside(key)
        for key, field in optional.items():
            if key in value and (problem := field(value[key])):
                return problem.inside(key)
        return None

    return check


def exactly(required: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    """Accept an object that has the given fields and no others."""
    inner = fields(required, optional)
    known = frozenset(required) | frozenset(optional or {})

    def check(value: Any) -> Problem | None:
        if problem := inner(value):
            return problem
        if extra := value.keys() - known:
            return Problem(min(extra), "absent: the type has no such field")
        return None

    return check


def tagged(tag: str, kinds: Mapping[str, Check]) -> Check:
    """Accept a member of an open sum: an object named by `tag`, checked if its name is known."""
    named = fields({tag: text})

    def check(value: Any) -> Problem | None:
        if problem := named(value):
            return problem
        known = kinds.get(value[tag])
        return known(value) if known else None

    return check


def both(first: Check, second: Check) -> Check:
    """Accept what passes both checks."""

    def check(value: Any) -> Problem | None:
        return first(value) or second(value)

    return check

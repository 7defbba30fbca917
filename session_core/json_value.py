"""The lossless JSON domain: what may enter a log, and the frozen form it has there.

Owns the check-and-copy (json-values-are-lossless) and the two frozen containers. Knows nothing of
events.

Accepted are `None`, `bool`, `int` within ±(2^53-1), finite `float` other than -0.0, `str` without
lone surrogates, exact `list`, exact `dict` with `str` keys, and `FrozenList` / `FrozenDict`. All
else is refused, subclasses included: an encoder would silently turn it into something different.
"""

import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, Final, Never, TypeAlias

from session_core.errors import NotJsonError

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"

MAX_SAFE_INT: Final = 2**53 - 1
"""The largest integer that every JSON reader keeps exactly."""


class _Invalid(Enum):
    INVALID = "INVALID"


INVALID: Final = _Invalid.INVALID
"""What `snapshot_json_value` answers for a value outside the domain."""


def _refuse(self: object, *_args: object, **_kwargs: object) -> Never:
    raise TypeError(f"{type(self).__name__} is immutable")


class FrozenDict(dict[str, Any]):
    """A deep-frozen JSON object: equal to the plain dict, encoded like it, never changed.

    Constructing one validates and copies all of `value`, so that an instance is always lossless
    JSON through and through, and may be shared freely.
    """

    __slots__ = ()

    def __new__(cls, value: Mapping[str, Any] | None = None) -> "FrozenDict":
        """Return `value` frozen, or itself if it is frozen already.

        Raises:
            NotJsonError: It is not a lossless JSON object.
        """
        frozen = freeze_json({} if value is None else value)
        if type(frozen) is not FrozenDict:
            raise NotJsonError("value", "not an object")
        return frozen

    def __init__(self, value: Mapping[str, Any] | None = None) -> None:
        # `__new__` has filled it; dict.__init__ would be a way to change it.
        pass

    def __copy__(self) -> "FrozenDict":
        return self

    def __deepcopy__(self, memo: object) -> "FrozenDict":
        return self

    def __reduce__(self) -> tuple[type["FrozenDict"], tuple[dict[str, Any]]]:
        return FrozenDict, (dict(self),)

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse


class FrozenList(list[Any]):
    """A deep-frozen JSON array: equal to the plain list, encoded like it, never changed."""

    __slots__ = ()

    def __new__(cls, value: Iterable[Any] = ()) -> "FrozenList":
        """Return `value` frozen, or itself if it is frozen already.

        Raises:
            NotJsonError: An item is not lossless JSON.
        """
        frozen = freeze_json(value if type(value) is FrozenList else list(value))
        assert type(frozen) is FrozenList  # noqa: S101 - a list freezes to nothing else
        return frozen

    def __init__(self, value: Iterable[Any] = ()) -> None:
        pass

    def __copy__(self) -> "FrozenList":
        return self

    def __deepcopy__(self, memo: object) -> "FrozenList":
        return self

    def __reduce__(self) -> tuple[type["FrozenList"], tuple[list[Any]]]:
        return FrozenList, (list(self),)

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse


# The only ways past the constructors above. Their users answer for the children being frozen.
_blank_dict: Callable[[type[FrozenDict]], FrozenDict] = dict.__new__
_blank_list: Callable[[type[FrozenList]], FrozenList] = list.__new__
_fill_dict: Callable[[FrozenDict, dict[str, Any]], None] = dict.update
_fill_list: Callable[[FrozenList, Iterable[Any]], None] = list.extend


def frozen_dict_of(fields: dict[str, Any]) -> FrozenDict:
    """Return `fields` frozen, trusting that its values already are frozen JSON."""
    frozen = _blank_dict(FrozenDict)
    _fill_dict(frozen, fields)
    return frozen


def frozen_list_of(items: Iterable[Any]) -> FrozenList:
    """Return `items` frozen, trusting that they already are frozen JSON."""
    frozen = _blank_list(FrozenList)
    _fill_list(frozen, items)
    return frozen


def is_well_formed_text(text: str) -> bool:
    """Return whether `text` has no lone surrogate, which UTF-8 cannot carry."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def clean_text(text: str) -> str:
    """Return `text` with each lone surrogate as U+FFFD, as is done where text comes in.

    Rule: lone-surrogates-are-replaced.
    """
    return text if is_well_formed_text(text) else _SURROGATE.sub("\ufffd", text)


def clean_json(value: Any) -> Any:
    """Return a JSON value with each of its strings clean, see `clean_text`."""
    if isinstance(value, str):
        # A subclass of str comes out as a str, which is what a log takes.
        return clean_text(str(value))
    if isinstance(value, dict):
        return {clean_json(key): clean_json(member) for key, member in value.items()}
    return [clean_json(item) for item in value] if isinstance(value, list) else value


_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def is_safe_int(value: object) -> bool:
    """Return whether `value` is an `int`, not a bool, that every JSON reader keeps exactly."""
    return type(value) is int and -MAX_SAFE_INT <= value <= MAX_SAFE_INT


def is_seq_int(value: object) -> bool:
    """Return whether `value` is a safe int and not negative."""
    return type(value) is int and 0 <= value <= MAX_SAFE_INT


def is_kept_float(value: float) -> bool:
    """Return whether every JSON reader keeps `value`: it is finite, and not -0.0."""
    return math.isfinite(value) and not (value == 0 and math.copysign(1, value) < 0)


def is_json_value(value: object) -> bool:
    """Return whether `value` is lossless JSON."""
    return snapshot_json_value(value) is not INVALID


def snapshot_json_value(value: object) -> Any:
    """Return a frozen, detached copy of `value`, or `INVALID` if it is not lossless JSON.

    Depth is not limited. Each child is read once, in the pass that also copies it.
    """
    try:
        return freeze_json(value)
    except NotJsonError:
        return INVALID


def freeze_json(value: object, *, what: str = "value", max_depth: int | None = None) -> Any:
    """Return a frozen, detached copy of `value`.

    Args:
        value: The candidate; parts that are frozen already are shared, not copied.
        what: How an error names the value.
        max_depth: How many containers may enclose a leaf; `None` for no limit.

    Raises:
        NotJsonError: `value` is outside the domain, or nested deeper than `max_depth`.
    """
    room = _UNLIMITED if max_depth is None else max_depth
    return _freeze(value, what, room, _RECURSED_LEVELS)


_UNLIMITED: Final = sys.maxsize

_RECURSED_LEVELS: Final = 50
"""How deep containers are copied by recursion, which is quicker than a stack of our own."""


def _freeze(value: Any, what: str, room: int, recursed: int) -> Any:
    """Return `value` frozen: at most `room` containers deep, `recursed` of them by recursion."""
    kind = type(value)
    if kind is dict or kind is list:
        if room == 0:
            raise NotJsonError(what, _TOO_DEEP)
        if recursed == 0:
            return _freeze_stacked(value, what, room)
        freeze = _freeze_dict if kind is dict else _freeze_list
        return freeze(value, what, room - 1, recursed - 1)
    if kind is FrozenDict or kind is FrozenList:
        _check_depth(value, what, room)
    else:
        _check_leaf(value, what)
    return value


_TOO_DEEP: Final = "it is nested too deep"


def _freeze_dict(value: dict[Any, Any], what: str, room: int, recursed: int) -> FrozenDict:
    # From here on only our copy is read, so that no child can say two different things.
    copy = value.copy()
    _check_keys(copy, what)
    for key, child in copy.items():
        if type(child) is not str or not child.isascii():
            copy[key] = _freeze(child, what, room, recursed)
    return frozen_dict_of(copy)


def _freeze_list(value: list[Any], what: str, room: int, recursed: int) -> FrozenList:
    copy = value.copy()
    for index, child in enumerate(copy):
        if type(child) is not str or not child.isascii():
            copy[index] = _freeze(child, what, room, recursed)
    return frozen_list_of(copy)


def _check_keys(fields: dict[Any, Any], what: str) -> None:
    for key in fields:
        if type(key) is not str or not (key.isascii() or is_well_formed_text(key)):
            raise NotJsonError(what, f"{key!r} is no key of a JSON object")


class _Draft:
    """A copy in the making of one container, and how far its children have been looked at."""

    __slots__ = ("children", "copy", "key", "source")

    def __init__(self, source: Any, what: str) -> None:
        self.source = source
        self.copy: Any = source.copy()
        self.key: Any = None
        self.children: Iterator[tuple[Any, Any]] = enumerate(self.copy)
        if type(source) is dict:
            _check_keys(self.copy, what)
            self.children = iter(self.copy.items())

    def next_container(self, what: str, room: int) -> Any:
        """Check the next children up to one that must be copied itself; return that one."""
        for key, child in self.children:
            if type(child) is dict or type(child) is list:
                self.key = key
                return child
            _freeze(child, what, room, 0)
        return None

    def frozen(self) -> Any:
        """Return the finished copy."""
        return (frozen_dict_of if type(self.source) is dict else frozen_list_of)(self.copy)


def _freeze_stacked(value: Any, what: str, room: int) -> Any:
    """Copy a container with a stack of our own, so that the call stack is no limit.

    A cycle that recursion went round ends here, so this is the place that looks for one.
    """
    draft = _Draft(value, what)
    parents: list[_Draft] = []
    enclosing = {id(value)}
    while True:
        inner = draft.next_container(what, room - len(parents) - 1)
        if inner is not None:
            if id(inner) in enclosing:
                raise NotJsonError(what, "it contains itself")
            if len(parents) + 1 == room:
                raise NotJsonError(what, _TOO_DEEP)
            enclosing.add(id(inner))
            parents.append(draft)
            draft = _Draft(inner, what)
            continue
        frozen = draft.frozen()
        if not parents:
            return frozen
        enclosing.discard(id(draft.source))
        draft = parents.pop()
        draft.copy[draft.key] = frozen


def _check_leaf(value: Any, what: str) -> None:
    kind = type(value)
    if kind is str:
        if not is_well_formed_text(value):
            raise NotJsonError(what, "a string has a lone surrogate")
    elif kind is int:
        if not -MAX_SAFE_INT <= value <= MAX_SAFE_INT:
            raise NotJsonError(what, f"{value} is beyond the safe integers")
    elif kind is float:
        if not is_kept_float(value):
            raise NotJsonError(what, f"{value!r} is not a JSON number that survives")
    elif kind is not bool and value is not None:
        raise NotJsonError(what, f"{kind.__module__}.{kind.__qualname__} is no JSON type")


def _check_depth(value: Any, what: str, room: int) -> None:
    """Refuse a frozen `value` that is more than `room` containers deep."""
    if room == _UNLIMITED:
        return
    level = [value]
    for _ in range(room):
        level = [
            child
            for parent in level
            for child in (parent.values() if type(parent) is FrozenDict else parent)
            if type(child) is FrozenDict or type(child) is FrozenList
        ]
        if not level:
            return
    raise NotJsonError(what, _TOO_DEEP)


def is_same_json(one: Any, other: Any) -> bool:
    """Return whether two JSON values are the same value: 1 equals 1.0, but never `True`."""
    pairs = [(one, other)]
    while pairs:
        left, right = pairs.pop()
        if isinstance(left, dict) and isinstance(right, dict):
            if left.keys() != right.keys():
                return False
            pairs.extend((child, right[key]) for key, child in left.items())
        elif isinstance(left, list) and isinstance(right, list):
            if len(left) != len(right):
                return False
            pairs.extend(zip(left, right, strict=True))
        elif isinstance(left, bool) is not isinstance(right, bool) or left != right:
            return False
    return True

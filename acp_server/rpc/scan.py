"""What can be told of a frame from its bytes, before it is parsed.

A parsed value takes up to forty times the memory of its bytes, so what is too deep or has too many
values must be known without parsing. All functions take any bytes; what they say of bytes that are
not JSON means nothing, since a parser refuses those.
"""

import re
from itertools import islice
from typing import Final

_PIECE_BYTES: Final = 1024 * 1024
"""Counted at a time: other threads run between two pieces."""

_TAIL_BYTES: Final = 4096
"""Where members behind a large one are looked for."""

# A string, closed or not. Possessive and with an end of its own for the string that never closes,
# so that hostile input costs one pass and no backtracking.
_STRING: Final = rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)'
_STRING_OR_BRACKET: Final = re.compile(_STRING + rb"|[\[\]{}]", re.DOTALL)

# One match for each value but the root: behind a comma, or the first of a container.
_STRING_OR_VALUE: Final = re.compile(_STRING + rb"|,|[\[{](?!\s*+[\]}])", re.DOTALL)

_MEMBER: Final = rb'\s*+"([^"\\]*+)"\s*+:\s*+("[^"\\]*+"|-?\d++|null)\s*+'
_FIRST_MEMBER: Final = re.compile(rb"\s*+\{")
_MEMBER_AND_COMMA: Final = re.compile(_MEMBER + rb",")
_MEMBER_AND_END: Final = re.compile(_MEMBER + rb"[,}]")
_NEXT_KEY: Final = re.compile(rb'\s*+"([^"\\]*+)"\s*+:')
_LAST_MEMBERS: Final = re.compile(rb",(?=(?:%b,)*+%b\}\s*+\Z)" % (_MEMBER, _MEMBER))


def is_deeper(frame: bytes, limit: int) -> bool:
    """Whether containers are nested more than `limit` deep."""
    depth = 0
    for match in _STRING_OR_BRACKET.finditer(frame):
        token = frame[match.start()]
        if token in b"[{":
            depth += 1
            if depth > limit:
                return True
        elif token in b"]}":
            depth -= 1
    return False


def has_more_values(frame: bytes, limit: int) -> bool:
    """Whether there are more than `limit` values, those inside of containers included."""
    if len(frame) <= limit or _marks(frame) < limit:
        return False
    found = (
        match for match in _STRING_OR_VALUE.finditer(frame) if frame[match.start()] not in b'"'
    )
    return next(islice(found, limit - 1, None), None) is not None


def outer_members(frame: bytes) -> dict[bytes, bytes]:
    """Return the members of an object that can be read without reading its large ones.

    These are the strings, integers, and nulls before the first other value and behind the last
    one, by key, undecoded; the key of that first value comes with an empty text. A text with an
    escape counts as large.
    """
    opening = _FIRST_MEMBER.match(frame)
    if opening is None:
        return {}
    members: dict[bytes, bytes] = {}
    place = opening.end()
    while member := _MEMBER_AND_COMMA.match(frame, place):
        members[member[1]] = member[2]
        place = member.end()
    if large := _NEXT_KEY.match(frame, place):
        members[large[1]] = b""
    tail = frame[max(place, len(frame) - _TAIL_BYTES) :]
    if last := _LAST_MEMBERS.search(tail):
        place = last.end()
        while member := _MEMBER_AND_END.match(tail, place):
            members[member[1]] = member[2]
            place = member.end()
    return members


def _marks(frame: bytes) -> int:
    """Count what stands at a value but the root, strings not left out: never too few."""
    return sum(
        frame.count(mark, start, start + _PIECE_BYTES)
        for start in range(0, len(frame), _PIECE_BYTES)
        for mark in b",[{"
    )

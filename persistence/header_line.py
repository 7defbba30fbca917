"""The first line of a log, `{"type":"session","version":0,…}`, and the header that it is.

The one place that tells a header of this format from everything else (header-is-immutable-record,
session-is-one-folder).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from persistence.errors import CorruptLogError, UnsupportedVersionError
from persistence.records import BadRecordError, encode_record, parse_json
from session_core import SESSION_FORMAT_VERSION, SessionCoreError, SessionHeader

if TYPE_CHECKING:
    from collections.abc import Mapping


def encode_header(header: SessionHeader) -> bytes:
    """Return the first line of a log; `delegationDepth` is always written.

    Rule: session-is-one-folder.
    """
    return encode_record({"type": "session", **with_depth(header).to_json()})


def decode_header(
    label: str, line: bytes, overrides: Mapping[str, Any] | None = None
) -> SessionHeader:
    """Return the header that a log's first line is.

    Args:
        label: How errors name the session.
        line: The line, without its LF.
        overrides: Fields to put in the place of the stored ones.

    Raises:
        CorruptLogError: The line is not a session header.
        UnsupportedVersionError: It names another format version.
    """
    try:
        value = parse_json(line)
    except BadRecordError as error:
        raise CorruptLogError(label, "the header line is not JSON", offset=0) from error
    if type(value) is not dict or value.pop("type", None) != "session":
        raise CorruptLogError(label, "the first line is not a session header", offset=0)
    return header_from_json(label, {**value, **(overrides or {})})


def header_from_json(label: str, value: dict[str, Any]) -> SessionHeader:
    """Return the header that a stored object is, its version looked at first.

    Raises:
        CorruptLogError: The object is not a session header.
        UnsupportedVersionError: It is of another format version.
    """
    version = value.get("version")
    if type(version) is not int or version != SESSION_FORMAT_VERSION:
        raise UnsupportedVersionError(label, version, SESSION_FORMAT_VERSION)
    try:
        return SessionHeader.from_json(value)
    except SessionCoreError as error:
        raise CorruptLogError(label, str(error), offset=0) from error


def with_depth(header: SessionHeader) -> SessionHeader:
    """Return a header as stores write it: an absent delegation depth is 0.

    Rule: session-is-one-folder.
    """
    return replace(header, delegation_depth=header.delegation_depth or 0)

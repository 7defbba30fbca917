"""The session header: what is said of a session once, when it is made.

Rule: header-is-immutable-record.
"""

from dataclasses import dataclass, field
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, Final, TypedDict

from session_core.errors import NotJsonError, SessionHeaderError
from session_core.events import SessionId
from session_core.json_value import FrozenDict, freeze_json, is_seq_int

SESSION_FORMAT_VERSION: Final = 0

_KEYS: Final = {
    "version": "version",
    "id": "id",
    "createdAt": "created_at",
    "cwd": "cwd",
    "parentSession": "parent_session",
    "seedLength": "seed_length",
    "delegationDepth": "delegation_depth",
}


class HeaderFields(TypedDict, total=False):
    """What the maker of a session may say of it: fields of `SessionHeader`."""

    cwd: str | None
    parent_session: SessionId | None
    seed_length: int | None
    delegation_depth: int | None


@dataclass(frozen=True, slots=True)
class SessionHeader:
    """Immutable facts about a session: id, birth (epoch milliseconds), folder and lineage.

    `seed_length` counts the events inherited by a fork. An absent `delegation_depth` means 0.
    `extra` keeps keys that this version does not know.

    Raises:
        SessionHeaderError: At construction, if a field is not valid (header-is-immutable-record).
    """

    id: SessionId
    created_at: int
    cwd: str | None = None
    parent_session: SessionId | None = None
    seed_length: int | None = None
    delegation_depth: int | None = None
    version: int = SESSION_FORMAT_VERSION
    extra: FrozenDict = field(default_factory=FrozenDict)

    def __post_init__(self) -> None:
        if type(self.version) is not int or self.version != SESSION_FORMAT_VERSION:
            raise SessionHeaderError("version", f"{SESSION_FORMAT_VERSION}, found {self.version!r}")
        if type(self.id) is not str or not self.id:
            raise SessionHeaderError("id", "a string that is not empty")
        if not is_seq_int(self.created_at):
            raise SessionHeaderError("createdAt", "an integer that is not negative")
        if self.cwd is not None and not _is_absolute(self.cwd):
            raise SessionHeaderError("cwd", "an absolute path")
        if self.parent_session is not None and type(self.parent_session) is not str:
            raise SessionHeaderError("parentSession", "a string")
        for key in ("seedLength", "delegationDepth"):
            count = getattr(self, _KEYS[key])
            if count is not None and not is_seq_int(count):
                raise SessionHeaderError(key, "an integer that is not negative")

    @classmethod
    def from_json(cls, value: Any) -> "SessionHeader":
        """Return the header that a stored object is.

        Raises:
            SessionHeaderError: It is not one, or one of another version.
        """
        try:
            stored = freeze_json(value)
        except NotJsonError as error:
            raise SessionHeaderError("header", "a JSON object") from error
        if type(stored) is not FrozenDict:
            raise SessionHeaderError("header", "a JSON object")
        for key in _KEYS:
            # An optional field that is unknown is absent; null is no value of any of them.
            if key in stored and stored[key] is None:
                raise SessionHeaderError(key, "absent rather than null")
        for key in ("version", "id", "createdAt"):
            if key not in stored:
                raise SessionHeaderError(key, "present")
        return cls(
            **{name: stored[key] for key, name in _KEYS.items() if key in stored},
            extra=FrozenDict({key: stored[key] for key in stored if key not in _KEYS}),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the stored form; absent fields are left out, unknown ones come last."""
        stored = {key: getattr(self, name) for key, name in _KEYS.items()}
        known = {key: value for key, value in stored.items() if value is not None}
        return {**known, **{k: v for k, v in self.extra.items() if k not in known}}


def _is_absolute(path: Any) -> bool:
    # A log may come from another platform than the one that reads it.
    return type(path) is str and (
        PurePosixPath(path).is_absolute() or PureWindowsPath(path).is_absolute()
    )

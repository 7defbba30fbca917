"""The request header: the part of a model request that is not history.

Rules: request-header-is-canonical, request-header-is-logged-on-change.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

from session_core.events import Event
from session_core.json_value import FrozenDict, is_same_json
from session_core.log import Events, EventView, events_of

HeaderReason = Literal["initial", "resume", "change"]

_OMITTED_WHEN_EMPTY: Final = ("system", "tools", "messagePrefix")


def canonical_header(header: Mapping[str, Any]) -> FrozenDict:
    """Return `header` frozen, without an empty `system`, `tools` or `messagePrefix`."""
    return FrozenDict(
        {key: value for key, value in header.items() if value or key not in _OMITTED_WHEN_EMPTY}
    )


def header_equals(one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> bool:
    """Return whether both headers stand for the same request: order of tools matters."""
    if one is None or other is None:
        return one is other
    return is_same_json(canonical_header(one), canonical_header(other))


def fold_request_header(events: Events, base: Mapping[str, Any] | None = None) -> FrozenDict | None:
    """Return the canonical header of the last `request/header` event, else `base`."""
    last: Mapping[str, Any] | None = base
    for event in events_of(events):
        if event.type == "request/header":
            last = event.data["header"]
    return None if last is None else canonical_header(last)


class RequestHeaderFold:
    """The same fold, kept up to date at the cost of the events that are new."""

    __slots__ = ("_folded", "_header")

    def __init__(self) -> None:
        self._folded = 0
        self._header: FrozenDict | None = None

    def header(self, events: EventView) -> FrozenDict | None:
        """Return the header after `events`, which extend those of the call before."""
        for record in events.records(self._folded):
            if isinstance(record, Event) and record.type == "request/header":
                self._header = canonical_header(record.data["header"])
        self._folded = len(events)
        return self._header


class RequestHeaderRecorder:
    """Decides when the log is to get a `request/header` event. One per runner instance."""

    __slots__ = ("_recorded",)

    def __init__(self) -> None:
        self._recorded = False

    def reason(
        self, header: Mapping[str, Any], folded: Mapping[str, Any] | None
    ) -> HeaderReason | None:
        """Return the reason to record `header` with, or `None` if the log already says it.

        Args:
            header: What the next request will use.
            folded: What the log says now, from `Session.request_header()`.
        """
        if not self._recorded:
            return "initial" if folded is None else "resume"
        return None if header_equals(header, folded) else "change"

    def note_recorded(self) -> None:
        """Note that the header was appended with the reason that was given."""
        self._recorded = True

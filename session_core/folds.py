"""Small folds over a log: what the last word on something is.

All take any events in log order; on a log or a view they walk records and never unpack a run.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from session_core.events import Event
from session_core.log import EventLog, Events, EventView, events_of

_TURN_BOUNDARIES = ("turn/start", "turn/end")


class GrantKey(NamedTuple):
    """What a standing permission is about: a tool, and the command or file it was given for."""

    tool_name: str
    key: str


def last_event_of(events: Events, types: Iterable[str]) -> Event | None:
    """Return the last event that has one of `types`."""
    if isinstance(events, EventLog | EventView):
        return events.last_of(types)
    wanted = frozenset(types)
    backwards = reversed(events) if isinstance(events, Sequence) else reversed(list(events))
    return next((event for event in backwards if event.type in wanted), None)


def current_title(events: Events) -> str | None:
    """Return the last title."""
    last = last_event_of(events, ("session/title",))
    return None if last is None else last.data["title"]


def open_turn(events: Events) -> int | None:
    """Return the number of the turn that is open, or `None`."""
    last = last_event_of(events, _TURN_BOUNDARIES)
    return last.data["turn"] if last is not None and last.type == "turn/start" else None


def is_turn_open(events: Events) -> bool:
    """Return whether the last turn boundary is a start."""
    return open_turn(events) is not None


def last_turn_number(events: Events) -> int:
    """Return the highest number that a turn boundary names, 0 if there is none."""
    numbers = (event.data["turn"] for event in events_of(events) if event.type in _TURN_BOUNDARIES)
    return max(numbers, default=0)


def current_grants(events: Events, seed_length: int | None = None) -> dict[GrantKey, str]:
    """Return the standing permissions, `allow` or `reject`, without what a fork inherited.

    Rule: grants-cover-their-key-only.
    """
    return {
        GrantKey(event.data["toolName"], event.data["key"]): event.data["effect"]
        for event in events_of(events)
        if event.type == "approval/grant" and event.seq >= (seed_length or 0)
    }


def find_last_message_turn_end(events: Events) -> Event | None:
    """Return the last `turn/end` of a turn that a message started.

    Rule: last-message-turn-skips-others.
    """
    started: set[int] = set()
    latest: Event | None = None
    for event in events_of(events):
        if event.type == "turn/start":
            if event.data["trigger"]["kind"] == "message":
                started.add(event.data["turn"])
        elif event.type == "turn/end" and event.data["turn"] in started:
            started.discard(event.data["turn"])
            latest = event
    return latest

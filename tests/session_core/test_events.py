"""The stored form of an event."""

import pytest

from session_core import Event, FrozenDict, Replace, event_from_json


@pytest.mark.rule("event-keys-have-one-order")
def test_keys_are_written_in_one_order_and_read_in_any() -> None:
    data = FrozenDict({"content": []})
    event = Event("user/message", 3, 50, data, (1, 2), Replace(1, 2))
    stored = event.to_json()
    assert list(stored) == ["type", "seq", "time", "data", "sourceEventSeqs", "surfaceOp"]
    assert stored["surfaceOp"] == {"op": "replace", "start": 1, "end": 2}
    backwards = dict(reversed(stored.items()))
    assert event_from_json(backwards).to_json() == stored

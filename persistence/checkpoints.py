"""Which events go to the disk at once and which wait for the write-behind window.

Rule: important-events-start-flush.

The checkpoints themselves, where the turn waits until its events are durable, are the turn's: it
flushes after `user/message`, before a model request from its second one on, before asking the
client, before a tool body, after each `tool/result` and at `turn/end`. What this policy decides is
only what a kill may take between two of them.
"""

from __future__ import annotations

# What a person has seen as settled, or what records an intent to act: a kill between two
# checkpoints must not take it. Text and progress may be lost up to the window.
_AT_ONCE = frozenset({"assistant/message", "todo/write"})
_AT_ONCE_FAMILIES = ("tool/", "approval/")


def starts_write_behind(event_type: str) -> bool:
    """Tell whether an event of this type starts the write-behind without waiting for the window.

    If a checkpoint follows before the next await it takes the event along, and the write-behind
    finds nothing left to do.
    """
    return event_type in _AT_ONCE or event_type.startswith(_AT_ONCE_FAMILIES)

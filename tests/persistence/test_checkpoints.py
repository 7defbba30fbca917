"""Which events reach the disk at once, and which wait."""

import pytest

from persistence.write_behind import starts_write_behind


@pytest.mark.rule("important-events-start-flush")
@pytest.mark.parametrize(
    ("event_type", "at_once"),
    [
        ("assistant/message", True),
        ("todo/write", True),
        ("tool/call", True),
        ("tool/card", True),
        ("tool/result", True),
        ("approval/asked", True),
        ("approval/decided", True),
        ("approval/grant", True),
        ("assistant/chunk", False),
        ("turn/start", False),
        ("user/message", False),
        ("step/end", False),
        ("session/title", False),
        ("toolbox/x", False),
        ("x/tool/", False),
    ],
)
def test_what_a_person_saw_settled_does_not_wait(event_type: str, *, at_once: bool) -> None:
    assert starts_write_behind(event_type) is at_once

from collections.abc import Callable

import pytest

from session_core import (
    Event,
    GrantKey,
    Session,
    current_grants,
    current_title,
    find_last_message_turn_end,
    is_turn_open,
    last_event_of,
    last_turn_number,
    open_turn,
)

Write = Callable[..., list[Event]]


@pytest.mark.rule("last-message-turn-skips-others")
def test_the_last_end_of_a_message_turn_is_found_past_other_turns(
    session: Session, write: Write
) -> None:
    assert find_last_message_turn_end(session.events) is None
    write(session, "turn", "/turn")
    end = session.events[1]
    write(session, "turn injection", "plugin note", "/turn", "turn session-title", "/turn")
    assert find_last_message_turn_end(session.events) == end
    write(session, "turn", "user open")
    assert find_last_message_turn_end(session.events) == end
    assert find_last_message_turn_end(session.events[1:]) is None
    write(session, "/turn aborted")
    assert find_last_message_turn_end(session.events) == session.events[-1]


@pytest.mark.rule("folds-read-last-event")
def test_the_last_word_counts(session: Session, write: Write) -> None:
    assert current_title(session.events) is None
    write(session, "turn")
    for title in ("first", "second"):
        source = {"kind": "fallback"}
        session.append("session/title", {"title": title, "messageSeqs": [], "source": source})
    for events in (session.events, session.events.prefix(), list(session.events)):
        assert current_title(events) == "second"


@pytest.mark.rule("folds-read-last-event")
def test_turns_are_read_off_their_boundaries(session: Session, write: Write) -> None:
    seen = []
    for word in ("turn", "user a", "/turn", "turn injection", "step", "delta a", "/step", "/turn"):
        write(session, word)
        seen.append((last_turn_number(session.events), open_turn(session.events)))
        assert is_turn_open(session.events) is (open_turn(session.events) is not None)
        assert open_turn(iter(session.events)) == open_turn(session.events)
    assert seen == [(1, 1), (1, 1), (1, None), *[(2, 2)] * 4, (2, None)]
    assert last_turn_number([]) == 0
    assert last_event_of(session.events, ("x/y",)) is None


def test_a_fork_inherits_no_standing_permission(session: Session, write: Write) -> None:
    write(session, "turn")

    def grant(key: str, effect: str) -> None:
        session.append("approval/grant", {"toolName": "shell", "key": key, "effect": effect})

    grant("ls", "allow")
    inherited = session.seq
    assert current_grants(session.events) == {GrantKey("shell", "ls"): "allow"}
    assert current_grants(session.events, inherited) == {}
    grant("ls", "reject")
    grant("rm", "allow")
    assert current_grants(session.events, inherited) == {
        GrantKey("shell", "ls"): "reject",
        GrantKey("shell", "rm"): "allow",
    }

from collections.abc import Callable
from typing import Any

import pytest

from session_core import Event, ForkError, Session, SessionId, SessionStore

Write = Callable[..., list[Event]]


def fork_code(fork: Callable[[], object]) -> str:
    with pytest.raises(ForkError) as info:
        fork()
    return info.value.code


@pytest.mark.rule("fork-ends-at-turn-end")
def test_an_empty_session_forks_into_an_empty_child(store: SessionStore, live: Session) -> None:
    child = store.fork(live)
    assert len(child.events) == 0
    assert child.header.seed_length == 0
    assert child.header.parent_session == "live"
    assert store.get(child.id) is child


@pytest.mark.rule("fork-refusals-have-typed-codes")
def test_a_boundary_is_an_event_of_the_log(
    store: SessionStore, live: Session, write: Write
) -> None:
    assert fork_code(lambda: store.fork(live, 0)) == "INVALID_BOUNDARY"
    write(live, "turn", "/turn")
    wrong: list[Any] = [-1, 1.5, 1.0, True, 2, 99, "1", 2**60]
    for boundary in wrong:
        assert fork_code(lambda b=boundary: store.fork(live, b)) == "INVALID_BOUNDARY"  # type: ignore[misc]
    assert store.list() == [live]


@pytest.mark.rule("fork-refusals-have-typed-codes", "fork-ends-at-turn-end")
def test_a_fork_is_made_where_a_turn_ended(
    store: SessionStore, live: Session, write: Write
) -> None:
    write(live, "turn", "user a", "/turn", "turn", "user b", "step", "delta x")
    assert fork_code(lambda: store.fork(live, 1)) == "OPEN_TURN"
    assert fork_code(lambda: store.fork(live, 6)) == "OPEN_TURN"
    with pytest.raises(ForkError, match="assistant/chunk"):
        store.fork(live)
    child = store.fork(live, 2)
    assert child.events == live.events[:3]
    assert child.derive_messages() == live.derive_messages()[:1]


@pytest.mark.rule("fork-ends-at-turn-end")
@pytest.mark.parametrize(
    "kind",
    [
        "completed",
        "aborted",
        "error",
        "disposed",
        "max-tokens",
        "rejected",
        "interrupted",
        "refusal",
        "max_turn_requests",
        "of-a-plugin",
    ],
)
def test_whatever_ended_the_turn(
    store: SessionStore, live: Session, write: Write, kind: str
) -> None:
    write(live, "turn", f"/turn {kind}")
    assert store.fork(live).events == live.events


@pytest.mark.rule("fork-refusals-have-typed-codes")
def test_who_may_be_forked_is_settled_first(store: SessionStore, live: Session) -> None:
    taken = store.create("taken")
    assert fork_code(lambda: store.fork("nobody", 99, "taken")) == "SESSION_ALREADY_EXISTS"
    assert fork_code(lambda: store.fork(live, 99, "taken")) == "SESSION_ALREADY_EXISTS"
    assert fork_code(lambda: store.fork("nobody", 99)) == "SESSION_NOT_FOUND"
    store.detach(taken)
    assert fork_code(lambda: store.fork(taken)) == "SESSION_NOT_FOUND"
    store.create("taken")
    assert fork_code(lambda: store.fork(taken)) == "SESSION_NOT_LIVE"
    assert store.fork("live", child_id="child").header.parent_session == "live"


@pytest.mark.rule("fork-header-names-parent")
def test_folder_is_inherited_and_depth_is_not(store: SessionStore) -> None:
    deep = store.create("deep", cwd="/work", delegation_depth=2, created_at=1)
    child = store.fork(deep)
    assert child.header.cwd == "/work"
    assert child.header.delegation_depth is None
    assert child.header.parent_session == SessionId("deep")
    assert child.header.created_at >= 1000
    assert store.fork(store.create("nowhere")).header.cwd is None


@pytest.mark.rule("forks-are-independent")
def test_a_child_goes_on_counting_and_on_its_own(
    store: SessionStore, live: Session, write: Write
) -> None:
    write(live, "turn", "user a", "step", "delta x", "delta y", "/step", "/turn")
    child = store.fork(live)
    inherited = list(live.events)
    write(child, "turn", "user child", "step", "delta c", "/step", "/turn")
    write(live, "turn", "user parent", "/turn")
    assert child.events[7].data["turn"] == 2
    assert list(child.events[:7]) == inherited == list(live.events[:7])
    assert child.header.seed_length == 7
    assert [m["content"][0]["text"] for m in child.derive_messages()] == ["a", "child"]
    assert [m["content"][0]["text"] for m in live.derive_messages()] == ["a", "parent"]
    again = Session(child.id, header=child.header, seed=child.events)
    assert again.header.seed_length == 7

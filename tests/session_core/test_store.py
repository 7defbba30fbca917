import logging
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from session_core import (
    AnnounceError,
    Event,
    OutOfBandError,
    Session,
    SessionExistsError,
    SessionHeader,
    SessionHeaderError,
    SessionId,
    SessionNotLiveError,
    SessionStore,
    StoreListener,
)

Write = Callable[..., list[Event]]

TITLE = {"title": "t", "messageSeqs": [], "source": {"kind": "fallback"}}


class Diary(StoreListener):
    """Writes down what it hears."""

    def __init__(self) -> None:
        self.entries: list[str] = []

    def on_created(self, session: Session) -> None:
        self.entries.append(f"created {session.id}")

    def on_event(self, session: Session, event: Event) -> None:
        self.entries.append(f"{event.type} {session.id}")

    async def on_flush(self, session: Session) -> None:
        self.entries.append(f"flush {session.id}")

    def on_disposed(self, session: Session) -> None:
        self.entries.append(f"disposed {session.id}")


@pytest.fixture
def diary(store: SessionStore) -> Diary:
    diary = Diary()
    store.subscribe(diary)
    return diary


def test_a_session_is_made_with_the_header_it_is_given(store: SessionStore) -> None:
    session = store.create(
        "s",
        cwd="/work",
        parent_session=SessionId("p"),
        created_at=5,
        seed_length=0,
        delegation_depth=2,
    )
    assert session.header == SessionHeader(
        SessionId("s"), 5, "/work", SessionId("p"), seed_length=0, delegation_depth=2
    )
    assert store.get("s") is session
    assert store.list() == [session]
    header = SessionHeader.from_json({"version": 0, "id": "old", "createdAt": 3, "kept": [1]})
    assert store.create(header=header).header is header
    with pytest.raises(SessionHeaderError):
        store.create("s2", cwd="relative")
    with pytest.raises(SessionHeaderError):
        store.create("s2", header=header)
    assert [live.id for live in store.list()] == ["s", "old"]


@pytest.mark.rule("session-ids-are-time-ordered")
def test_made_up_ids_skip_the_taken_ones(store: SessionStore) -> None:
    store.create("session-2")
    assert [store.create().id for _ in range(2)] == ["session-1", "session-3"]
    ids = iter(["a", "a", "b"])
    named = SessionStore(new_id=lambda: next(ids))
    assert [named.create().id, named.create().id] == ["a", "b"]


@pytest.mark.rule("store-enters-then-announces")
def test_one_of_several_prepared_sessions_enters(store: SessionStore, diary: Diary) -> None:
    first, second = store.prepare("s"), store.prepare("s")
    store.enter(first)
    with pytest.raises(SessionExistsError):
        store.enter(second)
    with pytest.raises(SessionExistsError):
        store.create("s")
    with pytest.raises(SessionExistsError):
        SessionStore().enter(first)
    assert store.get("s") is first
    store.announce(first)
    assert diary.entries == ["created s"]
    with pytest.raises(SessionNotLiveError):
        store.announce(second)
    with pytest.raises(SessionNotLiveError):
        store.detach(second)


def test_a_session_is_announced_once(store: SessionStore) -> None:
    raised: list[AnnounceError] = []

    class Eager(StoreListener):
        def on_created(self, session: Session) -> None:
            try:
                store.announce(session)
            except AnnounceError as error:
                raised.append(error)

    store.subscribe(Eager())
    session = store.create("s")
    assert len(raised) == 1
    with pytest.raises(AnnounceError):
        store.announce(session)


def test_the_ends_are_paired_and_happen_once(
    store: SessionStore, diary: Diary, write: Write
) -> None:
    silent = store.prepare("silent")
    leave = store.enter(silent)
    write(silent, "turn")
    leave()
    assert diary.entries == []
    session = store.prepare("s")
    leave = store.enter(session)
    store.announce(session)
    write(session, "turn")
    leave()
    leave()
    assert diary.entries == ["created s", "turn/start s", "disposed s"]
    assert store.get("s") is None
    replacement = store.create("s")
    leave()
    assert store.get("s") is replacement
    write(session, "user still usable, nobody hears")
    assert diary.entries[3:] == ["created s"]


@pytest.mark.rule("created-listeners-may-veto")
async def test_a_listener_that_raises_on_creation_takes_the_session_back(
    store: SessionStore, diary: Diary
) -> None:
    class Picky(StoreListener):
        def on_created(self, session: Session) -> None:
            if session.id == "bad":
                raise PermissionError

    later = Diary()
    store.subscribe(Picky())
    store.subscribe(later)
    with pytest.raises(PermissionError):
        store.create("bad")
    assert store.get("bad") is None
    assert diary.entries == ["created bad", "disposed bad"]
    assert later.entries == []
    store.create("good")
    assert later.entries == ["created good"]


@pytest.mark.rule("created-listeners-may-veto")
def test_a_listener_that_fails_later_does_not_take_the_session_back(
    store: SessionStore, caplog: pytest.LogCaptureFixture
) -> None:
    class Async(StoreListener):
        async def on_created(self, session: Session) -> None:  # type: ignore[override]
            raise PermissionError

        def on_disposed(self, session: Session) -> None:
            raise PermissionError

    store.subscribe(Async())
    with caplog.at_level(logging.ERROR):
        session = store.create("s")
        assert store.get("s") is session
        store.detach(session)
    assert store.get("s") is None
    assert len(caplog.records) == 2


def test_a_detach_during_publication_waits_for_its_end(store: SessionStore, write: Write) -> None:
    diary = Diary()
    seen: list[Session | None] = []

    class Leaver(StoreListener):
        def on_created(self, session: Session) -> None:
            store.detach(session)
            seen.append(store.get(session.id))

        def on_event(self, session: Session, event: Event) -> None:
            store.detach(session)
            seen.append(store.get(session.id))

    unsubscribe = store.subscribe(Leaver())
    store.subscribe(diary)
    created = store.create("s")
    assert seen == [created]
    assert store.get("s") is None
    assert diary.entries == ["created s", "disposed s"]
    unsubscribe()
    live = store.create("t")
    store.observe(live, lambda event: store.detach(live))
    write(live, "turn")
    assert diary.entries[2:] == ["created t", "turn/start t", "disposed t"]
    assert store.list() == []


def test_subscribing_and_unsubscribing_reach_live_sessions(
    store: SessionStore, live: Session, write: Write
) -> None:
    diary = Diary()
    unsubscribe = store.subscribe(diary)
    write(live, "turn")
    unsubscribe()
    unsubscribe()
    write(live, "user a")
    store.create("other")
    assert diary.entries == ["turn/start live"]


def test_an_observer_is_removed_alone(store: SessionStore, live: Session, write: Write) -> None:
    heard: list[int] = []

    def hear(event: Event) -> None:
        heard.append(event.seq)

    stop = store.observe(live, hear)
    store.observe(live, hear)
    write(live, "turn")
    stop()
    stop()
    write(live, "user a")
    assert heard == [0, 0, 1]
    with pytest.raises(SessionNotLiveError):
        store.observe(Session("live"), hear)


@pytest.mark.rule("flush-waits-for-all-listeners")
async def test_a_flush_waits_for_all_and_raises_the_first_failure(
    store: SessionStore, diary: Diary
) -> None:
    finished: list[str] = []
    release = anyio.Event()

    class Failing(StoreListener):
        def on_flush(self, session: Session) -> Any:
            raise PermissionError

    class Slow(StoreListener):
        async def on_flush(self, session: Session) -> None:
            await release.wait()
            finished.append("slow")
            raise ZeroDivisionError

    class Last(StoreListener):
        async def on_flush(self, session: Session) -> None:
            release.set()
            finished.append("last")

    for listener in (Failing(), Slow(), Last()):
        store.subscribe(listener)
    session = store.create("s")
    with anyio.fail_after(5), pytest.raises(PermissionError):
        await store.flush(session)
    assert finished == ["last", "slow"]
    assert diary.entries == ["created s", "flush s"]


async def test_only_the_live_object_is_flushed(store: SessionStore, diary: Diary) -> None:
    session = store.create("s")
    await store.flush(session)
    store.detach(session)
    for stale in (session, Session("never")):
        with pytest.raises(SessionNotLiveError):
            await store.flush(stale)
    store.create("s")
    with pytest.raises(SessionNotLiveError):
        await store.flush(session)
    assert diary.entries == ["created s", "flush s", "disposed s", "created s"]


async def append_title(store: SessionStore, session: Session) -> Event:
    return await store.append_out_of_band(
        session, "session/title", TITLE, {"kind": "session-title"}
    )


@pytest.mark.rule("out-of-band-append-makes-own-turn")
async def test_out_of_band_between_turns_takes_a_turn_of_its_own(
    store: SessionStore, diary: Diary, write: Write
) -> None:
    session = store.create("s")
    write(session, "turn", "/turn")
    event = await append_title(store, session)
    assert [e.type for e in session.events][2:] == ["turn/start", "session/title", "turn/end"]
    assert event == session.events[3]
    assert session.events[2].data == {"turn": 2, "trigger": {"kind": "session-title"}}
    assert session.events[4].data == {"turn": 2, "reason": {"kind": "completed"}}
    assert diary.entries[-1] == "flush s"
    assert diary.entries.count("flush s") == 1


@pytest.mark.rule("out-of-band-append-makes-own-turn")
async def test_out_of_band_in_a_turn_appends_just_the_event(
    store: SessionStore, diary: Diary, write: Write
) -> None:
    session = store.create("s")
    write(session, "turn", "user a")
    event = await append_title(store, session)
    assert event.seq == 2
    assert session.seq == 3
    assert "flush s" not in diary.entries


class Gate(StoreListener):
    """Refuses some types, and fails or holds up flushes."""

    def __init__(self, *, refuse: tuple[str, ...] = (), fail: bool = False) -> None:
        self.refuse = refuse
        self.fail = fail
        self.flushes = 0
        self.entered = anyio.Event()
        self.release = anyio.Event()
        self.release.set()

    def before_append(self, session: Session, event: Event) -> None:
        if event.type in self.refuse:
            raise PermissionError(event.type)

    async def on_flush(self, session: Session) -> None:
        self.flushes += 1
        self.entered.set()
        await self.release.wait()
        if self.fail:
            raise ZeroDivisionError


@pytest.mark.rule("out-of-band-failure-closes-turn")
@pytest.mark.parametrize("fail", [False, True])
async def test_a_refused_target_still_closes_its_turn(
    store: SessionStore, fail: bool, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate(refuse=("session/title",), fail=fail)
    store.subscribe(gate)
    session = store.create("s")
    with caplog.at_level(logging.ERROR), pytest.raises(PermissionError, match="session/title"):
        await append_title(store, session)
    assert [event.type for event in session.events] == ["turn/start", "turn/end"]
    assert gate.flushes == 1
    assert len(caplog.records) == fail


async def test_a_refused_start_writes_and_flushes_nothing(store: SessionStore) -> None:
    gate = Gate(refuse=("turn/start",))
    store.subscribe(gate)
    session = store.create("s")
    with pytest.raises(PermissionError):
        await append_title(store, session)
    assert (session.seq, gate.flushes) == (0, 0)


async def test_a_failed_flush_is_raised_with_the_log_balanced(store: SessionStore) -> None:
    store.subscribe(Gate(fail=True))
    session = store.create("s")
    with pytest.raises(ZeroDivisionError):
        await append_title(store, session)
    assert [event.type for event in session.events][-1] == "turn/end"


@pytest.mark.rule("out-of-band-append-refuses-early", "detach-waits-for-its-moment")
async def test_out_of_band_appends_do_not_overlap_and_hold_off_a_detach(
    store: SessionStore,
) -> None:
    gate = Gate()
    gate.release = anyio.Event()
    store.subscribe(gate)
    session = store.create("s")
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(append_title, store, session)
            await gate.entered.wait()
            with pytest.raises(OutOfBandError):
                await append_title(store, session)
            store.detach(session)
            assert store.get("s") is session
            gate.release.set()
    assert store.get("s") is None
    assert session.seq == 3


@pytest.mark.rule("out-of-band-append-refuses-early")
async def test_out_of_band_needs_the_live_object(store: SessionStore, live: Session) -> None:
    store.detach(live)
    with pytest.raises(SessionNotLiveError):
        await append_title(store, live)
    assert live.seq == 0


@pytest.mark.rule("out-of-band-append-refuses-early")
@pytest.mark.parametrize(
    "event_type", ["user/message", "turn/start", "step/end", "todo/write", "x/y", "request/header"]
)
async def test_out_of_band_takes_eligible_types_only(
    store: SessionStore, live: Session, event_type: str
) -> None:
    with pytest.raises(OutOfBandError):
        await store.append_out_of_band(live, event_type, {}, {"kind": "x"})
    assert live.seq == 0


async def test_a_plugin_makes_its_own_type_eligible() -> None:
    plain = SessionStore()
    vocabulary = plain.vocabulary.register("me/note", out_of_band=True)
    store = SessionStore(vocabulary=vocabulary)
    session = store.create("s")
    event = await store.append_out_of_band(session, "me/note", {"n": 1}, {"kind": "me"})
    assert event.seq == 1
    with pytest.raises(OutOfBandError):
        await plain.append_out_of_band(plain.create("s"), "me/note", {}, {"kind": "me"})

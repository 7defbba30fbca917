from collections.abc import Callable, Sequence

import anyio
import pytest

from session_core import (
    CompactionError,
    Event,
    Message,
    PartedCallError,
    Replace,
    Session,
    SessionStore,
    StoreListener,
    Summary,
    SurfaceError,
    TurnRunningError,
    compact_range,
    compute_closers,
    prune_tool_result,
    trace_of,
)

Write = Callable[..., list[Event]]


@pytest.fixture
def talk(live: Session, write: Write) -> Session:
    """Surface 1 user, 3 say, 7 user, 9 ask, 12 result, 13 result, 14 say; two ended turns."""
    write(live, "turn", "user a", "step", "say A", "/step", "/turn")
    write(live, "turn", "user b", "step", "ask c1 c2", "call c1", "call c2", "result c1")
    write(live, "result c2", "say B", "/step", "/turn")
    assert list(live.surface.nodes) == [1, 3, 7, 9, 12, 13, 14]
    return live


async def summarize(messages: Sequence[Message]) -> Summary:
    text = " ".join(block.get("text", block["type"]) for m in messages for block in m["content"])
    return Summary(f"<{text}>", "acme", "m1", shadowed_token_count=42, max_tokens=100)


@pytest.mark.rule("compaction-is-bracketed")
async def test_a_range_becomes_one_summary_in_a_turn_of_its_own(
    talk: Session, write: Write
) -> None:
    before = talk.events
    event = await compact_range(talk, 1, 7, summarize)
    assert talk.events[: len(before)] == tuple(before)
    assert [e.type for e in talk.events[len(before) :]] == [
        "turn/start",
        "compact/start",
        "compact/summary",
        "user/message",
        "compact/end",
        "turn/end",
    ]
    start, _, summary, _, end, turn_end = talk.events[len(before) :]
    assert start.data == {"turn": 3, "trigger": {"kind": "compaction"}}
    assert summary.data == {
        "summary": "<a A b>",
        "shadowedRange": {"start": 1, "end": 7},
        "shadowedSeqs": [1, 3, 7],
        "shadowedTokenCount": 42,
        "provider": "acme",
        "model": "m1",
        "maxTokens": 100,
    }
    assert event.data == {
        "content": [{"type": "text", "text": "<a A b>"}],
        "source": {"kind": "plugin", "plugin": "compaction"},
    }
    assert (event.source_event_seqs, event.surface_op) == ((1, 3, 7), Replace(1, 7))
    assert end.data == {"turn": 3}
    assert turn_end.data["reason"] == {"kind": "completed"}
    assert list(talk.surface.nodes) == [event.seq, 9, 12, 13, 14]
    assert trace_of(talk.events).turn is None
    write(talk, "turn", "user c", "/turn")
    assert [m["role"] for m in talk.derive_messages()][:2] == ["user", "assistant"]


async def test_what_was_compacted_can_be_compacted_again(talk: Session) -> None:
    first = await compact_range(talk, 1, 3, summarize)
    second = await compact_range(talk, first.seq, 14, summarize)
    assert list(talk.surface.nodes) == [second.seq]
    assert len(talk.derive_messages()) == 1


@pytest.mark.parametrize(
    ("start", "end", "call_id"), [(1, 9, "c1"), (12, 14, "c1"), (9, 12, "c2"), (13, 13, "c2")]
)
async def test_a_range_never_parts_a_call_from_its_result(
    talk: Session, start: int, end: int, call_id: str
) -> None:
    before = talk.events
    with pytest.raises(PartedCallError) as info:
        await compact_range(talk, start, end, summarize)
    assert info.value.call_id == call_id
    assert talk.events is before
    await compact_range(talk, 9, 13, summarize)


async def test_an_id_that_was_used_again_belongs_to_its_last_call(
    live: Session, write: Write
) -> None:
    for _ in range(2):
        write(live, "turn", "step", "ask c1", "call c1", "result c1", "/step", "/turn")
    first_ask, first_result, _, last_result = live.surface.nodes
    with pytest.raises(PartedCallError):
        await compact_range(live, first_ask, first_ask, summarize)
    with pytest.raises(PartedCallError):
        await compact_range(live, last_result, last_result, summarize)
    await compact_range(live, first_ask, first_result, summarize)


async def test_nothing_is_compacted_while_a_turn_runs(talk: Session, write: Write) -> None:
    write(talk, "turn", "user c")
    before = talk.events
    with pytest.raises(TurnRunningError) as info:
        await compact_range(talk, 1, 3, summarize)
    assert info.value.turn == 3
    with pytest.raises(TurnRunningError):
        prune_tool_result(talk, 12, [])
    assert talk.events is before


@pytest.mark.parametrize(("start", "end"), [(0, 3), (1, 99), (3, 1), (2, 2)])
async def test_a_range_is_on_the_surface(talk: Session, start: int, end: int) -> None:
    before = talk.events
    with pytest.raises(SurfaceError):
        await compact_range(talk, start, end, summarize)
    assert talk.events is before


def outline(session: Session, seq: int) -> list[str]:
    return [event.type for event in session.events[seq:]]


@pytest.mark.rule("compaction-is-bracketed")
async def test_a_failed_summary_is_bracketed_and_changes_no_surface(talk: Session) -> None:
    async def failing(_messages: Sequence[Message]) -> Summary:
        raise ZeroDivisionError("secret")

    nodes, seq = talk.surface.nodes, talk.seq
    with pytest.raises(ZeroDivisionError):
        await compact_range(talk, 1, 3, failing)
    assert outline(talk, seq) == ["turn/start", "compact/start", "compact/end", "turn/end"]
    assert talk.events[-2].data == {"turn": 3, "error": "ZeroDivisionError"}
    assert talk.events[-1].data["reason"]["kind"] == "error"
    assert "secret" not in str(list(talk.events))
    assert talk.surface.nodes == nodes
    await compact_range(talk, 1, 3, summarize)


@pytest.mark.rule("compaction-is-bracketed")
async def test_a_cancelled_summary_is_bracketed_too(talk: Session) -> None:
    started = anyio.Event()

    async def endless(_messages: Sequence[Message]) -> Summary:
        started.set()
        await anyio.sleep_forever()
        raise AssertionError

    seq = talk.seq
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(compact_range, talk, 1, 3, endless)
            await started.wait()
            assert compute_closers(talk.events) != []
            tasks.cancel_scope.cancel()
    assert outline(talk, seq) == ["turn/start", "compact/start", "compact/end", "turn/end"]
    assert talk.events[-1].data["reason"] == {"kind": "aborted"}


async def test_a_vetoed_replacement_is_bracketed_too(store: SessionStore, talk: Session) -> None:
    class Veto(StoreListener):
        def before_append(self, session: Session, event: Event) -> None:
            if event.type == "user/message":
                raise PermissionError

    store.detach(talk)
    store.subscribe(Veto())
    session = store.create("again", seed=talk.events)
    seq = session.seq
    with pytest.raises(PermissionError):
        await compact_range(session, 1, 3, summarize)
    assert outline(session, seq)[2:] == ["compact/summary", "compact/end", "turn/end"]
    assert session.events[-2].data["error"] == "PermissionError"


def test_one_result_is_pruned_in_its_content_only(talk: Session) -> None:
    original, seq = talk.events[12], talk.seq
    short = [{"type": "text", "text": "[pruned]"}]
    event = prune_tool_result(talk, 12, short)
    assert outline(talk, seq) == ["turn/start", "tool/result", "turn/end"]
    assert event.data == {**original.data, "content": short}
    assert (event.source_event_seqs, event.surface_op) == ((12,), Replace(12, 12))
    assert list(talk.surface.nodes) == [1, 3, 7, 9, event.seq, 13, 14]
    assert talk.derive_messages()[4]["content"][0]["content"] == short
    assert talk.events[12] == original


def test_only_a_tool_result_is_pruned(talk: Session) -> None:
    before = talk.events
    with pytest.raises(CompactionError):
        prune_tool_result(talk, 7, [])
    with pytest.raises(SurfaceError):
        prune_tool_result(talk, 10, [])
    assert talk.events is before


def test_a_refused_pruning_leaves_a_closed_turn(talk: Session) -> None:
    nodes, seq = talk.surface.nodes, talk.seq
    with pytest.raises(Exception, match="content"):
        prune_tool_result(talk, 12, [{"type": "text"}])
    assert outline(talk, seq) == ["turn/start", "turn/end"]
    assert talk.surface.nodes == nodes

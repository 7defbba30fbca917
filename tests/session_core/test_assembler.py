from collections.abc import Callable
from typing import Any

import pytest

from session_core import ChunkRun, Session, StreamAssembler, StreamOrderError, assembled_stream


def text(index: int, text: str, kind: str = "text-delta") -> dict[str, Any]:
    return {"type": kind, "index": index, "text": text}


def call(index: int, arguments: str, call_id: str | None = None, **more: Any) -> dict[str, Any]:
    identity = {} if call_id is None else {"id": call_id}
    return {
        "type": "tool-call-delta",
        "index": index,
        "argumentsDelta": arguments,
        **identity,
        **more,
    }


def finish(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": "finish", "reason": {"kind": kind}, **more}


def assemble(*chunks: dict[str, Any]) -> StreamAssembler:
    assembler = StreamAssembler()
    for chunk in chunks:
        assembler.feed(chunk)
    return assembler


@pytest.mark.rule("chunks-assemble-to-blocks")
def test_deltas_without_start_or_end_make_blocks_in_index_order() -> None:
    assembler = assemble(
        call(2, '{"a"', "c1", name="read"),
        text(1, "hel"),
        text(0, "hm", "reasoning-delta"),
        text(1, "lo"),
        call(2, ":1}", "c1"),
    )
    assert assembler.blocks() == [
        {"type": "reasoning", "text": "hm"},
        {"type": "text", "text": "hello"},
        {"type": "tool-call", "id": "c1", "name": "read", "arguments": '{"a":1}'},
    ]
    assert assembler.finish_reason == {"kind": "stop"}
    assert not assembler.is_finished
    assert assembler.text_of(1) == "hello"
    assert assembler.text_of(9) == ""


@pytest.mark.rule("chunks-assemble-to-blocks")
def test_the_first_block_end_is_the_last_word_on_its_block() -> None:
    first = {"type": "text", "text": "authoritative"}
    assembler = assemble(
        {"type": "block-start", "index": 0, "blockType": "text"},
        text(0, "auth"),
        {"type": "block-end", "index": 0, "block": first},
        text(0, "late"),
        {"type": "block-end", "index": 0, "block": {"type": "text", "text": "second"}},
    )
    assert assembler.blocks() == [first]
    assert assembler.text_of(0) == "auth"


def test_a_block_of_which_nothing_came_is_none() -> None:
    assert assemble({"type": "block-start", "index": 0, "blockType": "text"}).blocks() == []
    assert assemble().blocks() == []


@pytest.mark.rule("chunks-assemble-to-blocks")
def test_a_call_whose_id_never_came_gets_one_from_its_index() -> None:
    assert assemble(call(3, "{}")).blocks() == [
        {"type": "tool-call", "id": "call-3", "name": "", "arguments": "{}"}
    ]
    late = assemble(call(3, "{"), call(3, "}", "c9", name="read"))
    assert late.blocks() == [{"type": "tool-call", "id": "c9", "name": "read", "arguments": "{}"}]


@pytest.mark.rule("truncated-calls-are-dropped")
def test_a_stream_cut_by_the_token_limit_gives_no_calls() -> None:
    chunks = [text(0, "a"), call(1, "{", "c1", name="read")]
    cut = assemble(*chunks, finish("max-tokens"))
    assert cut.blocks() == [{"type": "text", "text": "a"}]
    assert assemble(chunks[1], finish("max-tokens")).blocks() == []
    assert len(assemble(*chunks, finish("tool-calls")).blocks()) == 2
    assert len(assemble(*chunks, finish("of-a-later-day")).blocks()) == 2


@pytest.mark.rule("stream-chunks-have-fixed-shapes")
def test_nothing_follows_finish_and_usage_comes_once() -> None:
    usage = {"type": "usage", "usage": {"inputTokens": 1, "outputTokens": 2}}
    assembler = assemble(text(0, "a"), usage)
    with pytest.raises(StreamOrderError):
        assembler.feed(usage)
    assembler.feed({"type": "of-a-plugin"})
    assembler.feed(finish("stop", replayState={"s": 1}))
    for chunk in (text(0, "b"), finish("stop"), usage):
        with pytest.raises(StreamOrderError):
            assembler.feed(chunk)
    assert assembler.usage == usage["usage"]
    assert assembler.replay_state == {"s": 1}
    assert assembler.is_finished
    assert assembler.blocks() == [{"type": "text", "text": "a"}]
    assert assemble().usage is None
    assert assemble().replay_state is None


def test_a_stream_is_assembled_from_a_log_past_other_events_and_from_packed_runs(
    session: Session, write: Callable[..., Any]
) -> None:
    write(session, "turn", "step")
    start = session.seq
    for chunk in (
        {"type": "block-start", "index": 0, "blockType": "text"},
        text(0, "hel"),
        text(0, "lo"),
        call(1, '{"a"', "c1", name="read"),
    ):
        session.append("assistant/chunk", {"turn": 1, "step": 1, "chunk": chunk})
    write(session, "todo one")
    for chunk in (call(1, ":1}", "c1", name="read"), finish("tool-calls")):
        session.append("assistant/chunk", {"turn": 1, "step": 1, "chunk": chunk})
    stream = assembled_stream(session.events.records(start))
    assert stream.blocks() == [
        {"type": "text", "text": "hello"},
        {"type": "tool-call", "id": "c1", "name": "read", "arguments": '{"a":1}'},
    ]
    assert stream.finish_reason == {"kind": "tool-calls"}
    with pytest.raises(StreamOrderError):
        stream.feed_run(next(r for r in session.events.records(start) if isinstance(r, ChunkRun)))

"""Model scripts: hand-written lists, and recorded logs as scripts."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from acp_server.models.model import ModelRequest
from acp_server.models.script_file import (
    Script,
    ScriptError,
    chunks_of,
    failure_of,
    hangs,
    read_script,
)
from acp_server.models.script_model import ScriptedModel
from acp_server.turns.errors import ModelError
from session_core import EventLogBuilder, decode_storage_run, pack_records

FINISH = {"type": "finish", "reason": {"kind": "stop"}}


def start(index: int, kind: str) -> dict[str, Any]:
    return {"type": "block-start", "index": index, "blockType": kind}


def delta(text: str) -> dict[str, Any]:
    return {"type": "text-delta", "index": 0, "text": text}


def written(tmp_path: Path, value: object, name: str = "model.json") -> Path:
    path = tmp_path / name
    path.write_text(json.dumps(value), "utf-8")
    return path


def log_lines(*steps: list[dict[str, Any]], **header: Any) -> list[dict[str, Any]]:
    """A log in which each turn is one step with these chunks."""
    lines: list[dict[str, Any]] = [
        {"type": "session", "version": 0, "id": "s", "createdAt": 1, "cwd": "/w", **header}
    ]

    def add(event_type: str, **data: Any) -> None:
        lines.append({"type": event_type, "seq": len(lines) - 1, "time": 1, "data": data})

    for turn, chunks in enumerate(steps, 1):
        add("turn/start", turn=turn, trigger={"kind": "message", "source": {"kind": "user"}})
        add("step/start", turn=turn, step=1)
        for chunk in chunks:
            add("assistant/chunk", turn=turn, step=1, chunk=chunk)
        add("step/end", turn=turn, step=1)
        add("turn/end", turn=turn, reason={"kind": "completed"})
    return lines


def recorded(tmp_path: Path, lines: list[dict[str, Any]], name: str = "log.jsonl") -> Path:
    path = tmp_path / name
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return path


def chunks(script: Script, session: int = 0) -> list[list[Mapping[str, Any]]]:
    return [list(chunks_of(one, at)) for at, one in enumerate(script.sessions[session])]


@pytest.mark.rule("script-forms-are-fixed")
def test_the_short_form_is_a_whole_stream(tmp_path: Path) -> None:
    call = {"name": "read", "arguments": {"path": "a"}}
    script = read_script(
        written(tmp_path, [{"thought": "hm", "text": ["a", "b"], "calls": [call]}])
    )
    (stream,) = chunks(script)
    assert [chunk["type"] for chunk in stream] == [
        *("block-start", "reasoning-delta", "block-end"),
        *("block-start", "text-delta", "text-delta", "block-end"),
        *("block-start", "tool-call-delta", "block-end", "finish"),
    ]
    assert stream[6]["block"] == {"type": "text", "text": "ab"}
    assert stream[9]["block"] == {
        "type": "tool-call",
        "id": "call_1_1",
        "name": "read",
        "arguments": '{"path": "a"}',
    }
    assert stream[10]["reason"] == {"kind": "tool-calls"}
    assert (script.shared, script.length, script.name) == (True, 1, "model.json")


@pytest.mark.rule("script-forms-are-fixed")
def test_throw_gives_its_chunks_and_then_the_failure(tmp_path: Path) -> None:
    throw = {"kind": "throw", "chunks": [delta("x")], "message": "down", "code": "D"}
    script = read_script(written(tmp_path, [throw, {**throw, "retryAfterMs": 5}]))
    assert chunks(script)[0] == [delta("x")]
    failures = [failure_of(response) for response in script.sessions[0]]
    assert [error and (error.failure["code"], error.retryable) for error in failures] == [
        ("D", False),
        ("D", True),
    ]


@pytest.mark.rule("script-forms-are-fixed")
def test_hang_begins_to_answer_and_goes_no_further(tmp_path: Path) -> None:
    script = read_script(written(tmp_path, [{"kind": "hang"}, {"text": "a", "hang": True}]))
    assert chunks(script)[0] == [start(0, "text"), delta("partial")]
    assert chunks(script)[1][-1]["type"] == "block-end"
    assert [hangs(response) for response in script.sessions[0]] == [True, True]


@pytest.mark.rule("script-forms-are-fixed")
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"a": 1}, "must be a JSON list of responses"),
        ({"sessions": 3}, "must be a JSON list of responses"),
        ({"sessions": [3]}, "must be a JSON list of responses"),
        ([3], "response 0 must be an object"),
        ([{}, {"txt": "x"}], "response 1 has an unknown key 'txt'"),
        ([{"kind": "throw", "message": "x"}], "response 0 has no 'code'"),
        ([{"kind": "chunks"}], "response 0 has no 'chunks'"),
        ([{"kind": "dance"}], "response 0 has an unknown kind 'dance'"),
        ([{"kind": "hang", "text": "x"}], "response 0 has an unknown key 'text'"),
    ],
)
def test_a_bad_script_says_what_is_wrong(tmp_path: Path, value: object, reason: str) -> None:
    with pytest.raises(ScriptError, match=r"model\.json") as caught:
        read_script(written(tmp_path, value))
    assert reason in str(caught.value)


def test_a_file_that_is_not_there_or_no_json_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match="No such file"):
        read_script(tmp_path / "gone.json")
    with pytest.raises(ScriptError, match="No such file"):
        read_script(tmp_path / "gone.jsonl")
    (tmp_path / "model.json").write_text("[", "utf-8")
    with pytest.raises(ScriptError, match="is not JSON"):
        read_script(tmp_path / "model.json")
    (tmp_path / "log.jsonl").write_text("{}\n", "utf-8")
    with pytest.raises(ScriptError, match="is not a recorded log"):
        read_script(tmp_path / "log.jsonl")


@pytest.mark.rule("recorded-log-is-a-script")
def test_a_recorded_log_gives_one_response_for_each_step(tmp_path: Path) -> None:
    one = [start(0, "text"), *map(delta, "abcd"), FINISH]
    other = [start(0, "text"), delta("z"), FINISH]
    lines = log_lines(one, other)
    plain = read_script(recorded(tmp_path, lines))
    assert chunks(plain) == [one, other]
    assert (plain.shared, plain.length) == (False, 2)
    builder = EventLogBuilder()
    for line in lines[1:]:
        builder.add(decode_storage_run(line))
    packed = pack_records(builder.build().records())
    assert len(packed) < len(lines) - 1
    assert chunks(read_script(recorded(tmp_path, [lines[0], *packed], "packed.jsonl"))) == [
        one,
        other,
    ]


@pytest.mark.rule("recorded-log-is-a-script")
def test_the_script_of_a_fork_leaves_out_its_seed(tmp_path: Path) -> None:
    one, other = [delta("seed"), FINISH], [delta("own"), FINISH]
    seed = len(log_lines(one)) - 1
    child = log_lines(one, other, parentSession="p", seedLength=seed)
    path = recorded(tmp_path, log_lines(one), "log.jsonl")
    recorded(tmp_path, child, "log.1.jsonl")
    script = read_script(path)
    assert (chunks(script, 0), chunks(script, 1)) == ([one], [other])


@pytest.mark.rule("recorded-log-is-a-script")
def test_a_step_without_finish_is_an_error_unless_there_is_an_override(tmp_path: Path) -> None:
    path = recorded(tmp_path, log_lines([delta("a"), FINISH], [delta("b")]))
    with pytest.raises(ScriptError, match="turn 2 step 1 has no `finish`"):
        read_script(path)
    written(tmp_path, [{"kind": "hang"}], "log.override.json")
    assert hangs(read_script(path).sessions[0][0])


@pytest.mark.rule("exhausted-script-is-loud")
async def test_an_exhausted_script_is_loud() -> None:
    model = ScriptedModel([{"text": "one"}], "m", "/there/m")
    request = ModelRequest({}, [])
    assert [chunk async for chunk in model.stream(request)][-1] == FINISH
    with pytest.raises(ScriptError, match="exhausted after 1 responses"):
        [chunk async for chunk in model.stream(request)]


async def test_a_failure_comes_behind_its_chunks() -> None:
    throw = {"kind": "throw", "chunks": [delta("x")], "message": "down", "code": "D"}
    stream = ScriptedModel([throw], "m", "m").stream(ModelRequest({}, []))
    assert await anext(stream) == delta("x")
    with pytest.raises(ModelError, match="down"):
        await anext(stream)

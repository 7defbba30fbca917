"""The model loop: what a stream becomes, what fails it, and what a request holds.

Rules: updates-are-what-was-stored, refusal-leaves-models-view, requests-are-rebuilt-from-log.
"""

import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import anyio
import pytest

from acp_server.agents.agent import Agent
from acp_server.agents.tool_call import ToolCall
from acp_server.agents.turn import Turn, run_of
from acp_server.models.loop import ModelLoop
from acp_server.models.messages import model_messages
from acp_server.models.model import ModelRequest, StreamChunk
from acp_server.models.tools import WORKSPACE_TOOLS, Tool
from acp_server.testing import AcpClient, AcpError, running_server
from acp_server.turns.bounds import MAX_SHOWN_DEPTH
from acp_server.turns.errors import ModelError
from persistence import open_backend
from persistence.storage import StorageBackend
from session_core import Event, Session, SessionId

Answer = Sequence[Any]
"""Chunks of one answer, in order; an exception is raised, an event is waited for."""

STOP = {"type": "finish", "reason": {"kind": "stop"}}
CALLS = {"type": "finish", "reason": {"kind": "tool-calls"}}


def delta(text: str, index: int = 0, kind: str = "text-delta") -> dict[str, Any]:
    return {"type": kind, "index": index, "text": text}


def end(text: str, index: int = 0, kind: str = "text") -> dict[str, Any]:
    return {"type": "block-end", "index": index, "block": {"type": kind, "text": text}}


def call(call_id: str, name: str = "work", arguments: str = "{}", index: int = 1) -> dict[str, Any]:
    block = {"type": "tool-call", "id": call_id, "name": name, "arguments": arguments}
    return {"type": "block-end", "index": index, "block": block}


def finish(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": "finish", "reason": {"kind": kind, **more}}


class Model:
    """Gives the answers in order, then `STOP`s; keeps the requests and counts the open streams."""

    provider = "acme"
    name = "m1"

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self.requests: list[ModelRequest] = []
        self.open = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamChunk]:
        self.requests.append(request)
        answer = self._answers.pop(0) if self._answers else [STOP]
        self.open += 1
        try:
            for item in answer:
                if isinstance(item, Exception):
                    raise item
                if isinstance(item, anyio.Event):
                    item.set()
                    await anyio.sleep_forever()
                yield item
        finally:
            self.open -= 1


class Naps:
    """Keeps how long the loop would have slept."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


async def work(turn: Turn, call: ToolCall, arguments: Mapping[str, Any]) -> None:
    match arguments.get("do"):
        case "raise":
            message = "it broke"
            raise ZeroDivisionError(message)
        case "hang":
            # Tells that the body runs: `in_progress` is seen before its checkpoint is over.
            call.update(locations=["here"])
            await anyio.sleep_forever()
    call.result(f"worked for {turn.prompt}")


WORK = Tool("work", "Does it.", work, title=lambda arguments: f"Work {arguments.get('do', '')}")
ASKED = Tool("asked", "Does it when allowed.", work, ask=True)


def agent_of(model: Model, **options: Any) -> Agent:
    loop = ModelLoop(model, (WORK, ASKED), system="Be good.", **options)
    return Agent("loop", loop.drive)


async def log_of(backend: StorageBackend, session_id: str) -> list[Event]:
    stored = await backend.load_stored(session_id)
    assert stored is not None
    return list(stored.log.view())


def of_type(events: Sequence[Event], *types: str) -> list[Event]:
    return [event for event in events if event.type in types]


async def talked(model: Model, *prompts: str, **options: Any) -> tuple[AcpClient, list[Event], str]:
    """Let the model answer prompts; return client, log, and the last stop reason or error."""
    backend = open_backend("memory:")
    ended = ""
    async with running_server(
        agent_of(model, **options), store=backend, permissions=["allow_once"]
    ) as client:
        session_id = await client.new_session("/w")
        for prompt in prompts:
            try:
                ended = (await client.prompt(session_id, prompt)).stop_reason
            except AcpError as error:
                ended = error.message
        events = await log_of(backend, session_id)
    assert model.open == 0
    return client, events, ended


# -- updates-are-what-was-stored ------------------------------------------------------------------


@pytest.mark.rule("deltas-say-what-blocks-say")
async def test_a_block_end_that_says_more_is_shown_as_one_more_delta() -> None:
    model = Model([delta("hel"), end("hello"), delta("hm", 1, "reasoning-delta"), STOP])
    client, events, _ = await talked(model, "hi")
    deltas = [e.data["chunk"] for e in of_type(events, "assistant/chunk")]
    assert [c["text"] for c in deltas if c["type"] == "text-delta"] == ["hel", "lo"]
    assert client.transcript.text == "hello"


@pytest.mark.rule("replayed-text-is-joined-deltas")
async def test_a_block_end_alone_is_shown() -> None:
    client, _, _ = await talked(Model([end("all at once"), STOP]), "hi")
    assert client.transcript.text == "all at once"


@pytest.mark.rule("deltas-say-what-blocks-say")
async def test_a_block_end_that_contradicts_its_deltas_fails_the_request() -> None:
    client, events, ended = await talked(Model([delta("yes"), end("no"), STOP]), "hi")
    sentence = "the model's answer contradicts what it has streamed"
    assert ended == f"Internal error: turn failed: {sentence}"
    assert of_type(events, "assistant/message") == []
    assert client.transcript.text == (
        f"yes\n\n[Model attempt failed; any partial output above is discarded: {sentence}]\n\n"
    )


@pytest.mark.rule("deltas-say-what-blocks-say")
async def test_what_comes_behind_a_block_end_is_not_shown() -> None:
    client, events, _ = await talked(Model([end("yes"), delta("more"), end("no"), STOP]), "hi")
    assert client.transcript.text == "yes"
    assert of_type(events, "assistant/message")[0].data["content"] == [
        {"type": "text", "text": "yes"}
    ]


@pytest.mark.rule("broken-stream-never-ends-well")
@pytest.mark.case("B66")
async def test_a_stream_that_breaks_off_never_ends_the_turn_well() -> None:
    _, events, ended = await talked(Model([delta("half")]), "hi", sleep=Naps())
    assert of_type(events, "llm/retry") == []
    assert ended.startswith("Internal error: turn failed: the model's answer broke off")
    assert of_type(events, "turn/end")[0].data["reason"]["failure"]["code"] == "STREAM_CUT"


@pytest.mark.rule("broken-stream-never-ends-well")
async def test_a_stream_that_breaks_off_before_it_showed_anything_is_tried_again() -> None:
    naps = Naps()
    client, _, ended = await talked(Model([], [delta("whole"), STOP]), "hi", sleep=naps)
    assert (ended, client.transcript.text, naps.seconds) == ("end_turn", "whole", [1.0])


@pytest.mark.rule("deltas-say-what-blocks-say")
async def test_a_chunk_behind_the_end_fails_the_request() -> None:
    _, events, _ = await talked(Model([STOP, delta("more")]), "hi")
    assert of_type(events, "turn/end")[0].data["reason"]["failure"]["code"] == "BAD_STREAM"


@pytest.mark.rule("deltas-say-what-blocks-say")
async def test_two_calls_with_one_id_are_never_run() -> None:
    _, events, _ = await talked(Model([call("1"), call("1", index=2), CALLS]), "hi")
    assert of_type(events, "tool/call") == []
    assert of_type(events, "turn/end")[0].data["reason"]["failure"]["code"] == "BAD_STREAM"


@pytest.mark.rule("long-text-goes-in-pieces")
async def test_a_huge_delta_goes_out_in_pieces() -> None:
    text = "é" * 200_000
    client, _, _ = await talked(Model([delta(text), STOP]), "hi")
    assert client.transcript.text == text
    assert max(len(frame.data) for frame in client.frames) < 1 << 20


# -- retries --------------------------------------------------------------------------------


STRUCTURED = {
    "message": "401 for Bearer abc.def: hush-hush-hush",
    "code": "AUTH",
    "status": 401,
    "providerRetryAfterMs": 250,
    "requestId": "req_7",
}
"""A failure as a provider tells it, with a key of the environment in its text."""


@pytest.mark.rule("failure-text-hides-secrets")
@pytest.mark.parametrize("way", ["finish", "raise", "retry"])
async def test_no_secret_of_a_providers_failure_is_stored_and_its_structure_is(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACME_API_KEY", "hush-hush-hush")
    raised = ModelError(
        "401 for Bearer abc.def: hush-hush-hush",
        code="AUTH",
        status=401,
        retryable=way == "retry",
        retry_after_ms=250,
        request_id="req_7",
    )
    ending = finish("error", failure=STRUCTURED) if way == "finish" else raised
    client, events, ended = await talked(
        Model([delta("so far"), ending]), "hi", sleep=Naps(), max_retries=1
    )
    told = "401 for Bearer [redacted]: [redacted]"
    failure = STRUCTURED | {"message": told}
    if way == "retry":
        assert of_type(events, "llm/retry")[0].data["failure"] == failure
        assert ended == "end_turn"
    else:
        assert of_type(events, "turn/end")[0].data["reason"]["failure"] == failure
        assert ended == f"Internal error: turn failed: {told}"
    if way == "finish":
        last = of_type(events, "assistant/chunk")[-1].data["chunk"]
        assert last == finish("error", failure=failure)
    assert "hush" not in str([dict(event.data) for event in events])
    assert b"hush" not in b"".join(frame.data for frame in client.frames)


def busy(after_ms: int | None = None) -> ModelError:
    return ModelError("too busy", code="BUSY", retryable=True, retry_after_ms=after_ms)


@pytest.mark.rule("passing-failures-are-retried")
async def test_a_retry_runs_as_a_new_step_and_says_so_where_something_was_shown() -> None:
    naps = Naps()
    model = Model([busy()], [delta("par"), busy(250)], [delta("whole"), STOP])
    client, events, ended = await talked(model, "hi", sleep=naps)
    assert ended == "end_turn"
    assert naps.seconds == [1.0, 0.25]
    boundaries = of_type(events, "step/start", "step/end", "llm/retry")
    assert [event.type for event in boundaries] == ["step/start", "step/end", "llm/retry"] * 2 + [
        "step/start",
        "step/end",
    ]
    assert of_type(events, "llm/retry")[1].data == {
        "turn": 1,
        "step": 2,
        "retry": 2,
        "maxRetries": 3,
        "delayMs": 250,
        "failure": {"message": "too busy", "code": "BUSY", "providerRetryAfterMs": 250},
    }
    assert client.transcript.text == (
        "par\n\n[Previous model attempt discarded; retrying 2/3 in 250ms: too busy]\n\nwhole"
    )


@pytest.mark.rule("passing-failures-are-retried")
async def test_a_failed_attempt_is_not_in_the_next_request() -> None:
    model = Model([delta("par"), busy()], [delta("whole"), STOP])
    await talked(model, "hi", sleep=Naps())
    first, second = model.requests
    assert list(first.messages) == list(second.messages)


@pytest.mark.rule("passing-failures-are-retried")
async def test_retries_end_and_count_anew_after_a_success() -> None:
    model = Model(
        [busy()], [call("1"), CALLS], [busy()], [busy()], [call("2"), CALLS], *[[busy()]] * 9
    )
    _, events, ended = await talked(model, "hi", sleep=Naps(), max_retries=2)
    assert [event.data["retry"] for event in of_type(events, "llm/retry")] == [1, 1, 2, 1, 2]
    assert ended == "Internal error: turn failed: too busy"


@pytest.mark.rule("passing-failures-are-retried")
async def test_a_failure_that_is_for_good_is_not_retried() -> None:
    model = Model([ModelError("bad key sk-abcdefghijklmnop", code="AUTH")])
    _, events, _ = await talked(model, "hi", sleep=Naps())
    assert of_type(events, "llm/retry") == []


@pytest.mark.rule("cancel-is-bounded-in-time")
@pytest.mark.case("B31")
async def test_a_cancel_while_the_loop_backs_off_makes_no_further_request() -> None:
    napping = anyio.Event()

    async def nap(_seconds: float) -> None:
        napping.set()
        await anyio.sleep_forever()

    model = Model([busy()])
    async with running_server(agent_of(model, sleep=nap)) as client:
        session_id = await client.new_session("/w")
        handle = await client.start_prompt(session_id, "hi")
        await napping.wait()
        await client.cancel(session_id)
        assert (await handle.result()).stop_reason == "cancelled"
    assert len(model.requests) == 1


# -- calls ----------------------------------------------------------------------------------


def results_in(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    return [
        block["toolCallId"]
        for message in messages
        for block in message["content"]
        if block["type"] == "tool-result"
    ]


@pytest.mark.rule("model-is-asked-until-done", "calls-run-in-order")
@pytest.mark.case("B32")
async def test_calls_run_in_order_and_a_raising_tool_does_not_end_the_turn() -> None:
    calls = [
        call("1", arguments='{"do": "raise"}', index=1),
        call("2", name="nothing", index=2),
        call("3", arguments="not json", index=3),
        call("4", arguments="[]", index=4),
        call("5", arguments="", index=5),
    ]
    model = Model([*calls, CALLS])
    client, events, ended = await talked(model, "hi")
    assert ended == "end_turn"
    assert [card.status for card in client.transcript.cards] == [*["failed"] * 4, "completed"]
    assert results_in(model.requests[1].messages) == ["1", "2", "3", "4", "5"]
    assert len(of_type(events, "step/start")) == 2
    sent = model_messages(model.requests[1].messages)
    assert [message["role"] for message in sent] == ["user", "assistant", "user"]


@pytest.mark.rule("calls-run-in-order")
@pytest.mark.case("B32")
async def test_a_denied_call_fails_and_the_others_run() -> None:
    model = Model([call("1", name="asked", index=1), call("2", index=2), CALLS])
    backend = open_backend("memory:")
    async with running_server(
        agent_of(model), store=backend, permissions=["reject_once"]
    ) as client:
        session_id = await client.new_session("/w")
        assert (await client.prompt(session_id, "hi")).stop_reason == "end_turn"
        assert [card.status for card in client.transcript.cards] == ["failed", "completed"]
    assert results_in(model.requests[1].messages) == ["1", "2"]


@pytest.mark.rule("cut-turns-stay-paired", "cancel-closes-open-calls")
@pytest.mark.case("B32")
async def test_a_cancel_during_tools_pairs_and_fails_every_call_of_the_message() -> None:
    calls = [
        call("1", arguments='{"do": "hang"}', index=1),
        call("2", arguments='{"do": "more"}', index=2),
        call("3", name="asked", index=3),
    ]
    model = Model([*calls, CALLS])
    backend = open_backend("memory:")
    async with running_server(agent_of(model), store=backend) as client:
        session_id = await client.new_session("/w")
        handle = await client.start_prompt(session_id, "hi")
        await client.wait_for_update(lambda update: "locations" in update)
        await client.cancel(session_id)
        assert (await handle.result()).stop_reason == "cancelled"
        live = client.transcript
        assert [(card.title, card.status) for card in live.cards] == [
            ("Work hang", "failed"),
            ("Work more", "failed"),
            ("asked", "failed"),
        ]
        events = await log_of(backend, session_id)
        assert [event.data["error"]["code"] for event in of_type(events, "tool/result")] == [
            "ABORTED",
            "ABORTED_BEFORE_DISPATCH",
            "ABORTED_BEFORE_DISPATCH",
        ]
        await client.prompt(session_id, "next")
        assert results_in(model.requests[1].messages) == ["1", "2", "3"]
        await client.load_session(session_id, "/w")
        assert client.transcript.cards == live.cards


@pytest.mark.rule("truncated-calls-are-dropped", "turn-end-reasons-have-precedence")
@pytest.mark.case("B32")
async def test_calls_cut_by_max_tokens_are_not_run() -> None:
    model = Model([delta("so"), call("1"), finish("max-tokens")])
    client, events, ended = await talked(model, "hi", "again")
    assert of_type(events, "tool/call") == []
    assert client.transcript.cards == ()
    assert of_type(events, "assistant/message")[0].data["content"] == [
        {"type": "text", "text": "so"}
    ]
    assert ended == "end_turn"


@pytest.mark.rule("turn-end-reasons-have-precedence")
async def test_one_step_cut_by_max_tokens_makes_the_whole_turn_so() -> None:
    model = Model([call("1"), CALLS], [delta("so"), finish("max-tokens")])
    _, _, ended = await talked(model, "hi")
    assert ended == "max_tokens"


@pytest.mark.rule("bad-arguments-fail-the-call", "plan-shows-whole-list")
@pytest.mark.case("B82")
async def test_a_todo_call_is_a_plan_if_its_list_is_one_and_fails_otherwise() -> None:
    lists: list[Any] = [
        [{"content": "a", "status": "pending"}, {"content": "", "status": "completed"}],
        "a, b",
        [{"status": "pending"}],
        [{"content": "a", "status": 5}],
        [{"content": "a", "status": "blocked"}],
        None,
        [{"content": str(n), "status": "in_progress"} for n in range(500)],
        [],
    ]
    calls = [
        call(str(n), name="todo_write", arguments=json.dumps({"todos": todos}), index=n)
        for n, todos in enumerate(lists)
    ]
    loop = ModelLoop(Model([*calls, CALLS]), WORKSPACE_TOOLS)
    async with running_server(Agent("loop", loop.drive)) as client:
        session_id = await client.new_session("/w")
        assert (await client.prompt(session_id, "go")).stop_reason == "end_turn"
        transcript = client.transcript
    assert [len(plan.entries) for plan in transcript.plans] == [2, 500, 0]
    assert [card.status for card in transcript.cards] == [
        "completed",
        *["failed"] * 5,
        "completed",
        "completed",
    ]


def nested(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


BAD_ARGUMENTS = {
    "cut": ('{"do": "x"', "not JSON"),
    "no object": ("[1]", "must be a JSON object"),
    "null": ("null", "must be a JSON object"),
    "NaN": ('{"a": [NaN]}', "NaN is not JSON"),
    "Infinity": ('{"a": -Infinity}', "-Infinity is not JSON"),
    "too large a number": ('{"a": 1e999}', "inf is not a JSON number"),
    "negative zero": ('{"a": -0.0}', "-0.0 is not a JSON number"),
    "too large an integer": ('{"a": 9007199254740992}', "9007199254740992 is beyond the safe"),
    "too small an integer": ('{"a": -9007199254740992}', "beyond the safe integers"),
    "endless digits": ('{"a": 1' + "0" * 5000 + "}", "not JSON"),
    "nested too deep": (nested(MAX_SHOWN_DEPTH + 1), "nested too deep"),
    "nested far too deep": (nested(100_000), "nested too deep"),
}


@pytest.mark.rule("bad-arguments-fail-the-call")
@pytest.mark.parametrize(("arguments", "reason"), BAD_ARGUMENTS.values(), ids=BAD_ARGUMENTS)
@pytest.mark.parametrize("name", ["work", "asked", "unknown"])
async def test_a_call_with_unusable_arguments_fails_and_the_turn_goes_on(
    name: str, arguments: str, reason: str
) -> None:
    calls = [call("bad", name, arguments, index=0), call("good", index=1)]
    model = Model([*calls, CALLS], [delta("I see."), STOP])
    client, events, ended = await talked(model, "go")
    assert ended == "end_turn"
    assert [card.status for card in client.transcript.cards] == ["failed", "completed"]
    answer, *results = model.requests[1].messages[1:]
    assert [block["id"] for block in answer["content"]] == ["bad", "good"]
    assert answer["content"][0]["arguments"] == arguments
    failed, worked = [block for message in results for block in message["content"]]
    assert (failed["toolCallId"], failed["isError"]) == ("bad", True)
    assert (worked["toolCallId"], worked["isError"]) == ("good", False)
    if name != "unknown":
        assert reason in failed["content"][0]["text"]
    # What an adapter makes of it for a provider: each call, and right behind it its one result.
    sent = model_messages(model.requests[1].messages)
    assert [block.get("toolCallId") for block in sent[2]["content"]] == ["bad", "good"]
    assert of_type(events, "approval/asked") == []


@pytest.mark.parametrize(
    "chunk",
    [
        {"type": "tool-call-delta", "index": 0, "id": "1", "name": "work", "argumentsDelta": 1},
        {"type": "text-delta", "index": float("nan"), "text": "a"},
        {"type": "usage", "usage": {"inputTokens": float("nan")}},
        {"type": "finish", "reason": {"kind": "stop"}, "replayState": 2**53},
    ],
)
async def test_a_chunk_that_no_log_keeps_is_a_failure_of_the_model(chunk: dict[str, Any]) -> None:
    _client, events, ended = await talked(Model([delta("a"), chunk]), "go")
    assert "turn failed: " in ended
    assert "assistant/chunk" in ended
    assert events[-1].data["reason"]["failure"]["code"] == "BAD_STREAM"


@pytest.mark.rule("handle-text-is-made-encodable")
async def test_half_characters_of_a_model_are_replaced_wherever_they_stand() -> None:
    half = "\ud800"
    made = call(half, arguments=f'{{"do": "{half}"}}', name=half)
    start = {"type": "tool-call-delta", "index": 1, "id": half, "name": half}
    finish = {**CALLS, "replayState": {half: [half]}}
    chunks = [{**start, "argumentsDelta": half}, made, delta(half), finish]
    client, events, ended = await talked(Model(chunks), "go")
    assert ended == "end_turn"
    assert [card.status for card in client.transcript.cards] == ["failed"]
    (message, _last) = of_type(events, "assistant/message")
    assert message.data["provenance"]["replayState"] == {"\ufffd": ["\ufffd"]}


async def test_arguments_as_deep_as_they_may_be_are_shown_and_kept() -> None:
    deep = nested(MAX_SHOWN_DEPTH)
    client, _events, ended = await talked(Model([call("1", arguments=deep), CALLS]), "go")
    assert ended == "end_turn"
    (card,) = client.transcript.cards
    assert (card.status, card.raw_input) == ("completed", json.loads(deep))


# -- refusal-leaves-models-view -------------------------------------------------------------------


@pytest.mark.rule("refusal-leaves-models-view", "stop-reason-follows-turn-end")
@pytest.mark.case("B48")
async def test_a_refused_prompt_is_in_no_later_request_but_stays_shown() -> None:
    model = Model([delta("par"), finish("refusal")], [delta("fine"), STOP])
    backend = open_backend("memory:")
    async with running_server(agent_of(model), store=backend) as client:
        session_id = await client.new_session("/w")
        assert (await client.prompt(session_id, "forbidden")).stop_reason == "refusal"
        assert (await client.prompt(session_id, "ok")).stop_reason == "end_turn"
        live = client.transcript
        await client.load_session(session_id, "/w")
        assert client.transcript == live
        assert client.transcript.user_text == "forbiddenok"
    assert model_messages(model.requests[1].messages) == [
        {"role": "user", "content": [{"type": "text", "text": "ok"}]}
    ]


@pytest.mark.rule("request-limit-ends-turn", "stop-reason-follows-turn-end")
async def test_the_limit_of_requests_ends_the_turn() -> None:
    model = Model(*[[call(str(n)), CALLS] for n in range(5)])
    client, _, ended = await talked(model, "hi", max_requests=3)
    assert ended == "max_turn_requests"
    assert len(model.requests) == 3
    assert [card.status for card in client.transcript.cards] == ["completed"] * 3


# -- requests-are-rebuilt-from-log ----------------------------------------------------------------


def rebuilt_requests(events: Sequence[Event]) -> list[tuple[Any, list[Any]]]:
    """Return what each request must have been, from the log alone."""
    requests: list[tuple[Any, list[Any]]] = []
    for position, event in enumerate(events):
        if event.type != "step/start":
            continue
        before = Session(SessionId("rebuilt"), seed=events[:position])
        header = before.request_header()
        follower = events[position + 1]
        if follower.type == "request/header":
            header = follower.data["header"]
        assert header is not None
        requests.append((header, [*header.get("messagePrefix", ()), *before.derive_messages()]))
    return requests


@pytest.mark.rule("requests-are-rebuilt-from-log")
async def test_every_request_can_be_rebuilt_from_the_stored_log() -> None:
    model = Model(
        [delta("let me"), call("1"), call("2", arguments='{"do": "raise"}', index=2), CALLS],
        [delta("par"), busy()],
        [delta("hm", 0, "reasoning-delta"), delta("done", 1), STOP],
        [delta("no"), finish("refusal")],
        [delta("again"), STOP],
    )
    _, events, _ = await talked(model, "hi", "bad", "more", sleep=Naps())
    assert len(model.requests) == 5
    assert rebuilt_requests(events) == [
        (request.header, list(request.messages)) for request in model.requests
    ]


async def test_requests_extend_each_other_as_long_as_nothing_is_replaced() -> None:
    model = Model([call("1"), CALLS], [call("2"), CALLS], [delta("x"), STOP])
    await talked(model, "hi", "more")
    for former, later in zip(model.requests, model.requests[1:], strict=False):
        assert list(later.messages)[: len(former.messages)] == list(former.messages)


async def test_text_that_came_before_a_request_is_part_of_it() -> None:
    seen: list[Any] = []

    async def drive(turn: Turn) -> None:
        await turn.text("by hand")
        header = {"config": {"provider": "acme", "model": "m1"}}
        seen.extend(await run_of(turn).begin_request(header))

    backend = open_backend("memory:")
    async with running_server(Agent("a", drive), store=backend) as client:
        session_id = await client.new_session("/w")
        await client.prompt(session_id, "hi")
        events = await log_of(backend, session_id)
    assert [message["role"] for message in seen] == ["user", "assistant"]
    last_start = of_type(events, "step/start")[-1].seq
    assert Session(SessionId("r"), seed=events[:last_start]).derive_messages() == seen


# -- the end of a stream --------------------------------------------------------------------


@pytest.mark.rule("cancelled-prompt-answers-cancelled")
async def test_a_cancel_in_the_stream_leaves_chunks_and_no_message() -> None:
    reached = anyio.Event()
    model = Model([delta("par"), reached])
    backend = open_backend("memory:")
    async with running_server(agent_of(model), store=backend) as client:
        session_id = await client.new_session("/w")
        handle = await client.start_prompt(session_id, "hi")
        await reached.wait()
        await client.cancel(session_id)
        assert (await handle.result()).stop_reason == "cancelled"
        assert model.open == 0
        types = [event.type for event in await log_of(backend, session_id)]
    assert "assistant/message" not in types
    assert types[-3:] == ["assistant/chunk", "step/end", "turn/end"]


# -- provenance, prefix, and reasons that meet ------------------------------------------------


async def test_the_replay_state_that_ends_a_stream_is_kept_with_its_message() -> None:
    model = Model([delta("a"), {**STOP, "replayState": {"id": "r1"}}])
    _, events, _ = await talked(model, "hi")
    (message,) = of_type(events, "assistant/message")
    assert message.data["provenance"] == {
        "provider": "acme",
        "model": "m1",
        "replayState": {"id": "r1"},
    }


async def test_a_message_prefix_stands_before_the_history_and_never_in_it() -> None:
    prefix = [{"role": "user", "content": [{"type": "text", "text": "house rules"}]}]
    header = {"config": {"provider": "acme", "model": "m1"}, "messagePrefix": prefix}
    sent: list[list[Any]] = []

    async def drive(turn: Turn) -> None:
        sent.append(list(await run_of(turn).begin_request(header)))
        await turn.text("ok")
        assert all(message not in prefix for message in turn.history)

    async with running_server(Agent("prefixed", drive)) as client:
        session_id = await client.new_session("/w")
        await client.prompt(session_id, "one")
        await client.prompt(session_id, "two")
    assert [messages[0] for messages in sent] == prefix * 2
    assert [len(messages) for messages in sent] == [2, 4]


@pytest.mark.parametrize(
    ("finishes", "reason"),
    [
        ([finish("max-tokens")], "max-tokens"),
        ([ModelError("down", code="DOWN")], "error"),
        ([ModelError("stopped", code="STOPPED", aborted=True)], "aborted"),
    ],
)
async def test_the_graver_reason_ends_a_turn_that_was_cut_by_max_tokens_before(
    finishes: list[Any], reason: str
) -> None:
    # The first step hits the limit, and its second block's call is not lost to it.
    first = [call("1"), CALLS]
    model = Model(first, [delta("cut"), *finishes])
    loop = ModelLoop(model, (WORK,))

    async def drive(turn: Turn) -> None:
        run_of(turn).log.hit_max_tokens = True
        await loop.drive(turn)

    backend = open_backend("memory:")
    async with running_server(Agent("loop", drive), store=backend) as client:
        session_id = await client.new_session("/w")
        with contextlib.suppress(AcpError):
            await client.prompt(session_id, "go")
        (end_event,) = of_type(await log_of(backend, session_id), "turn/end")
    assert end_event.data["reason"]["kind"] == reason

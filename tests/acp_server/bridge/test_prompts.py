"""Prompts: the queue, what settles them, and what may come between."""

import logging
from typing import Any

import anyio
import pytest

from acp_server.agents.agent import Agent
from acp_server.agents.turn import Turn
from acp_server.bridge.open_session import OpenSession
from acp_server.bridge.projector import LiveProjector
from acp_server.bridge.stop_reasons import stop_reason_from_end
from acp_server.testing import AcpClient, AcpError, running_server
from acp_server.turns.errors import AuthRequiredError, ModelError
from acp_server.turns.runner import MAX_QUEUED
from persistence import open_backend
from session_core import Event
from tests.acp_server.helpers import ECHO, stored_events


class Gated:
    """Says `start`, waits for leave, says `end`."""

    def __init__(self) -> None:
        self.agent = Agent("gated", self.drive)
        self.leave = anyio.Event()
        self.prompts: list[str] = []

    async def drive(self, turn: Turn) -> None:
        self.prompts.append(turn.prompt)
        await turn.text(f"start {turn.prompt} ")
        await self.leave.wait()
        await turn.text(f"end {turn.prompt} ")


async def error_of(client: AcpClient, session_id: str, text: str = "go") -> AcpError:
    with pytest.raises(AcpError) as caught:
        await client.prompt(session_id, text)
    return caught.value


@pytest.mark.rule("empty-prompts-are-refused", "unadvertised-blocks-are-refused")
@pytest.mark.parametrize(
    "blocks",
    [
        [],
        [{"type": "text", "text": ""}],
        [{"type": "text", "text": " \n"}, {"type": "text", "text": ""}],
        [{"type": "audio", "data": "AA==", "mimeType": "audio/wav"}],
        [{"type": "text", "text": "x"}, {"type": "hologram"}],
    ],
)
async def test_a_prompt_that_says_nothing_or_is_not_understood_is_refused(
    blocks: list[dict[str, Any]],
) -> None:
    gated = Gated()
    async with running_server(gated.agent) as client:
        session_id = await client.new_session("/tmp/w")
        with pytest.raises(AcpError) as caught:
            await client.request("session/prompt", {"sessionId": session_id, "prompt": blocks})
        assert caught.value.code == -32602
        assert (await client.list_sessions())["sessions"] == []
        assert gated.prompts == []


@pytest.mark.rule("prompts-queue-in-order")
@pytest.mark.case("B28")
async def test_prompts_during_a_turn_run_after_it_in_order() -> None:
    backend = open_backend("memory:")
    gated = Gated()
    async with running_server(gated.agent, store=backend) as client:
        session_id = await client.new_session("/tmp/w")
        names = ["one", "two", "three"]
        handles = [await client.start_prompt(session_id, name) for name in names]
        await client.wait_for_update(lambda u: u["sessionUpdate"] == "agent_message_chunk")
        assert gated.prompts == ["one"]
        gated.leave.set()
        results = [await handle.result() for handle in handles]
        assert [r.text for r in results] == [f"start {n} end {n} " for n in names]
        # In the very instant of the response.
        assert (await client.prompt(session_id, "four")).stop_reason == "end_turn"
        events = await stored_events(backend, session_id)
        said = [e.data["content"][0]["text"] for e in events if e.type == "user/message"]
        assert said == [*names, "four"]


@pytest.mark.rule("cancel-covers-queued-prompts")
@pytest.mark.case("B28")
async def test_a_cancel_covers_what_came_before_it_and_nothing_after() -> None:
    backend = open_backend("memory:")
    gated = Gated()
    async with running_server(gated.agent, store=backend) as client:
        session_id = await client.new_session("/tmp/w")
        before = [await client.start_prompt(session_id, name) for name in ("one", "two", "three")]
        await client.cancel(session_id)
        after = await client.start_prompt(session_id, "four")
        gated.leave.set()
        assert [(await h.result()).stop_reason for h in before] == ["cancelled"] * 3
        assert (await after.result()).stop_reason == "end_turn"
        said = [
            event.data["content"][0]["text"]
            for event in await stored_events(backend, session_id)
            if event.type == "user/message"
        ]
        assert said[-1] == "four"
        assert not {"two", "three"} & set(said)


@pytest.mark.rule("full-queue-refuses-prompt", "prompts-queue-in-order")
async def test_a_full_queue_is_an_error_and_leaves_the_others_alone() -> None:
    gated = Gated()
    async with running_server(gated.agent) as client:
        session_id = await client.new_session("/tmp/w")
        first = await client.start_prompt(session_id, "first")
        await client.wait_for_update(lambda u: u["sessionUpdate"] == "agent_message_chunk")
        queued = [await client.start_prompt(session_id, f"{n}") for n in range(MAX_QUEUED)]
        assert (await error_of(client, session_id)).code == -32603
        gated.leave.set()
        for handle in (first, *queued):
            assert (await handle.result()).stop_reason == "end_turn"


@pytest.mark.rule("cancel-sent-as-request-works")
@pytest.mark.case("B29")
async def test_a_cancel_may_be_sent_as_a_request() -> None:
    gated = Gated()
    async with running_server(gated.agent) as client:
        session_id = await client.new_session("/tmp/w")
        handle = await client.start_prompt(session_id, "one")
        assert await client.request("session/cancel", {"sessionId": session_id}) == {}
        assert (await handle.result()).stop_reason == "cancelled"
        gated.leave.set()
        assert (await client.prompt(session_id, "two")).stop_reason == "end_turn"


@pytest.mark.rule("prompt-settles-with-own-turn")
async def test_turns_that_no_prompt_started_settle_no_prompt() -> None:
    gated = Gated()
    async with running_server(gated.agent) as client:
        session_id = await client.new_session("/tmp/w")
        gated.leave.set()
        await client.prompt(session_id, "one")
        gated.leave = anyio.Event()
        change = await client.start_request(
            "session/set_mode", {"sessionId": session_id, "modeId": "read-only"}
        )
        handle = await client.start_prompt(session_id, "two")
        await client.wait_for_update(lambda u: u.get("content", {}).get("text") == "start two ")
        assert change.answered.is_set()
        assert not handle.done
        gated.leave.set()
        assert (await handle.result()).text == "start two end two "


@pytest.mark.rule(
    "failing-agent-is-named-only", "stop-reason-follows-turn-end", "prompt-always-gets-one-answer"
)
@pytest.mark.case("B86")
async def test_errors_of_a_turn_are_one_sentence_without_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ACME_API_KEY", "hush-hush-hush")
    backend = open_backend("memory:")

    async def fail(turn: Turn) -> None:
        match turn.prompt:
            case "model":
                message = "401: key hush-hush-hush, Authorization: Bearer abc.def"
                raise ModelError(message, code="auth")
            case "exit":
                raise SystemExit(3)
            case "sign in":
                raise AuthRequiredError
            case "agent":
                message = "hush-hush-hush"
                raise ValueError(message)
        await turn.text("fine")

    async with running_server(Agent("fail", fail), store=backend) as client:
        session_id = await client.new_session("/tmp/w")
        for prompt in ("model", "exit", "agent"):
            error = await error_of(client, session_id, prompt)
            assert error.code == -32603
            assert str(error).count("\n") == 0
        assert (await error_of(client, session_id, "sign in")).code == -32000
        assert (await client.prompt(session_id, "on")).text == "fine"
        assert [frame for frame in client.frames if b"hush-hush" in frame.data] == []
        assert [frame for frame in client.frames if b"abc.def" in frame.data] == []
    events = await stored_events(backend, session_id)
    assert "hush-hush" not in str([dict(event.data) for event in events])


@pytest.mark.rule("prompt-settles-with-own-turn")
async def test_an_observer_that_fails_does_not_keep_the_prompt_from_being_settled(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = LiveProjector.__call__

    def project(self: LiveProjector, event: Event) -> None:
        if event.type in ("turn/start", "turn/end"):
            message = "no"
            raise RuntimeError(message)
        real(self, event)

    monkeypatch.setattr(LiveProjector, "__call__", project)
    gated = Gated()
    gated.leave.set()
    async with running_server(gated.agent) as client:
        session_id = await client.new_session("/tmp/w")
        with caplog.at_level(logging.CRITICAL):
            assert (await client.prompt(session_id, "x")).text == "start x end x "


@pytest.mark.rule("stop-reason-follows-turn-end")
def test_every_end_has_a_legal_stop_reason() -> None:
    kinds = ("completed", "max-tokens", "max_turn_requests", "refusal", "aborted", "disposed")
    assert [stop_reason_from_end(kind) for kind in kinds] == [
        "end_turn",
        "max_tokens",
        "max_turn_requests",
        "refusal",
        "cancelled",
        "cancelled",
    ]
    assert stop_reason_from_end("rejected") == "cancelled"
    assert {stop_reason_from_end(kind) for kind in ("interrupted", "x/y")} == {"end_turn"}


@pytest.mark.rule("response-is-last-of-turn")
@pytest.mark.case("B18")
async def test_a_response_is_the_last_frame_of_its_turn_though_a_load_holds_the_frames(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replayed, go_on = anyio.Event(), anyio.Event()
    real = OpenSession.replay

    async def replay(self: OpenSession) -> None:
        await real(self)
        replayed.set()
        await go_on.wait()

    monkeypatch.setattr(OpenSession, "replay", replay)
    gated = Gated()
    async with running_server(gated.agent) as client:
        session_id = await client.new_session("/tmp/w")
        handle = await client.start_prompt(session_id, "one")
        await client.wait_for_update(lambda u: u["sessionUpdate"] == "agent_message_chunk")
        load = await client.start_request(
            "session/load", {"sessionId": session_id, "cwd": "/tmp/w", "mcpServers": []}
        )
        await replayed.wait()
        gated.leave.set()
        for _ in range(3):
            await client.list_sessions()
        assert not handle.done
        go_on.set()
        assert "end one " in (await handle.result()).text
        assert load.answered.is_set()
        count = len(client.updates)
        await client.list_sessions()
        assert len(client.updates) == count


@pytest.mark.rule("gone-client-stops-no-turn")
async def test_a_turn_completes_though_the_client_is_gone() -> None:
    backend = open_backend("memory:")

    async def talk(turn: Turn) -> None:
        for _ in range(50):
            await turn.text("word ")

    async with running_server(Agent("talk", talk), store=backend) as client:
        session_id = await client.new_session("/tmp/w")
        await client.start_prompt(session_id, "go")
        await client.wait_for_update(lambda u: u["sessionUpdate"] == "agent_message_chunk")
    events = await stored_events(backend, session_id)
    assert events[-1].data["reason"]["kind"] in ("completed", "disposed")


@pytest.mark.rule("errors-have-fixed-codes")
async def test_a_prompt_that_is_nested_too_deep_is_refused() -> None:
    async with running_server(ECHO) as client:
        session_id = await client.new_session("/tmp/w")
        await client.prompt(session_id, "one")
        for depth in (185, 195, 205, 240):
            meta: dict[str, object] = {}
            for _ in range(depth):
                meta = {"a": meta}
            block = {"type": "text", "text": "deep", "_meta": meta}
            params = {"sessionId": session_id, "prompt": [block]}
            if depth == 185:
                assert (await client.request("session/prompt", params))["stopReason"] == "end_turn"
                continue
            with pytest.raises(AcpError, match="nested") as caught:
                await client.request("session/prompt", params)
            assert caught.value.code == -32602
        assert (await client.prompt(session_id, "two")).stop_reason == "end_turn"
        await client.close_session(session_id)
        await client.load_session(session_id, "/tmp/w")

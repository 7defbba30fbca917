"""What a generic ACP conformance suite asks of an agent, against the whole server in memory."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_server.agents.agent import Agent
from acp_server.agents.turn import Turn
from acp_server.testing import FILE_CAPABILITIES, AcpError, running_server
from acp_server.turns.errors import PermissionDenied, TurnClosedError
from tests.acp_server.helpers import refused_code

LEGAL_STOP_REASONS = {"end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"}
UNKNOWN = "00000000-dead-4bad-8bad-000000000000"


async def clerk(turn: Turn) -> None:
    """Understands `wait`, `read NAME`, `write NAME`; says anything else back."""
    word, _, name = turn.prompt.partition(" ")
    if word == "wait":
        await turn.text("waiting")
        await anyio.sleep_forever()
    elif word in ("read", "write"):
        await touch(turn, word, name)
    else:
        await turn.text(f"you said {turn.prompt}")


async def touch(turn: Turn, word: str, name: str) -> None:
    kind = {"read": "read", "write": "edit"}[word]
    try:
        async with turn.tool(word, kind=kind, ask=True, arguments={"path": name}) as call:
            if word == "read":
                call.result(await turn.files.read(name))
            else:
                await turn.files.write(name, "written")
    except PermissionDenied:
        await turn.text("so I leave it alone")


CLERK = Agent("clerk", clerk)


@pytest.mark.rule("version-is-answered-one")
async def test_initialize_answers_a_numeric_version_and_capabilities() -> None:
    async with running_server(CLERK) as client:
        result = await client.initialize({})
        assert result["protocolVersion"] == 1
        assert type(result["protocolVersion"]) is int
        assert isinstance(result["agentCapabilities"], dict)


@pytest.mark.rule("new-answers-then-lists-commands")
async def test_a_new_session_has_an_id_of_its_own(tmp_path: Path) -> None:
    async with running_server(CLERK) as client:
        ids = [await client.new_session(tmp_path) for _ in range(3)]
        assert all(ids)
        assert len(set(ids)) == 3


@pytest.mark.rule("response-is-last-of-turn")
async def test_a_turn_shows_something_of_its_own_session_before_its_response_only(
    tmp_path: Path,
) -> None:
    async with running_server(CLERK) as client:
        session_id = await client.new_session(tmp_path)
        await client.new_session(tmp_path)
        before = len(client.updates)
        result = await client.prompt(session_id, "hello")
        assert result.stop_reason in LEGAL_STOP_REASONS
        assert result.text == "you said hello"
        assert {seen.session_id for seen in client.updates[before:]} == {session_id}
        shown = len(client.updates)
        # Two more round trips: whatever came late would be here by now.
        await client.list_sessions()
        await client.list_sessions()
        assert client.updates[shown:] == []


@pytest.mark.rule("cancelled-prompt-answers-cancelled", "cancel-covers-queued-prompts")
async def test_a_cancelled_turn_says_so_and_the_prompt_behind_it_is_a_turn_of_its_own(
    tmp_path: Path,
) -> None:
    async with running_server(CLERK) as client:
        session_id = await client.new_session(tmp_path)
        waiting = await client.start_prompt(session_id, "wait")
        await client.wait_for_update(lambda update: "messageId" in update)
        await client.cancel(session_id)
        behind = await client.start_prompt(session_id, "next")
        assert (await waiting.result()).stop_reason == "cancelled"
        result = await behind.result()
        assert (result.stop_reason, result.text) == ("end_turn", "you said next")


@pytest.mark.rule("idle-cancel-does-nothing")
async def test_a_cancel_while_idle_is_silent(tmp_path: Path) -> None:
    async with running_server(CLERK) as client:
        session_id = await client.new_session(tmp_path)
        await client.prompt(session_id, "one")
        before = len(client.frames)
        await client.cancel(session_id)
        assert await client.list_sessions()
        answers = [frame for frame in client.frames[before:] if frame.sender == "agent"]
        assert len(answers) == 1  # to session/list
        assert (await client.prompt(session_id, "two")).stop_reason == "end_turn"


@pytest.mark.rule("prompts-queue-in-order")
async def test_prompts_in_a_row_are_answered_in_order(tmp_path: Path) -> None:
    async with running_server(CLERK) as client:
        session_id = await client.new_session(tmp_path)
        handles = [await client.start_prompt(session_id, f"n {number}") for number in range(4)]
        texts = [(await handle.result()).text for handle in handles]
        assert texts == [f"you said n {number}" for number in range(4)]


@pytest.mark.rule("empty-prompts-are-refused")
@pytest.mark.parametrize(
    "blocks",
    [
        [],
        [{"type": "text", "text": ""}],
        [{"type": "text", "text": " \n\t"}],
        [{"type": "text", "text": ""}, {"type": "text", "text": "\n"}],
    ],
)
async def test_a_prompt_without_content_is_refused_and_leaves_nothing(
    blocks: list[dict[str, Any]], tmp_path: Path
) -> None:
    async with running_server(CLERK) as client:
        session_id = await client.new_session(tmp_path)
        members = {"sessionId": session_id, "prompt": blocks}
        assert await refused_code(client, "session/prompt", members) == -32602
        assert (await client.list_sessions())["sessions"] == []


@pytest.mark.rule("stop-reason-follows-turn-end")
async def test_a_prompt_without_a_special_answer_is_a_normal_turn(tmp_path: Path) -> None:
    async with running_server(CLERK) as client:
        session_id = await client.new_session(tmp_path)
        result = await client.prompt(session_id, "🦆 \u2028 ничего")
        assert result.stop_reason == "end_turn"
        assert result.text == "you said 🦆 \u2028 ничего"


@pytest.mark.rule("unadvertised-blocks-are-refused")
async def test_a_prompt_may_hold_text_and_links(tmp_path: Path) -> None:
    async with running_server(CLERK) as client:
        session_id = await client.new_session(tmp_path)
        text = {"type": "text", "text": "look at"}
        link = {"type": "resource_link", "uri": "file:///a/b.txt", "name": "b.txt"}
        for blocks in ([text, link], [link]):
            assert (await client.prompt(session_id, blocks)).stop_reason == "end_turn"


@pytest.mark.rule("response-is-last-of-turn")
async def test_work_that_outlives_the_answer_is_before_the_response(tmp_path: Path) -> None:
    async def drive(turn: Turn) -> None:
        async with anyio.create_task_group() as tasks:
            for number in range(3):
                tasks.start_soon(turn.text, f"part {number} ")
            await turn.text("answered ")

    async with running_server(Agent("busy", drive)) as client:
        result = await client.prompt(await client.new_session(tmp_path), "go")
        assert result.text == "answered part 0 part 1 part 2 "


@pytest.mark.rule("response-is-last-of-turn")
async def test_work_that_nobody_waits_for_shows_nothing_after_the_response(tmp_path: Path) -> None:
    turns: list[Turn] = []

    async def drive(turn: Turn) -> None:
        turns.append(turn)
        await turn.text("answered")

    async with running_server(Agent("leaky", drive)) as client:
        await client.prompt(await client.new_session(tmp_path), "go")
        shown = len(client.updates)
        with pytest.raises(TurnClosedError):
            await turns[0].text("late")
        await client.list_sessions()
        assert len(client.updates) == shown


@pytest.mark.rule("bad-params-are-named")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("session/new", {}),
        ("session/new", {"cwd": 7, "mcpServers": []}),
        ("session/new", {"cwd": "relative", "mcpServers": []}),
        ("session/new", {"cwd": "/w", "mcpServers": "none"}),
        ("session/load", {"cwd": "/w", "mcpServers": []}),
        ("session/load", {"sessionId": 7, "cwd": "/w", "mcpServers": []}),
        ("session/prompt", {"prompt": []}),
        ("session/prompt", {"sessionId": "s"}),
        ("session/prompt", {"sessionId": "s", "prompt": "text"}),
        ("session/prompt", {"sessionId": "s", "prompt": [{"text": "no type"}]}),
        ("session/list", {"cwd": "relative"}),
        ("session/list", {"cursor": 7}),
        ("session/list", {"cursor": "bad"}),
        ("authenticate", {}),
    ],
)
async def test_missing_and_ill_typed_params_are_refused(
    method: str, params: dict[str, Any]
) -> None:
    async with running_server(CLERK) as client:
        assert await refused_code(client, method, params) == -32602


@pytest.mark.rule("bad-params-are-named")
async def test_a_null_cwd_is_refused() -> None:
    async with running_server(CLERK) as client:
        params: dict[str, Any] = {"cwd": None, "mcpServers": []}
        assert await refused_code(client, "session/new", params) == -32602


@pytest.mark.rule("bad-params-are-named")
@pytest.mark.parametrize("session_id", [7, None, True, {}, ["s"]])
async def test_a_session_id_that_is_no_string_is_refused(session_id: object) -> None:
    async with running_server(CLERK) as client:
        params = {"sessionId": session_id, "prompt": [{"type": "text", "text": "hi"}]}
        assert await refused_code(client, "session/prompt", params) == -32602


@pytest.mark.rule("unknown-session-is-not-found")
async def test_a_prompt_to_an_unknown_session_names_it() -> None:
    async with running_server(CLERK) as client:
        with pytest.raises(AcpError) as caught:
            await client.prompt(UNKNOWN, "hi")
        assert caught.value.code == -32002
        assert caught.value.data == {"sessionId": UNKNOWN}


@pytest.mark.rule("answer-decides-the-call")
@pytest.mark.parametrize("word", ["read", "write"])
async def test_a_denied_call_fails_and_touches_nothing(word: str, tmp_path: Path) -> None:
    target = tmp_path / "file.txt"
    target.write_text("as it was")
    async with running_server(
        CLERK, capabilities=dict(FILE_CAPABILITIES), permissions=["reject_once"]
    ) as client:
        result = await client.prompt(await client.new_session(tmp_path), f"{word} file.txt")
        assert result.stop_reason == "end_turn"
        assert result.text == "so I leave it alone"
        assert [card.status for card in result.transcript.cards] == ["failed"]
        asked = [frame["method"] for frame in client.agent_requests]
        assert asked == ["session/request_permission"]
    assert target.read_text() == "as it was"


@pytest.mark.rule("answer-decides-the-call")
@pytest.mark.parametrize("word", ["read", "write"])
async def test_an_allowed_call_completes(word: str, tmp_path: Path) -> None:
    target = tmp_path / "file.txt"
    target.write_text("as it was")
    async with running_server(
        CLERK, capabilities=dict(FILE_CAPABILITIES), permissions=["allow_once"]
    ) as client:
        result = await client.prompt(await client.new_session(tmp_path), f"{word} file.txt")
        assert result.stop_reason == "end_turn"
        (card,) = result.transcript.cards
        assert card.status == "completed"
        asked = [frame["method"] for frame in client.agent_requests]
        assert asked == ["session/request_permission", f"fs/{word}_text_file"]
        if word == "read":
            assert "as it was" in str(card)
    assert target.read_text() == ("as it was" if word == "read" else "written")

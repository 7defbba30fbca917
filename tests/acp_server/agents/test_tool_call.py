"""What an author hands to a call is checked where it is handed over."""

from typing import Any

import pytest

from acp_server.agents.agent import Agent
from acp_server.agents.turn import Turn
from acp_server.testing import running_server
from acp_server.turns.errors import ToolArgumentsError
from persistence import open_backend

NOT_JSON = {"NaN": float("nan"), "large": 2**53, "-0.0": -0.0}


@pytest.mark.parametrize("value", NOT_JSON.values(), ids=NOT_JSON)
async def test_arguments_that_no_log_keeps_are_refused_before_anything_is_written(
    value: object,
) -> None:
    async def drive(turn: Turn) -> None:
        with pytest.raises(ToolArgumentsError):
            turn.tool("count", arguments={"value": [value]})
        await turn.text("still here")

    async with running_server(Agent("a", drive)) as client:
        session_id = await client.new_session("/w")
        assert (await client.prompt(session_id, "go")).text == "still here"
        assert client.transcript.cards == ()


@pytest.mark.parametrize("value", NOT_JSON.values(), ids=NOT_JSON)
async def test_a_raw_result_that_no_log_keeps_is_the_failure_of_its_call(value: object) -> None:
    async def drive(turn: Turn) -> None:
        with pytest.raises(ValueError, match="not lossless JSON"):
            async with turn.tool("count") as call:
                call.result("one", raw={"value": value})
        await turn.text("still here")

    async with running_server(Agent("a", drive)) as client:
        session_id = await client.new_session("/w")
        assert (await client.prompt(session_id, "go")).text == "still here"
        assert [card.status for card in client.transcript.cards] == ["failed"]


async def test_a_result_block_that_no_log_keeps_becomes_a_text_that_says_so() -> None:
    blocks: list[dict[str, Any]] = [
        {"type": "chart", "points": [float("nan")]},
        {"type": "chart", "name": "half \ud800"},
    ]

    async def drive(turn: Turn) -> None:
        async with turn.tool("draw \ud800", arguments={"\ud800": "\ud800"}) as call:
            call.update(locations=["/w/\udc80"], content="\ud800")
            call.diff("/w/\udc80", "\ud800", "\ud800")
            call.result(blocks)

    store = open_backend("memory:")
    async with running_server(Agent("a", drive), store=store) as client:
        session_id = await client.new_session("/w")
        assert (await client.prompt(session_id, "go")).stop_reason == "end_turn"
        assert [card.status for card in client.transcript.cards] == ["completed"]
        stored = await store.load_stored(session_id)
    assert stored is not None
    (result,) = (event for event in stored.log.view() if event.type == "tool/result")
    assert result.data["content"] == [
        {"type": "text", "text": "[malformed chart content]"},
        {"type": "chart", "name": "half \ufffd"},
    ]

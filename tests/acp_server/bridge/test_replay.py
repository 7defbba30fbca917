"""A load shows what was shown live: whole, in order, before the response.

Rules: updates-are-what-was-stored, load-replays-before-response, events-project-to-updates.
"""

from collections.abc import Sequence
from typing import Any

import anyio
import orjson
import pytest

from acp_server.agents.agent import Agent
from acp_server.agents.turn import Turn
from acp_server.bridge.cards import ToolCards
from acp_server.bridge.frames import FrameBuilder
from acp_server.bridge.replay import Replay
from acp_server.testing import AcpClient, Card, running_server
from acp_server.turns.errors import PermissionDenied
from persistence import open_backend
from session_core import Session, SessionId, Summary, SurfaceIntent, compact_range

USER = {"kind": "user"}
MODEL = {"provider": "p", "model": "m"}
FAILURE = {"message": "boom", "code": "X"}


def replayed(session: Session, **options: Any) -> list[dict[str, Any]]:
    frames = Replay(FrameBuilder("s"), ToolCards("/w", **options)).frames(session.events.records())
    return [orjson.loads(frame)["params"]["update"] for frame in frames]


def texts(updates: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(u["messageId"], u["content"]["text"]) for u in updates if "messageId" in u]


def started() -> Session:
    session = Session(SessionId("s"))
    session.append("turn/start", {"turn": 1, "trigger": {"kind": "message", "source": USER}})
    content = [{"type": "text", "text": "hi"}]
    session.append("user/message", {"content": content, "source": USER}, SurfaceIntent("append"))
    return session


# -- markers --------------------------------------------------------------------------------


@pytest.mark.rule("markers-have-exact-texts")
@pytest.mark.parametrize(
    ("reason", "marker"),
    [
        ({"kind": "completed"}, None),
        ({"kind": "aborted"}, None),
        ({"kind": "error", "step": 1, "message": "m"}, None),
        (
            {"kind": "error", "step": 1, "failure": FAILURE},
            "\n\n[Model attempt failed; any partial output above is discarded: boom]\n\n",
        ),
        (
            {"kind": "interrupted"},
            "\n\n[Interrupted: the server stopped before this turn ended]\n\n",
        ),
        ({"kind": "disposed"}, "\n\n[Interrupted: the server stopped before this turn ended]\n\n"),
        ({"kind": "of-the-future"}, None),
    ],
)
def test_a_turn_end_has_the_marker_that_its_reason_asks_for(reason: Any, marker: Any) -> None:
    session = started()
    end = session.append("turn/end", {"turn": 1, "reason": reason})
    shown = [(f"m{end.seq}", marker)] if marker else []
    assert texts(replayed(session)) == [("u1", "hi"), *shown]


@pytest.mark.rule("markers-have-exact-texts")
@pytest.mark.parametrize("kind", ["interrupted", "disposed"])
@pytest.mark.parametrize(
    "code", ["TOOL_NOT_STARTED", "TOOL_OUTCOME_UNKNOWN", "ABORTED", "ABORTED_BEFORE_DISPATCH"]
)
def test_a_turn_whose_calls_were_closed_needs_no_marker(kind: str, code: str) -> None:
    session = started()
    step = {"turn": 1, "step": 1}
    session.append("step/start", step)
    block = {"type": "tool-call", "id": "c", "name": "t", "arguments": "{}"}
    session.append(
        "assistant/message",
        {**step, "content": [block], "provenance": MODEL},
        SurfaceIntent("append"),
    )
    call = session.append("tool/call", {**step, "callId": "c", "name": "t", "arguments": "{}"})
    session.append(
        "tool/result",
        {
            **step,
            "callId": "c",
            "content": [],
            "isError": True,
            "error": {"name": "E", "code": code},
        },
        SurfaceIntent("append", [call.seq]),
    )
    session.append("step/end", step)
    session.append("turn/end", {"turn": 1, "reason": {"kind": kind}})
    assert texts(replayed(session)) == [("u1", "hi")]


@pytest.mark.rule("markers-have-exact-texts")
def test_a_blocked_prompt_shows_its_content_then_its_marker() -> None:
    session = Session(SessionId("s"))
    session.append("turn/start", {"turn": 1, "trigger": {"kind": "message", "source": USER}})
    content = [{"type": "text", "text": "rm"}]
    session.append("prompt/blocked", {"content": content, "source": USER, "reason": "no"})
    assert texts(replayed(session)) == [("u1", "rm"), ("m1", "\n\n[Prompt blocked: no]\n\n")]


# -- messages -------------------------------------------------------------------------------


@pytest.mark.rule("message-ids-come-from-seqs", "replayed-text-is-joined-deltas")
def test_an_assembled_message_without_chunks_is_shown_under_its_own_seq() -> None:
    session = started()
    step = {"turn": 1, "step": 1}
    session.append("step/start", step)
    content = [{"type": "reasoning", "text": "hm"}, {"type": "text", "text": "yes"}]
    session.append(
        "assistant/message",
        {**step, "content": content, "provenance": MODEL},
        SurfaceIntent("append"),
    )
    assert texts(replayed(session)) == [("u1", "hi"), ("t3", "hm"), ("a3", "yes")]


@pytest.mark.rule("message-ids-come-from-seqs")
def test_all_blocks_of_a_message_share_the_id_of_its_first_chunk() -> None:
    session = started()
    session.append("step/start", {"turn": 1, "step": 1})
    for index, (kind, text) in enumerate(
        [("text-delta", "a"), ("reasoning-delta", "b"), ("text-delta", "c")]
    ):
        session.append_delta(1, 1, kind, index, text)  # type: ignore[arg-type]
    assert texts(replayed(session)) == [("u1", "hi"), ("a3", "a"), ("t3", "b"), ("a3", "c")]


@pytest.mark.rule(
    "log-only-ever-grows", "compaction-shortens-models-history", "compaction-is-bracketed"
)
@pytest.mark.case("B47")
async def test_a_compacted_history_replays_all_that_was_said() -> None:
    session = started()
    step = {"turn": 1, "step": 1}
    session.append("step/start", step)
    content = [{"type": "text", "text": "yes"}]
    session.append(
        "assistant/message",
        {**step, "content": content, "provenance": MODEL},
        SurfaceIntent("append"),
    )
    session.append("step/end", step)
    session.append("turn/end", {"turn": 1, "reason": {"kind": "completed"}})
    before = replayed(session)
    nodes = list(session.surface.nodes)

    async def summarize(_messages: Any) -> Summary:
        return Summary("they greeted", "p", "m", 10)

    await compact_range(session, nodes[0], nodes[-1], summarize)
    assert len(session.derive_messages()) == 1
    assert replayed(session) == before


# -- whole sessions -------------------------------------------------------------------------


async def everything(turn: Turn) -> None:
    """One call of every sort (B40)."""
    await turn.thought("hm")
    await turn.todos(["a", ("b", "in_progress")])
    await turn.text("see ")
    async with turn.tool("shell", title="ls", kind="execute", console="List") as call:
        call.console("a\nb\n", exit_code=0)
    async with turn.tool("shell", title="false", kind="execute", console=True) as call:
        call.console("", exit_code=3)
    async with turn.tool("read", kind="read", arguments={"path": "a"}) as call:
        call.update(title="Read /w/a", locations=[("a", 10)])
        call.result("line 10")
    async with turn.tool("write", kind="edit", diff=("new.txt", None, "x")) as call:
        call.result("Wrote new.txt")
    async with turn.tool("edit", kind="edit") as call:
        call.diff("old.txt", "a\nb", "a\nB")
    async with turn.tool("draw", kind="fetch") as call:
        call.result([{"type": "image", "data": "AA==", "mimeType": "image/png"}], raw={"n": 1})
    try:
        async with turn.tool("denied", ask=True):
            pass
    except PermissionDenied:
        await turn.text("no? ")
    try:
        async with turn.tool("broken", arguments={"x": None}):
            message = "it broke"
            raise ValueError(message)
    except ValueError:
        await turn.text("well.")


@pytest.mark.rule("cards-are-stored", "load-replays-before-response")
@pytest.mark.case("B40", "B39")
async def test_replayed_calls_look_like_the_live_ones() -> None:
    backend = open_backend("memory:")
    agent = Agent("a", everything)
    async with running_server(agent, store=backend, permissions=["reject_once"]) as client:
        session_id = await client.new_session("/w")
        await client.prompt(session_id, "go")
        live = client.transcript
        live_raw = raw_outputs(client, session_id)
    async with running_server(agent, store=backend, series=1) as client:
        await client.load_session(session_id, "/w")
        assert client.transcript.difference(live) == ""
        assert raw_outputs(client, session_id) == live_raw == [{"n": 1}]
    assert [card.status for card in live.cards] == [*["completed"] * 6, "failed", "failed"]


def raw_outputs(client: AcpClient, session_id: str) -> list[Any]:
    return [u["rawOutput"] for u in client.updates_of(session_id) if "rawOutput" in u]


@pytest.mark.rule("load-replays-before-response")
@pytest.mark.case("B39")
async def test_a_long_session_replays_wholly_before_the_response() -> None:
    async def drive(turn: Turn) -> None:
        await turn.text(f"answer to {turn.prompt}")

    backend = open_backend("memory:")
    async with running_server(Agent("a", drive), store=backend) as client:
        session_id = await client.new_session("/w")
        for number in range(150):
            await client.prompt(session_id, f"prompt {number}")
        live = client.transcript
    async with running_server(Agent("a", drive), store=backend, series=1) as client:
        result = await client.load_session(session_id, "/w")
        assert isinstance(result, dict)
        assert "sessionId" not in result
        history = len(client.updates_of(session_id))
        await client.list_sessions()
        assert client.transcript == live
        assert len(client.transcript.user) == 150
        after = [u["sessionUpdate"] for u in client.updates_of(session_id)[history:]]
        assert set(after) <= {"available_commands_update", "usage_update"}


@pytest.mark.rule("initialize-may-come-again")
async def test_another_initialize_changes_no_open_session() -> None:
    go_on = anyio.Event()

    async def drive(turn: Turn) -> None:
        async with turn.tool("shell", kind="execute", console=True) as call:
            await go_on.wait()
            call.console("out", exit_code=0)

    with_cards = {"_meta": {"terminal_output": True}}
    async with running_server(Agent("a", drive), capabilities=with_cards) as client:
        session_id = await client.new_session("/w")
        handle = await client.start_prompt(session_id, "go")
        await client.wait_for_update(lambda update: update.get("status") == "in_progress")
        await client.initialize({})
        go_on.set()
        await handle.result()
        final = client.updates_of(session_id)[-1]
        assert final["_meta"]["terminal_output"]["data"] == "out"
        other = await client.new_session("/w")
        await client.prompt(other, "go")
        assert "_meta" not in client.updates_of(other)[-1]


@pytest.mark.rule("running-calls-replay-open")
async def test_an_open_call_of_a_running_turn_replays_as_it_stands() -> None:
    go_on = anyio.Event()

    async def drive(turn: Turn) -> None:
        async with turn.tool("work", title="Work"):
            await go_on.wait()

    async with running_server(Agent("a", drive)) as client:
        session_id = await client.new_session("/w")
        handle = await client.start_prompt(session_id, "go")
        await client.wait_for_update(lambda update: update.get("status") == "in_progress")
        await client.load_session(session_id, "/w")
        (card,) = client.transcript.cards
        assert card.status == "in_progress"
        go_on.set()
        await handle.result()
        (card,) = client.transcript.cards
        assert isinstance(card, Card)
        assert card.status == "completed"


# -- size -----------------------------------------------------------------------------------


@pytest.mark.rule("long-text-goes-in-pieces", "results-are-bounded")
@pytest.mark.case("B77")
async def test_huge_output_makes_small_frames_and_says_how_large_it_was() -> None:
    huge = "0123456789abcdef\n" * 100_000
    seen: list[Any] = []

    async def drive(turn: Turn) -> None:
        if turn.prompt == "look":
            seen.extend(turn.history)
            return
        async with turn.tool("shell", kind="execute", console=True) as call:
            call.console(huge, exit_code=0)
        async with turn.tool("read", arguments={"content": huge}) as call:
            call.result(huge)
        async with turn.tool("write", kind="edit") as call:
            call.diff("a.txt", huge, "x")
            call.result([{"type": "image", "data": "A" * (1 << 20), "mimeType": "image/png"}])
        try:
            async with turn.tool("fail"):
                raise ValueError(huge)
        except ValueError:
            pass

    async with running_server(Agent("a", drive)) as client:
        session_id = await client.new_session("/w")
        await client.prompt(session_id, "go")
        sent = [frame.data for frame in client.frames if frame.sender == "agent"]
        await client.prompt(session_id, "look")
        cards = client.transcript.cards
    assert max(map(len, sent)) < 1 << 20
    assert sum(map(len, sent)) < 4 * 4 * (1 << 16)
    first, second, third, fourth = (card.content[0]["content"]["text"] for card in cards)
    for shown, size in ((first, 0), (second, 0), (fourth, len("ValueError: "))):
        assert f" of {len(huge) + size} bytes left out ...]" in shown
    assert third == "[image of 1048576 base64 characters left out]"
    results = [b for m in seen for b in m["content"] if b["type"] == "tool-result"]
    told = [block["content"][0]["text"] for block in results]
    assert told[1] == second
    assert told[0] in first
    assert max(map(len, told)) < 1 << 17

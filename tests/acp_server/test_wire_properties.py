"""Properties of a whole connection: paging, cancels, repair, replay, no nulls."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest

from acp_server.agents.agent import Agent
from acp_server.agents.turn import Turn
from acp_server.testing import FILE_CAPABILITIES, AcpClient, running_server
from persistence import open_backend
from tests.acp_server.helpers import refused_code

FREE_OF_NULL_RULE = ("rawInput", "rawOutput", "_meta", "oldText")
FINAL = ("completed", "failed")
EDGE = Path(__file__).parents[2] / "fixtures" / "agents" / "edge.py"


async def everything(turn: Turn) -> None:
    """A turn with every kind of update in it."""
    await turn.thought("hm ")
    await turn.todos([("look", "in_progress"), "write"])
    await turn.text("looking ")
    async with turn.tool("read", kind="read", arguments={"n": None}, locations=[("a", 3)]) as call:
        call.result("content")
    async with turn.tool("write", kind="edit", diff=("new.txt", None, "new"), ask=True) as call:
        call.result("written")
    try:
        async with turn.tool("break", kind="execute"):
            message = "broken"
            raise LookupError(message)
    except LookupError:
        await turn.text("it broke ")
    await turn.todos([])
    await turn.title("all of it")


EVERYTHING = Agent("everything", everything)


async def waits(turn: Turn) -> None:
    """Waits where the prompt says, until it is cancelled."""
    if turn.prompt == "model":
        await turn.text("thinking")
        await anyio.sleep_forever()
    elif turn.prompt == "tool":
        async with turn.tool("shell", kind="execute"):
            await anyio.sleep_forever()
    elif turn.prompt == "permission":
        await turn.ask("May I?")
    await turn.text(turn.prompt)


WAITS = Agent("waits", waits)


# Replay.


@pytest.mark.rule("updates-are-what-was-stored", "call-ends-exactly-once")
async def test_a_replay_folds_to_the_live_transcript_with_every_call_ended(tmp_path: Path) -> None:
    backend = open_backend("memory:")
    async with running_server(EVERYTHING, store=backend, permissions=["allow_once"]) as client:
        session_id = await client.new_session(tmp_path)
        await client.prompt(session_id, "go")
        live = client.transcript
    async with running_server(EVERYTHING, store=backend, series=1) as client:
        await client.load_session(session_id, tmp_path)
        assert client.transcript == live
        assert [card.status for card in live.cards] == ["completed", "completed", "failed"]
        assert len(live.plans) == 2
        replayed = client.updates_of(session_id)
        assert all(u["status"] in FINAL for u in replayed if u["sessionUpdate"] == "tool_call")
        assert all(u["sessionUpdate"] not in ("tool_call_update", "notice") for u in replayed)
        contents = [c for u in replayed if "toolCallId" in u for c in u.get("content", ())]
        assert contents
        assert all(content["type"] != "terminal" for content in contents)


def nulls(value: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of nulls where none may be."""
    if value is None:
        yield path
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from nulls(item, f"{path}[{number}]")
    elif isinstance(value, dict):
        for name, item in value.items():
            if name not in FREE_OF_NULL_RULE:
                yield from nulls(item, f"{path}.{name}")


@pytest.mark.rule("frames-hold-no-null", "frames-fit-the-schema", "stdout-has-frames-only")
async def test_no_frame_holds_a_null_but_where_the_protocol_needs_it(tmp_path: Path) -> None:
    async with running_server(EVERYTHING, permissions=["allow_once"]) as client:
        session_id = await client.new_session(tmp_path)
        await client.prompt(session_id, "go")
        await client.load_session(session_id, tmp_path)
        await client.list_sessions()
        assert await refused_code(client, "session/nope", {}) == -32601
        await client.send_raw(b"garbage\n")
        assert await refused_code(client, "session/new", {"cwd": None}) == -32602
        frames = [orjson.loads(f.data) for f in client.frames if f.sender == "agent"]
    assert sum(frame.get("id", 0) is None for frame in frames) == 1
    found = [place for frame in frames for place in nulls({**frame, "id": 0})]
    assert found == []
    diffs = [frame for frame in frames if b'"oldText":null' in orjson.dumps(frame)]
    assert diffs


# Repair.


@pytest.mark.rule("torn-tail-is-cut")
@pytest.mark.case("B51")
@pytest.mark.parametrize("tail", [b"", b"\n", b'{"type":"turn/', b"\x00" * 40, b"garbage\n"])
async def test_a_torn_last_line_is_repaired_and_the_session_goes_on(
    tail: bytes, tmp_path: Path
) -> None:
    store = f"jsonl:{tmp_path / 'store'}"
    async with running_server(WAITS, store=store) as client:
        session_id = await client.new_session(tmp_path)
        await client.prompt(session_id, "naïve 😀")
        live = client.transcript
    (log,) = (tmp_path / "store").glob("*/*/session.jsonl")
    whole = log.read_bytes()
    log.write_bytes(whole + tail if tail else whole[:-1])
    for series, prompt in enumerate(["second", "third"], 1):
        async with running_server(WAITS, store=store, series=series) as client:
            await client.load_session(session_id, tmp_path)
            loaded = client.transcript
            assert loaded.text.startswith(live.text)
            assert (await client.prompt(session_id, prompt)).text == prompt
    lines = log.read_bytes().split(b"\n")
    assert lines.pop() == b""
    assert all(isinstance(orjson.loads(line), dict) for line in lines)
    assert log.read_bytes().startswith(whole)


# Cancel.


async def waiting_at(client: AcpClient, session_id: str, place: str) -> Any:
    """Start a prompt and return it once it waits there."""
    seen = len(client.updates)
    handle = await client.start_prompt(session_id, place)
    if place == "permission":
        await client.wait_for_agent_request("session/request_permission")
    elif place == "tool":
        await client.wait_for_update(lambda u: u.get("status") == "in_progress", after=seen)
    else:
        await client.wait_for_update(lambda u: "messageId" in u, after=seen)
    return handle


@pytest.mark.rule(
    "cancelled-prompt-answers-cancelled",
    "idle-cancel-does-nothing",
    "cancel-closes-open-calls",
    "cancel-withdraws-client-requests",
)
@pytest.mark.parametrize("place", ["idle", "model", "tool", "permission"])
@pytest.mark.parametrize("times", [1, 2])
async def test_a_cancel_ends_what_runs_and_leaves_the_next_prompt_alone(
    place: str, times: int, tmp_path: Path
) -> None:
    async with running_server(WAITS, never_answer=["session/request_permission"]) as client:
        session_id = await client.new_session(tmp_path)
        handle = None if place == "idle" else await waiting_at(client, session_id, place)
        for _ in range(times):
            # As a client does that forgets the question along with the prompt.
            await client.notify("session/cancel", {"sessionId": session_id})
        behind = await client.start_prompt(session_id, "next")
        if handle is not None:
            result = await handle.result()
            assert result.stop_reason == "cancelled"
            expected = {"model": [], "tool": ["failed"], "permission": ["failed"]}
            assert [card.status for card in result.transcript.cards] == expected[place]
        ended = await behind.result()
        assert (ended.stop_reason, ended.text) == ("end_turn", "next")


@pytest.mark.rule("request-cancel-covers-one-prompt")
async def test_a_request_cancel_covers_that_prompt_alone(tmp_path: Path) -> None:
    async with running_server(WAITS) as client:
        session_id = await client.new_session(tmp_path)
        running = await waiting_at(client, session_id, "model")
        queued = await client.start_prompt(session_id, "tool")
        last = await client.start_prompt(session_id, "last")
        await client.cancel_request(queued.pending.request_id)
        assert (await queued.result()).stop_reason == "cancelled"
        assert not running.done
        await client.cancel_request("no such id")
        await client.cancel_request(running.pending.request_id)
        assert (await running.result()).stop_reason == "cancelled"
        assert (await last.result()).text == "last"


@pytest.mark.rule("request-cancel-covers-one-prompt")
async def test_a_cancelled_load_is_answered_so_and_the_session_loads_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_args: object, **_options: object) -> Any:
        await anyio.sleep_forever()

    backend = open_backend("memory:")
    async with running_server(WAITS, store=backend) as client:
        session_id = await client.new_session(tmp_path)
        await client.prompt(session_id, "hello")
    async with running_server(WAITS, store=backend, series=1) as client:
        load = {
            "jsonrpc": "2.0",
            "id": "load",
            "method": "session/load",
            "params": {"sessionId": session_id, "cwd": str(tmp_path), "mcpServers": []},
        }
        cancel = {"method": "$/cancel_request", "params": {"requestId": "load"}}
        both = [load, {"jsonrpc": "2.0", **cancel}]
        monkeypatch.setattr(backend, "load_stored", never)
        await client.send_raw(b"".join(orjson.dumps(frame) + b"\n" for frame in both))
        answer = await client.wait_for_frame(lambda frame: frame.get("id") == "load")
        assert answer["error"]["code"] == -32800
        monkeypatch.undo()
        await client.load_session(session_id, tmp_path)
        assert client.transcript.text == "hello"


# Lists.


async def pages(client: AcpClient, cwd: Path | None = None) -> list[list[str]]:
    found: list[list[str]] = []
    cursor: str | None = None
    while cursor is not None or not found:
        page = await client.list_sessions(cwd, cursor)
        found.append([row["sessionId"] for row in page["sessions"]])
        cursor = page.get("nextCursor")
    return found


@pytest.mark.rule("list-pages-newest-first", "list-rows-fold-the-log")
async def test_pages_are_bounded_and_stable_while_sessions_come_and_change(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    async with running_server(WAITS) as client:
        made = []
        for number in range(120):
            made.append(await client.new_session(there if number % 12 == 0 else here))
            await client.prompt(made[-1], f"n {number}")
        assert [len(page) for page in await pages(client)] == [50, 50, 20]
        assert [i for page in await pages(client) for i in page] == made[::-1]
        assert await pages(client, there) == [made[::12][::-1]]
        assert await pages(client, tmp_path) == [[]]
        first = await client.list_sessions()
        new = await client.new_session(here)
        await client.prompt(new, "new")
        await client.prompt(made[0], "touched")
        second = await client.list_sessions(cursor=first["nextCursor"])
        third = await client.list_sessions(cursor=second["nextCursor"])
        assert "nextCursor" not in third
        rest = [row["sessionId"] for page in (second, third) for row in page["sessions"]]
        assert rest == made[69:0:-1]  # the touched one has moved to the front
        assert (await pages(client))[0][:2] == [made[0], new]
        for cursor in ("", "bad", "AAAA", first["nextCursor"] + "x", first["nextCursor"][:-1]):
            assert await refused_code(client, "session/list", {"cursor": cursor}) == -32602


# The same talk twice.


async def recorded_talk(store: Path, cwd: Path) -> list[bytes]:
    """Hold a fixed talk with a fresh process whose clock and ids are injected."""
    argv = [sys.executable, "-m", "acp_server.testing.serve", "--agent", f"{EDGE}:reader"]
    async with AcpClient.spawn([*argv, "--store", f"jsonl:{store}"]) as client:
        await client.initialize(dict(FILE_CAPABILITIES))
        session_id = await client.new_session(cwd)
        await client.prompt(session_id, "say hello")
        await client.prompt(session_id, "a.txt")
        await client.load_session(session_id, cwd)
        await client.list_sessions()
        assert await refused_code(client, "session/nope", {}) == -32601
        assert await refused_code(client, "session/prompt", {"sessionId": session_id}) == -32602
        await client.send_raw(b"garbage\n")
        await client.close_session(session_id)
        return [frame.data for frame in client.frames]


@pytest.mark.rule("same-input-gives-same-frames", "frames-fit-the-schema")
async def test_the_same_lines_of_the_client_are_answered_by_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("content")
    first = await recorded_talk(tmp_path / "first", tmp_path)
    second = await recorded_talk(tmp_path / "second", tmp_path)
    assert len(first) > 25
    assert first == second

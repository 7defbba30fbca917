"""session/new, load and resume: what is refused, what is answered, and what follows the answer."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_server.agents.agent import Agent
from acp_server.agents.turn import Turn
from acp_server.bridge.open_session import OpenSession
from acp_server.testing import AcpClient, AcpError, CountingIds, SteppingClock, running_server
from persistence import SessionRepository, StorageBackend, open_backend
from persistence.memory import MemoryBackend
from persistence.storage import StoredLog
from session_core import APPEND, Replace, SessionStore, SurfaceIntent
from tests.acp_server.helpers import ECHO, refused

Entry = tuple[str, dict[str, Any]] | tuple[str, dict[str, Any], SurfaceIntent]

USER = {"kind": "user"}
PLUGIN = {"kind": "plugin", "plugin": "test"}
MODEL = {"provider": "p", "model": "m"}
UNKNOWN = "00000000-dead-4bad-8bad-000000000000"
OUT_OF_TURN = {
    "available_commands_update",
    "current_mode_update",
    "config_option_update",
    "session_info_update",
    "usage_update",
}


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


async def stored_log(
    backend: StorageBackend, entries: Iterable[Entry], cwd: str | None = "/tmp/w"
) -> str:
    """Store a log as another program would have left it; return the session's id."""
    store = SessionStore(clock=SteppingClock(), new_id=CountingIds(9), invariants=False)
    async with SessionRepository(backend, store) as persistence:
        session = store.create(cwd=cwd)
        for entry in entries:
            session.append(*entry)
        await persistence.flush(session)
    return session.id


def turn_of(number: int, *inside: Entry, prompt: str = "hi", ends: bool = True) -> list[Entry]:
    start: Entry = ("turn/start", {"turn": number, "trigger": {"kind": "message", "source": USER}})
    said: Entry = ("user/message", {"content": [text_block(prompt)], "source": USER}, APPEND)
    end: Entry = ("turn/end", {"turn": number, "reason": {"kind": "completed"}})
    return [start, said, *inside, *([end] if ends else [])]


def agent_frames(client: AcpClient) -> list[dict[str, Any]]:
    return [json.loads(frame.data) for frame in client.frames if frame.sender == "agent"]


@pytest.mark.rule("any-absolute-cwd-is-taken")
@pytest.mark.case("B25")
@pytest.mark.parametrize("cwd", ["rel", "", "~", "~/x", "C:\\Users\\me", "\\\\?\\C:\\x", None, 7])
async def test_a_working_directory_that_is_not_absolute_is_refused(cwd: Any) -> None:
    async with running_server(ECHO) as client:
        for method in ("session/new", "session/load", "session/resume"):
            error = await refused(client, method, {"cwd": cwd, "sessionId": UNKNOWN})
            assert error.code == -32602
        assert (await client.list_sessions())["sessions"] == []


@pytest.mark.rule("directories-are-complete-lists", "any-absolute-cwd-is-taken")
@pytest.mark.case("B25")
async def test_directories_are_taken_as_they_are_and_relative_ones_refused() -> None:
    seen: list[tuple[str, ...]] = []

    async def look(turn: Turn) -> None:
        seen.append(turn.additional_directories)

    backend = open_backend("memory:")
    async with running_server(Agent("look", look), store=backend) as client:
        params = {"cwd": "/tmp/none/such", "mcpServers": []}
        bad = {**params, "additionalDirectories": ["/a", "b"]}
        assert (await refused(client, "session/new", bad)).code == -32602
        session_id = await client.new_session("/tmp/none/such", additionalDirectories=["/a", "/b"])
        await client.prompt(session_id, "look")
        bad = {**bad, "sessionId": session_id}
        assert (await refused(client, "session/load", bad)).code == -32602
        await client.load_session(session_id, "/tmp/none/such", additionalDirectories=["/c"])
        await client.prompt(session_id, "look")
        await client.resume_session(session_id, "/tmp/none/such")
        await client.prompt(session_id, "look")
        assert seen == [("/a", "/b"), ("/c",), ()]


@pytest.mark.rule("extra-members-are-accepted")
@pytest.mark.case("B14")
@pytest.mark.parametrize(
    "members",
    [
        {},
        {"mcpServers": None},
        {"mcpServers": [], "_meta": None},
        {"mcpServers": [], "additionalDirectories": None},
        {"mcpServers": [], "future": {"x": 1}, "_meta": {"traceparent": "00-0-0-00"}},
        {"mcpServers": [{"name": "m", "command": "/bin/true", "args": [], "env": None}]},
        {"mcpServers": [{"name": "m", "command": "/bin/true", "args": [], "type": "stdio"}]},
    ],
)
async def test_optional_members_may_be_missing_null_or_unknown(members: dict[str, Any]) -> None:
    async with running_server(ECHO) as client:
        result = await client.request("session/new", {"cwd": "/tmp/w", **members})
        assert set(result) <= {"sessionId", "modes", "configOptions", "_meta"}
        block = {"type": "text", "text": "hi", "annotations": None}
        params = {"sessionId": result["sessionId"], "prompt": [block], "_meta": {"a": 1}}
        assert (await client.request("session/prompt", params)) == {"stopReason": "end_turn"}
        for listing in ({}, {"cwd": None, "cursor": None}):
            assert len((await client.request("session/list", listing))["sessions"]) == 1


@pytest.mark.rule("warnings-stand-in-meta", "mcp-servers-are-accepted")
@pytest.mark.case("B26", "B14")
async def test_each_server_that_is_not_started_is_named_once_and_never_in_a_message() -> None:
    servers = [
        {"name": "ok", "command": "/bin/cat", "args": [], "env": []},
        {"name": "ok", "command": "/bin/cat", "args": [], "env": []},
        {"type": "http", "name": "web", "url": "http://127.0.0.1:1", "headers": []},
        {"name": "half"},
        17,
    ]
    notices: dict[str, Any] = {"session": {"notices": {}}}
    async with running_server(ECHO, capabilities=notices) as client:
        result = await client.request("session/new", {"cwd": "/tmp/w", "mcpServers": servers})
        warnings = result["_meta"]["acp-session-server"]["warnings"]
        assert [warning.get("server") for warning in warnings] == ["ok", "web", "half", None]
        assert {warning["code"] for warning in warnings} == {"mcp-server-not-started"}
        session_id = result["sessionId"]
        assert (await client.prompt(session_id, "hi")).text == "hi"
        shown = [u for u in client.updates_of(session_id) if u["sessionUpdate"] == "notice"]
        assert [update["title"] for update in shown] == [warning["message"] for warning in warnings]
        again = await client.load_session(session_id, "/tmp/w")
        assert "_meta" not in again
        resumed = await client.resume_session(session_id, "/tmp/w", mcpServers=servers[:1])
        assert len(resumed["_meta"]["acp-session-server"]["warnings"]) == 1


@pytest.mark.rule("client-methods-need-capability")
async def test_a_client_without_notices_gets_none() -> None:
    servers = [{"name": "ok", "command": "/bin/cat", "args": [], "env": []}]
    async with running_server(ECHO) as client:
        session_id = await client.new_session("/tmp/w", mcpServers=servers)
        await client.prompt(session_id, "hi")
        kinds = {update["sessionUpdate"] for update in client.updates_of(session_id)}
        assert "notice" not in kinds


@pytest.mark.rule("new-answers-then-lists-commands", "session-updates-follow-introduction")
@pytest.mark.case("B17")
@pytest.mark.parametrize("method", ["session/new", "session/load", "session/resume"])
async def test_what_is_sent_of_a_session_follows_the_response_that_introduces_it(
    method: str,
) -> None:
    backend = open_backend("memory:")
    known = await stored_log(backend, turn_of(1))
    async with running_server(ECHO, store=backend) as client:
        result = await client.request(method, {"cwd": "/tmp/w", "sessionId": known})
        session_id = result.get("sessionId", known)
        await client.wait_for_update(lambda u: u["sessionUpdate"] == "available_commands_update")
        await client.prompt(session_id, "go")
        frames = agent_frames(client)
        answer = next(n for n, f in enumerate(frames) if f.get("id") == 1 and "result" in f)
        about = [n for n, f in enumerate(frames) if "update" in f.get("params", {})]
        variants = [frames[n]["params"]["update"]["sessionUpdate"] for n in about]
        if method == "session/load":
            # Some clients take a replay only before the answer, and settings only in it.
            assert variants[: variants.index("available_commands_update")] == ["user_message_chunk"]
        else:
            assert min(about) > answer
            before_text = variants[: variants.index("agent_message_chunk")]
            assert set(before_text) <= OUT_OF_TURN
        assert about[variants.index("available_commands_update")] > answer


@pytest.mark.rule("unknown-session-is-not-found")
@pytest.mark.case("B15")
async def test_an_unknown_session_is_not_found_and_nothing_comes_of_asking() -> None:
    async with running_server(ECHO) as client:
        here = {"sessionId": UNKNOWN, "cwd": "/tmp/w"}
        asked: dict[str, dict[str, Any]] = {
            "session/load": here,
            "session/resume": here,
            "session/prompt": {"sessionId": UNKNOWN, "prompt": [text_block("x")]},
            "session/set_mode": {"sessionId": UNKNOWN, "modeId": "ask"},
            "session/set_config_option": {
                "sessionId": UNKNOWN,
                "configId": "mode",
                "value": "ask",
            },
        }
        for method, params in asked.items():
            error = await refused(client, method, params)
            assert (error.code, error.data) == (-32002, {"sessionId": UNKNOWN})
        assert await client.close_session(UNKNOWN) == {}
        assert await client.delete_session(UNKNOWN) == {}
        await client.cancel(UNKNOWN)
        assert (await client.list_sessions())["sessions"] == []
        strange = {"sessionId": "../../etc/passwd", "cwd": "/tmp/w"}
        assert (await refused(client, "session/load", strange)).code == -32002


@pytest.mark.rule("load-checks-before-opening", "unknown-session-is-not-found")
async def test_a_load_can_be_tried_again_when_the_session_is_there() -> None:
    backend = open_backend("memory:")
    async with running_server(ECHO, store=backend) as client:
        session_id = str(CountingIds(9)())
        params = {"sessionId": session_id, "cwd": "/tmp/w"}
        assert (await refused(client, "session/load", params)).code == -32002
        assert await stored_log(backend, turn_of(1)) == session_id
        await client.load_session(session_id, "/tmp/w")
        assert (await client.prompt(session_id, "on")).text == "on"


@pytest.mark.rule("each-load-replays", "load-replays-before-response")
@pytest.mark.case("B39")
async def test_two_loads_in_one_packet_each_replay_one_after_the_other() -> None:
    backend = open_backend("memory:")
    session_id = await stored_log(backend, turn_of(1, prompt="once"))
    async with running_server(ECHO, store=backend) as client:
        params = {"sessionId": session_id, "cwd": "/tmp/w", "mcpServers": []}
        first = await client.start_request("session/load", params)
        second = await client.start_request("session/load", params)
        for pending in (first, second):
            with anyio.fail_after(5):
                await pending.answered.wait()
            assert "modes" in pending.outcome()
        frames = agent_frames(client)
        order = [
            "answer" if "id" in frame else frame["params"]["update"]["sessionUpdate"]
            for frame in frames[1:]
        ]
        replay, commands = "user_message_chunk", "available_commands_update"
        assert order[:4] == [replay, "answer", commands, replay]
        await client.load_session(session_id, "/tmp/w")
        assert [u["content"]["text"] for u in client.updates_of(session_id) if "content" in u] == [
            "once"
        ]


@pytest.mark.rule("load-during-turn-loses-nothing", "each-load-replays")
async def test_a_load_during_a_turn_shows_each_frame_once_and_the_rest_after_the_answer() -> None:
    go_on = anyio.Event()

    async def slow(turn: Turn) -> None:
        await turn.text("first ")
        async with turn.tool("wait") as call:
            await go_on.wait()
            call.result("done")
        await turn.text("second")

    async with running_server(Agent("slow", slow)) as client:
        session_id = await client.new_session("/tmp/w")
        handle = await client.start_prompt(session_id, "go")
        await client.wait_for_update(lambda u: u.get("status") == "in_progress")
        await client.load_session(session_id, "/tmp/w")
        card = client.transcript.cards[0]
        assert card.status in ("pending", "in_progress")
        go_on.set()
        assert (await handle.result()).stop_reason == "end_turn"
        assert client.transcript.text == "first second"
        assert [c.status for c in client.transcript.cards] == ["completed"]


class SlowBackend(MemoryBackend):
    """Reads a log only when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.go_on = anyio.Event(), anyio.Event()

    async def load_stored(self, session_id: str) -> StoredLog | None:
        self.asked.set()
        await self.go_on.wait()
        return await super().load_stored(session_id)


@pytest.mark.rule("load-during-turn-loses-nothing", "each-load-replays", "prompts-queue-in-order")
@pytest.mark.parametrize("ends", ["runs", "session/cancel", "$/cancel_request"])
async def test_a_prompt_behind_a_load_waits_for_it_and_a_cancel_reaches_it(ends: str) -> None:
    backend = SlowBackend()
    backend.go_on.set()
    session_id = await stored_log(backend, turn_of(1))
    backend.asked, backend.go_on = anyio.Event(), anyio.Event()
    async with running_server(ECHO, store=backend) as client:
        params = {"sessionId": session_id, "cwd": "/tmp/w", "mcpServers": []}
        load = await client.start_request("session/load", params)
        await backend.asked.wait()
        handle = await client.start_prompt(session_id, "behind")
        setting = await client.start_request(
            "session/set_mode", {"sessionId": session_id, "modeId": "read-only"}
        )
        if ends == "session/cancel":
            await client.cancel(session_id)
        elif ends == "$/cancel_request":
            await client.cancel_request(handle.pending.request_id)
        await client.list_sessions()
        assert not load.answered.is_set()
        assert handle.done is (ends != "runs")
        backend.go_on.set()
        result = await handle.result()
        assert result.stop_reason == ("end_turn" if ends == "runs" else "cancelled")
        assert result.text == ("behind" if ends == "runs" else "")
        with anyio.fail_after(5):
            await load.answered.wait()
            await setting.answered.wait()
        assert setting.outcome() == {}
        assert (await client.prompt(session_id, "after")).text == "after"


@pytest.mark.rule("load-checks-before-opening")
async def test_a_load_that_is_cancelled_leaves_the_session_closed_and_free() -> None:
    disk = MemoryBackend().disk
    session_id = await stored_log(MemoryBackend(disk), turn_of(1))
    replaying = anyio.Event()
    real = OpenSession.replay

    async def replay(self: OpenSession) -> None:
        await real(self)
        replaying.set()
        await anyio.sleep_forever()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OpenSession, "replay", replay)
        async with running_server(ECHO, store=MemoryBackend(disk, lock_wait_s=0)) as client:
            params = {"sessionId": session_id, "cwd": "/tmp/w", "mcpServers": []}
            load = await client.start_request("session/load", params)
            await replaying.wait()
            await client.cancel_request(load.request_id)
            with anyio.fail_after(5):
                await load.answered.wait()
            with pytest.raises(AcpError) as caught:
                load.outcome()
            assert caught.value.code == -32800
            said = {"sessionId": session_id, "prompt": [text_block("x")]}
            assert (await refused(client, "session/prompt", said)).code == -32002
            other = MemoryBackend(disk, lock_wait_s=0)
            async with running_server(ECHO, store=other, series=1) as second:
                await second.resume_session(session_id, "/tmp/w")


@pytest.mark.rule(
    "directory-spellings-are-one", "load-checks-before-opening", "any-absolute-cwd-is-taken"
)
@pytest.mark.case("B25")
async def test_another_directory_is_refused_before_an_agent_is_made() -> None:
    backend = open_backend("memory:")
    session_id = await stored_log(backend, turn_of(1), cwd="/a/c")
    async with running_server(ECHO, store=backend) as client:
        for method in ("session/load", "session/resume"):
            error = await refused(client, method, {"sessionId": session_id, "cwd": "/a/b"})
            assert error.code == -32602
            assert "'/a/c'" in str(error)
            assert "'/a/b'" in str(error)
        ask = {"sessionId": session_id, "prompt": [text_block("x")]}
        assert (await refused(client, "session/prompt", ask)).code == -32002
        await client.load_session(session_id, "/a/b/../c/")
        error = await refused(client, "session/load", {"sessionId": session_id, "cwd": "/a/b"})
        assert error.code == -32602
        assert (await client.prompt(session_id, "on")).text == "on"


@pytest.mark.rule("load-checks-before-opening")
async def test_a_stored_session_without_a_directory_is_neither_listed_nor_loaded() -> None:
    backend = open_backend("memory:")
    session_id = await stored_log(backend, turn_of(1), cwd=None)
    async with running_server(ECHO, store=backend) as client:
        assert (await client.list_sessions())["sessions"] == []
        params = {"sessionId": session_id, "cwd": "/tmp/w"}
        assert (await refused(client, "session/load", params)).code == -32602


@pytest.mark.rule("new-answers-then-lists-commands", "nothing-stored-before-first-append")
@pytest.mark.case("B16")
async def test_a_session_that_was_never_prompted_is_not_kept() -> None:
    backend = open_backend("memory:")
    async with running_server(ECHO, store=backend) as client:
        session_id = await client.new_session("/tmp/w")
        assert (await client.list_sessions())["sessions"] == []
    async with running_server(ECHO, store=backend, series=1) as client:
        assert (await client.list_sessions())["sessions"] == []
        for method in ("session/load", "session/resume"):
            error = await refused(client, method, {"sessionId": session_id, "cwd": "/tmp/w"})
            assert error.code == -32002


@pytest.mark.rule("resume-replays-nothing", "prompt-is-never-echoed")
@pytest.mark.case("B49", "B19")
async def test_resume_shows_nothing_and_the_agent_knows_everything() -> None:
    heard: list[list[str]] = []

    async def listen(turn: Turn) -> None:
        heard.append([block["text"] for m in turn.history for block in m["content"]])
        await turn.text("ok")

    backend = open_backend("memory:")
    agent = Agent("listen", listen)
    async with running_server(agent, store=backend) as client:
        session_id = await client.new_session("/tmp/w")
        live = await client.prompt(session_id, "hello-42")
        assert [u["sessionUpdate"] for u in live.updates if "content" in u] == [
            "agent_message_chunk"
        ]
        before = (await client.list_sessions())["sessions"]
    async with running_server(agent, store=backend, series=1) as client:
        result = await client.resume_session(session_id, "/tmp/w")
        assert result["modes"]["currentModeId"] == "ask"
        await client.wait_for_update(lambda u: u["sessionUpdate"] == "available_commands_update")
        assert {u["sessionUpdate"] for u in client.updates_of(session_id)} <= OUT_OF_TURN
        assert (await client.list_sessions())["sessions"] == before
        await client.prompt(session_id, "again")
        assert heard[-1] == ["hello-42", "ok", "again"]
        await client.load_session(session_id, "/tmp/w")
        said = [u["content"]["text"] for u in client.updates_of(session_id) if "content" in u]
        assert said == ["hello-42", "ok", "again", "ok"]


@pytest.mark.rule("opening-keeps-list-order")
@pytest.mark.case("B49")
async def test_opening_a_session_does_not_make_it_a_newer_one() -> None:
    backend = open_backend("memory:")
    async with running_server(ECHO, store=backend) as client:
        first, second = [await client.new_session("/tmp/w") for _ in range(2)]
        await client.prompt(first, "1")
        await client.prompt(second, "2")
    async with running_server(ECHO, store=backend, series=1) as client:
        before = (await client.list_sessions())["sessions"]
        assert [row["sessionId"] for row in before] == [second, first]
        await client.load_session(first, "/tmp/w")
        await client.set_mode(first, "read-only")
        assert (await client.list_sessions())["sessions"] == before


@pytest.mark.rule(
    "events-project-to-updates", "replay-follows-log-order", "load-replays-before-response"
)
@pytest.mark.case("B39")
async def test_a_replay_follows_the_log_and_ends_before_the_response() -> None:
    async def all_of_it(turn: Turn) -> None:
        await turn.thought("hm")
        await turn.text("so")
        async with turn.tool("read") as call:
            call.result("content")
        await turn.todos(["one"])
        await turn.title("Named")

    backend = open_backend("memory:")
    async with running_server(Agent("all", all_of_it), store=backend) as client:
        session_id = await client.new_session("/tmp/w")
        await client.prompt(session_id, "go")
    async with running_server(Agent("all", all_of_it), store=backend, series=1) as client:
        await client.load_session(session_id, "/tmp/w")
        await client.prompt(session_id, "/help")
        frames = agent_frames(client)[1:]
        answer = next(n for n, frame in enumerate(frames) if "id" in frame)
        shown = [frame["params"]["update"]["sessionUpdate"] for frame in frames[:answer]]
        assert shown == [
            "user_message_chunk",
            "session_info_update",
            "agent_thought_chunk",
            "agent_message_chunk",
            "tool_call",
            "plan",
            "session_info_update",
        ]


STEP: Entry = ("step/start", {"turn": 1, "step": 1})
CALL: Entry = (
    "tool/call",
    {"turn": 1, "step": 1, "callId": "old", "name": "shell", "arguments": "{}"},
)
MESSAGE: Entry = (
    "assistant/message",
    {
        "turn": 1,
        "step": 1,
        "content": [{"type": "tool-call", "id": "old", "name": "shell", "arguments": "{}"}],
        "provenance": MODEL,
    },
    APPEND,
)


@pytest.mark.rule("replayed-calls-are-final")
@pytest.mark.parametrize("crashed", [True, False])
async def test_a_call_without_a_result_is_replayed_as_failed_and_the_next_turn_is_whole(
    *, crashed: bool
) -> None:
    async def tool(turn: Turn) -> None:
        async with turn.tool("live") as call:
            call.result("fine")

    backend = open_backend("memory:")
    ended: list[Entry] = [] if crashed else [("step/end", {"turn": 1, "step": 1})]
    log = turn_of(1, STEP, MESSAGE, CALL, *ended, ends=not crashed)
    session_id = await stored_log(backend, log)
    async with running_server(Agent("tool", tool), store=backend) as client:
        result = await client.load_session(session_id, "/tmp/w")
        assert ("_meta" in result) is crashed
        if crashed:
            codes = [w["code"] for w in result["_meta"]["acp-session-server"]["warnings"]]
            assert codes == ["log-repaired"]
        calls = [u for u in client.updates_of(session_id) if "toolCallId" in u]
        assert [(u["sessionUpdate"], u["status"]) for u in calls] == [("tool_call", "failed")]
        done = await client.prompt(session_id, "go")
        assert [(c.title, c.status) for c in done.transcript.cards] == [("live", "completed")]


@pytest.mark.rule("only-users-words-replay", "rewritten-results-show-original")
async def test_what_the_user_did_not_say_is_not_replayed_and_what_was_replaced_is() -> None:
    result = {
        "turn": 1,
        "step": 1,
        "callId": "old",
        "content": [text_block("original")],
        "isError": False,
    }
    backend = open_backend("memory:")
    injected: Entry = ("user/message", {"content": [text_block("no")], "source": PLUGIN}, APPEND)
    log = turn_of(
        1,
        injected,
        STEP,
        MESSAGE,
        CALL,
        ("tool/result", result, SurfaceIntent("append", [5])),
        ("step/end", {"turn": 1, "step": 1}),
        prompt="first",
    )
    pruned: Entry = (
        "tool/result",
        {**result, "content": [text_block("pruned")]},
        SurfaceIntent(Replace(6, 6), [6]),
    )
    start: Entry = ("turn/start", {"turn": 2, "trigger": {"kind": "compaction"}})
    end: Entry = ("turn/end", {"turn": 2, "reason": {"kind": "completed"}})
    summary: Entry = (
        "user/message",
        {"content": [text_block("summary")], "source": PLUGIN},
        SurfaceIntent(Replace(1, 10), [1, 2, 4, 10]),
    )
    log = [*log, start, pruned, summary, end]
    session_id = await stored_log(backend, log)
    async with running_server(ECHO, store=backend) as client:
        await client.load_session(session_id, "/tmp/w")
        updates = client.updates_of(session_id)
        users = [u["content"]["text"] for u in updates if "user" in u["sessionUpdate"]]
        assert users == ["first"]
        cards = [u["content"] for u in updates if "toolCallId" in u]
        assert cards == [[{"type": "content", "content": text_block("original")}]]


@pytest.mark.rule("nothing-stored-before-first-append")
@pytest.mark.case("B16")
async def test_a_session_survives_a_kill_under_the_very_same_id(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "acp_server", "--store", f"jsonl:{tmp_path / 'store'}"]
    agents = Path(__file__).parents[3] / "fixtures" / "agents" / "worker.py"
    argv += ["--agent", f"{agents}:echo"]
    async with AcpClient.spawn(argv) as client:
        await client.initialize()
        session_id = await client.new_session(tmp_path)
        await client.prompt(session_id, "kept")
        empty = await client.new_session(tmp_path)
        client.kill()
        await client.wait()
    async with AcpClient.spawn(argv) as client:
        await client.initialize()
        rows = (await client.list_sessions())["sessions"]
        assert [row["sessionId"] for row in rows] == [session_id]
        await client.load_session(session_id, tmp_path)
        assert client.transcript.text == "kept"
        params = {"sessionId": empty, "cwd": str(tmp_path)}
        assert (await refused(client, "session/resume", params)).code == -32002

"""Cancel: at every moment, with anything open, and with a prompt right behind it.

Rule: cancel-covers-queued-prompts.
"""

import logging
from collections.abc import Sequence
from typing import Any

import anyio
import orjson
import pytest

from acp_server.agents.agent import Agent
from acp_server.agents.turn import Turn, run_of
from acp_server.bridge.capabilities import Handshake
from acp_server.bridge.service import AcpService
from acp_server.rpc import MethodTable, Peer, RequestContext
from acp_server.testing import AcpClient, AcpError, running_server
from acp_server.transport import memory_transport_pair
from acp_server.turns.errors import TurnClosedError
from acp_server.turns.ids import TimeOrderedIds
from persistence.memory import MemoryBackend
from persistence.repository import SessionRepository
from session_core import SessionStore, system_clock

CAPABILITIES = {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True}
MOMENTS = ("before", "stream", "tool", "last")
OPEN = {
    "nothing": "",
    "permission": "session/request_permission",
    "file": "fs/read_text_file",
    "terminal": "terminal/wait_for_exit",
    "queue": "",
}
REPEATS = 4


class Waiting:
    """An agent that waits for the client, streams, runs a tool or ends, as it is told."""

    def __init__(self, moment: str, opened: str) -> None:
        self.moment = moment
        self.opened = opened
        self.seen = anyio.Event()

    async def drive(self, turn: Turn) -> None:
        if turn.prompt == "next":
            await turn.text("fresh")
            return
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._open, turn)
            match self.moment:
                case "tool":
                    async with turn.tool("work"):
                        await anyio.sleep_forever()
                case "last":
                    await self.seen.wait()
                    await turn.text("last")
                case _:
                    while True:
                        await turn.text("x")
                        await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()

    async def _open(self, turn: Turn) -> None:
        match self.opened:
            case "permission":
                async with turn.tool("asked", ask=True):
                    await turn.text("never")
            case "file":
                await turn.files.read("a.txt")
            case "terminal":
                async with turn.terminal("sleep") as terminal:
                    await terminal.wait()


def frames_of(client: AcpClient, sender: str) -> list[dict[str, Any]]:
    return [orjson.loads(frame.data) for frame in client.frames if frame.sender == sender]


def answered_ids(client: AcpClient) -> list[Any]:
    return [f["id"] for f in frames_of(client, "agent") if "id" in f and "method" not in f]


def asked_ids(client: AcpClient) -> list[Any]:
    return [f["id"] for f in frames_of(client, "client") if "id" in f and "method" in f]


async def reach(client: AcpClient, agent: Waiting, session_id: str, position: int) -> None:
    """Wait until the turn is where it is to be cancelled."""
    if agent.moment == "before":
        return
    method = OPEN[agent.opened]
    if method:
        await client.wait_for_frame(
            lambda f: f.get("method") == method and f["params"]["sessionId"] == session_id
        )
    agent.seen.set()
    shows = {
        "stream": lambda u: u.get("content", {}) == {"type": "text", "text": "x"},
        "tool": lambda u: u.get("status") == "in_progress",
        "last": lambda u: u.get("content", {}) == {"type": "text", "text": "last"},
    }[agent.moment]
    await client.wait_for_update(shows, after=position)


@pytest.mark.rule(
    "cancel-is-bounded-in-time",
    "cancelled-prompt-answers-cancelled",
    "cancel-stops-prompt-before-it",
    "cancel-covers-queued-prompts",
    "cancel-closes-open-calls",
    "cancel-withdraws-client-requests",
)
@pytest.mark.case("B31")
@pytest.mark.parametrize("opened", OPEN)
@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_cancel_ends_what_came_before_it_and_nothing_else(moment: str, opened: str) -> None:
    agent = Waiting(moment, opened)
    async with running_server(
        Agent("waiting", agent.drive),
        capabilities=CAPABILITIES,
        answers={
            "terminal/create": lambda _params: {"terminalId": "t"},
            **dict.fromkeys(("terminal/kill", "terminal/release"), lambda _params: {}),
            "terminal/output": lambda _params: {"output": "", "truncated": False},
        },
        never_answer=[method for method in OPEN.values() if method],
    ) as client:
        for _ in range(REPEATS):
            agent.seen = anyio.Event()
            await cancelled_once(client, agent)
        assert sorted(answered_ids(client)) == sorted(asked_ids(client))


async def cancelled_once(client: AcpClient, agent: Waiting) -> None:
    session_id = await client.new_session("/w")
    position = len(client.updates)
    first = await client.start_prompt(session_id, "go")
    waiting = [
        await client.start_prompt(session_id, "go on")
        for _ in range(3 if agent.opened == "queue" else 0)
    ]
    await reach(client, agent, session_id, position)
    # Not `client.cancel`, which would answer an open permission request.
    await client.notify("session/cancel", {"sessionId": session_id})
    behind = await client.start_prompt(session_id, "next")
    fresh = await behind.result()
    ended = await first.result()
    # At its last frame a turn may end before it is cancelled, and so may those that wait for it.
    allowed = {"cancelled", "end_turn"} if agent.moment == "last" else {"cancelled"}
    assert {ended.stop_reason, *[(await h.result()).stop_reason for h in waiting]} <= allowed
    assert (fresh.stop_reason, fresh.text) == ("end_turn", "fresh")
    assert all(card.status == "failed" for card in client.transcript_of(session_id).cards)
    live = client.transcript_of(session_id)
    await client.load_session(session_id, "/w")
    assert client.transcript_of(session_id).difference(live) == ""


@pytest.mark.rule("idle-cancel-does-nothing")
async def test_an_idle_cancel_leaves_the_next_prompt_alone() -> None:
    agent = Waiting("before", "nothing")
    async with running_server(Agent("waiting", agent.drive)) as client:
        session_id = await client.new_session("/w")
        await client.cancel(session_id)
        assert (await client.prompt(session_id, "next")).stop_reason == "end_turn"


@pytest.mark.rule("idle-cancel-does-nothing")
async def test_a_cancel_of_an_unknown_session_is_silent() -> None:
    agent = Waiting("before", "nothing")
    async with running_server(Agent("waiting", agent.drive)) as client:
        session_id = await client.new_session("/w")
        before = len(answered_ids(client))
        await client.cancel("no-such-session")
        await client.prompt(session_id, "next")
        assert len(answered_ids(client)) == before + 1


@pytest.mark.rule("sessions-stay-apart")
async def test_a_cancel_leaves_other_sessions_alone() -> None:
    go_on = anyio.Event()

    async def drive(turn: Turn) -> None:
        await turn.text("begun ")
        await go_on.wait()
        await turn.text("ended")

    async with running_server(Agent("a", drive)) as client:
        one, other = [await client.new_session("/w") for _ in range(2)]
        handles = [await client.start_prompt(session_id, "go") for session_id in (one, other)]
        await client.cancel(one)
        assert (await handles[0].result()).stop_reason == "cancelled"
        go_on.set()
        result = await handles[1].result()
        assert (result.stop_reason, result.text) == ("end_turn", "begun ended")


@pytest.mark.rule("cancel-withdraws-client-requests")
@pytest.mark.parametrize(
    ("method", "answer"),
    [
        (
            "session/request_permission",
            {"outcome": {"outcome": "selected", "optionId": "allow-once"}},
        ),
        ("fs/read_text_file", {"content": "late"}),
        ("elicitation/create", {"action": "accept", "content": {}}),
    ],
)
async def test_an_answer_that_comes_after_the_cancel_changes_nothing(
    method: str, answer: Any
) -> None:
    late = anyio.Event()
    went_on: list[str] = []

    async def answer_late(_params: Any) -> Any:
        with anyio.CancelScope(shield=True):
            await late.wait()
        return answer

    async def drive(turn: Turn) -> None:
        match method:
            case "session/request_permission":
                await turn.ask("Go on?")
            case "fs/read_text_file":
                await turn.files.read("a.txt")
            case _:
                await turn.elicit("Who?", {"type": "object", "properties": {}})
        went_on.append(turn.prompt)

    async with running_server(
        Agent("a", drive),
        capabilities={**CAPABILITIES, "elicitation": {"form": {}}},
        answers={method: answer_late},
    ) as client:
        session_id = await client.new_session("/w")
        handle = await client.start_prompt(session_id, "go")
        request = await client.wait_for_agent_request(method)
        await client.notify("session/cancel", {"sessionId": session_id})
        assert (await handle.result()).stop_reason == "cancelled"
        frames = frames_of(client, "agent")
        cancels = [f["params"] for f in frames if f.get("method") == "$/cancel_request"]
        assert cancels == [{"requestId": request["id"]}]
        late.set()
        await client.list_sessions()
    assert went_on == []


# -- agents that do not stop ----------------------------------------------------------------


class Deaf:
    """An agent that hears of no cancel until `wake` is set, and tries everything afterwards."""

    def __init__(self) -> None:
        self.deaf = anyio.Event()
        self.wake = anyio.Event()
        self.done = anyio.Event()
        self.refused: list[str] = []
        self.reached: list[str] = []

    async def drive(self, turn: Turn) -> None:
        if turn.prompt != "go":
            await turn.text("fresh")
            return
        with anyio.CancelScope(shield=True):
            try:
                async with turn.tool("work") as call:
                    self.deaf.set()
                    await self.wake.wait()
                    call.result("too late")
                    await self._try(turn, call)
            finally:
                self.done.set()

    async def _try(self, turn: Turn, call: Any) -> None:
        header = {"config": {"provider": "p", "model": "m"}}
        attempts: dict[str, Any] = {
            "text": lambda: turn.text("late"),
            "thought": lambda: turn.thought("late"),
            "todos": lambda: turn.todos(["late"]),
            "title": lambda: turn.title("late"),
            "record": lambda: turn.record("a/b", {}),
            "context": lambda: turn.context("late"),
            "ask": lambda: turn.ask("late?"),
            "tool": lambda: turn.tool("late").__aenter__(),
            "read": lambda: turn.files.read("a.txt"),
            "write": lambda: turn.files.write("a.txt", "late"),
            "names": turn.files.names,
            "terminal": lambda: turn.terminal("ls").__aenter__(),
            "elicit": lambda: turn.elicit("late?", {"type": "object", "properties": {}}),
            "elicit_url": lambda: turn.elicit_url("late?", "https://example.org"),
            "usage": lambda: turn.usage(1, 2),
            "notice": lambda: turn.notice("late"),
            "begin_request": lambda: run_of(turn).begin_request(header),
            "refuse": turn.refuse,
            "diff": lambda: call.diff("a", None, "b"),
            "update": lambda: call.update(title="late"),
            "console": lambda: call.console("late"),
        }
        for name, attempt in attempts.items():
            try:
                made = attempt()
                if made is not None:
                    await made
            except TurnClosedError:
                self.refused.append(name)
            else:
                self.reached.append(name)


@pytest.mark.rule(
    "ended-turn-refuses-its-handle", "cancel-is-bounded-in-time", "cancel-closes-open-calls"
)
@pytest.mark.case("B31")
async def test_an_agent_that_does_not_stop_is_left_behind_and_can_do_no_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    agent = Deaf()
    capabilities = {
        **CAPABILITIES,
        "elicitation": {"form": {}, "url": {}},
        "session": {"notices": {}},
    }
    with caplog.at_level(logging.WARNING):
        async with running_server(
            Agent("deaf", agent.drive), capabilities=capabilities, cancel_grace_s=0.01
        ) as client:
            session_id = await client.new_session("/w")
            handle = await client.start_prompt(session_id, "go")
            await agent.deaf.wait()
            await client.cancel(session_id)
            assert (await handle.result()).stop_reason == "cancelled"
            assert [card.status for card in client.transcript.cards] == ["failed"]
            assert (await client.prompt(session_id, "next")).text == "fresh"
            frames = len(client.frames)
            agent.wake.set()
            await agent.done.wait()
            await client.list_sessions()
            late = frames_of(client, "agent")[-1:]
            assert len(client.frames) == frames + 2
            assert "result" in late[0]
    assert agent.reached == []
    assert len(agent.refused) == 21
    assert "did not stop when cancelled" in caplog.text


# -- whatever happens, one answer -----------------------------------------------------------


class Breaks(BaseException):
    """Something that is no `Exception`, like KeyboardInterrupt."""


def failures() -> Sequence[BaseException]:
    return (ValueError("secret"), SystemExit(3), Breaks(), StopAsyncIteration(), MemoryError())


@pytest.mark.rule("prompt-always-gets-one-answer")
@pytest.mark.case("B86")
@pytest.mark.parametrize("number", range(len(failures())))
@pytest.mark.parametrize("inside", ["turn", "tool"])
async def test_an_agent_that_fails_in_any_way_answers_once_with_a_bland_error(
    number: int, inside: str
) -> None:
    async def fail() -> None:
        raise failures()[number]

    async def drive(turn: Turn) -> None:
        if turn.prompt == "next":
            return
        match inside:
            case "turn":
                await fail()
            case _:
                async with turn.tool("work"):
                    await fail()

    async with running_server(Agent("a", drive)) as client:
        session_id = await client.new_session("/w")
        with pytest.raises(AcpError) as raised:
            await client.prompt(session_id, "go")
        assert raised.value.code == -32603
        assert "secret" not in raised.value.message
        assert (await client.prompt(session_id, "next")).stop_reason == "end_turn"
        assert sorted(answered_ids(client)) == sorted(asked_ids(client))


@pytest.mark.rule("prompt-always-gets-one-answer")
@pytest.mark.case("B86")
async def test_a_cancellation_that_the_agent_raises_itself_answers_once() -> None:
    async def drive(turn: Turn) -> None:
        if turn.prompt == "go":
            raise anyio.get_cancelled_exc_class()

    async with running_server(Agent("a", drive)) as client:
        session_id = await client.new_session("/w")
        with pytest.raises(AcpError):
            await client.prompt(session_id, "go")
        assert (await client.prompt(session_id, "next")).stop_reason == "end_turn"


@pytest.mark.rule("response-is-last-of-turn")
@pytest.mark.case("B18")
async def test_the_response_is_the_last_frame_of_its_turn() -> None:
    async def drive(turn: Turn) -> None:
        for number in range(500):
            await turn.text(f"w{number} ")
        async with turn.tool("shell") as call:
            call.result("tail")
        await turn.text("end")

    async with running_server(Agent("a", drive)) as client:
        session_id = await client.new_session("/w")
        result = await client.prompt(session_id, "go")
        assert result.text == "".join(f"w{n} " for n in range(500)) + "end"
        await client.list_sessions()
        assert len(client.updates_of(session_id)) == len(result.updates) + 1


@pytest.mark.rule("prompt-is-never-echoed")
@pytest.mark.case("B19")
async def test_the_prompt_is_not_echoed_live_and_comes_once_on_load() -> None:
    async def drive(turn: Turn) -> None:
        await turn.text("yes")

    async with running_server(Agent("a", drive)) as client:
        session_id = await client.new_session("/w")
        result = await client.prompt(session_id, "hello-42")
        assert all(u["sessionUpdate"] != "user_message_chunk" for u in result.updates)
        await client.load_session(session_id, "/w")
        assert client.transcript.user == ({"type": "text", "text": "hello-42"},)


@pytest.mark.rule("request-cancel-covers-one-prompt")
async def test_a_handler_cancelled_at_its_first_step_leaves_no_turn_running() -> None:
    async def drive(_turn: Turn) -> None:
        await anyio.sleep_forever()

    near, _far = memory_transport_pair()
    agent = Agent("a", drive)
    peer = Peer(near, initialize=Handshake(agent), methods=lambda: MethodTable({}))
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            store = SessionStore()
            async with SessionRepository(MemoryBackend(), store) as persistence:
                service = AcpService(
                    peer=peer,
                    handshake=Handshake(agent),
                    agent=agent,
                    store=store,
                    persistence=persistence,
                    ids=TimeOrderedIds(system_clock),
                    tasks=tasks,
                )
                new = {"cwd": "/w", "mcpServers": []}
                opened = await service.new_session(RequestContext(1, "session/new"), new)
                params = {
                    "sessionId": opened["sessionId"],
                    "prompt": [{"type": "text", "text": "go"}],
                }
                with anyio.CancelScope() as scope:
                    scope.cancel()
                    await service.prompt(RequestContext(2, "session/prompt"), params)
                assert scope.cancelled_caught
                live = store.get(opened["sessionId"])
                assert live is not None
                while live.events[-1].type != "turn/end":
                    await anyio.lowlevel.checkpoint()
                assert live.events[-1].data["reason"]["kind"] == "aborted"
                tasks.cancel_scope.cancel()

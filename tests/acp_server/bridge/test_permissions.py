"""Permission requests: what is asked, what an answer does, what is remembered.

Rules: answer-decides-the-call, permission-precedes-the-call, decisions-have-an-order.
"""

from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from acp_server.agents.agent import Agent
from acp_server.agents.turn import Turn, run_of
from acp_server.bridge.cards import ToolCards
from acp_server.bridge.client_port import SessionClient
from acp_server.rpc.errors import ConnectionClosedError
from acp_server.testing import AcpClient, running_server
from acp_server.turns.errors import PermissionDenied
from acp_server.wire.handshake import ClientCapabilities
from persistence import open_backend
from persistence.storage import StorageBackend
from session_core import Session, SessionId

Command = tuple[str, str | None]
"""A tool's name, and what a grant would cover."""


class Commands:
    """Makes one call for each command of the prompt's list, and keeps how each went."""

    def __init__(self, *commands: Command, kind: str = "execute") -> None:
        self.commands = list(commands)
        self.kind = kind
        self.went: list[str] = []

    async def drive(self, turn: Turn) -> None:
        for name, grant in self.commands:
            try:
                async with turn.tool(name, kind=self.kind, ask="because", grant=grant) as call:
                    call.result("done")
                self.went.append("ran")
            except PermissionDenied:
                self.went.append("refused")


def agent_of(commands: Commands, **declared: Any) -> Agent:
    return Agent("commands", commands.drive, **declared)


def questions(client: AcpClient) -> list[dict[str, Any]]:
    asked = client.agent_requests
    return [frame for frame in asked if frame["method"] == "session/request_permission"]


async def events_of(backend: StorageBackend, session_id: str, *types: str) -> list[dict[str, Any]]:
    stored = await backend.load_stored(session_id)
    assert stored is not None
    return [dict(event.data) for event in stored.log.view() if event.type in types]


def choosing(option_id: str) -> Any:
    return lambda _params: {"outcome": {"outcome": "selected", "optionId": option_id}}


@pytest.mark.rule("answer-decides-the-call")
@pytest.mark.parametrize(
    ("option_id", "went", "outcome", "grants"),
    [
        ("allow-once", "ran", "allowed-once", []),
        ("allow-always", "ran", "allowed-always", ["allow"]),
        ("reject-once", "refused", "rejected", []),
        ("reject-always", "refused", "rejected-always", ["reject"]),
        ("who-knows", "refused", "rejected", []),
    ],
)
async def test_an_answer_runs_or_refuses_the_call_and_always_is_remembered(
    option_id: str, went: str, outcome: str, grants: list[str]
) -> None:
    commands = Commands(("shell", "echo one"))
    backend = open_backend("memory:")
    async with running_server(
        agent_of(commands), store=backend, permissions=choosing(option_id)
    ) as client:
        session_id = await client.new_session("/w")
        assert (await client.prompt(session_id, "go")).stop_reason == "end_turn"
        assert [card.status for card in client.transcript.cards] == [
            "completed" if went == "ran" else "failed"
        ]
        decided = await events_of(backend, session_id, "approval/decided")
        granted = await events_of(backend, session_id, "approval/grant")
    assert commands.went == [went]
    assert [event["outcome"] for event in decided] == [outcome]
    assert granted == [
        {"toolName": "shell", "key": "echo one", "effect": effect} for effect in grants
    ]


@pytest.mark.rule("unoffered-answers-are-refusals", "answer-decides-the-call")
async def test_always_cannot_be_answered_where_it_was_not_offered() -> None:
    commands = Commands(("shell", None))
    async with running_server(agent_of(commands), permissions=choosing("allow-always")) as client:
        session_id = await client.new_session("/w")
        await client.prompt(session_id, "go")
    assert commands.went == ["refused"]


@pytest.mark.rule("cancelled-answer-aborts-turn", "answer-decides-the-call")
async def test_an_answer_cancelled_aborts_the_turn_and_stores_no_grant() -> None:
    commands = Commands(("shell", "echo one"), ("shell", "echo two"))
    backend = open_backend("memory:")
    async with running_server(agent_of(commands), store=backend) as client:
        session_id = await client.new_session("/w")
        assert (await client.prompt(session_id, "go")).stop_reason == "cancelled"
        assert len(questions(client)) == 1
        assert await events_of(backend, session_id, "approval/grant") == []
        assert await events_of(backend, session_id, "turn/end") == [
            {"turn": 1, "reason": {"kind": "aborted"}}
        ]


@pytest.mark.rule("question-shows-its-card", "call-is-announced-first")
@pytest.mark.case("B34")
async def test_the_question_follows_its_card_and_says_what_always_covers() -> None:
    commands = Commands(("shell", "echo  one\nx"), ("write", "write"), ("plain", None))
    async with running_server(
        agent_of(commands), permissions=["allow_once", "allow_once", "allow_once"]
    ) as client:
        session_id = await client.new_session("/w")
        await client.prompt(session_id, "go")
        asked = [frame["params"] for frame in questions(client)]
        updates = client.updates_of(session_id)
    calls = [u for u in updates if u["sessionUpdate"] == "tool_call"]
    assert [params["toolCall"]["toolCallId"] for params in asked] == [
        update["toolCallId"] for update in calls
    ]
    assert all(params["toolCall"]["title"] for params in asked)
    assert all("sessionUpdate" not in params["toolCall"] for params in asked)
    assert [[option["kind"] for option in params["options"]] for params in asked] == [
        ["allow_once", "allow_always", "reject_once", "reject_always"],
        ["allow_once", "allow_always", "reject_once", "reject_always"],
        ["allow_once", "reject_once"],
    ]
    assert [params["options"][1]["name"] for params in asked[:2]] == [
        "Always allow exactly `echo one x` in this session",
        "Always allow all calls of write in this session",
    ]


@pytest.mark.rule("permission-precedes-the-call")
@pytest.mark.case("B34")
async def test_a_call_is_shown_as_running_only_after_the_grant() -> None:
    commands = Commands(("shell", None), ("shell", None))
    async with running_server(
        agent_of(commands), permissions=["allow_once", "reject_once"]
    ) as client:
        session_id = await client.new_session("/w")
        await client.prompt(session_id, "go")
        statuses: dict[str, list[str]] = {}
        for update in client.updates_of(session_id):
            if "toolCallId" in update:
                statuses.setdefault(update["toolCallId"], []).append(update["status"])
    assert list(statuses.values()) == [
        ["pending", "in_progress", "completed"],
        ["pending", "failed"],
    ]


@pytest.mark.rule("grants-cover-their-key-only")
@pytest.mark.case("B37")
async def test_a_grant_covers_its_command_in_its_session_and_nothing_else() -> None:
    commands = Commands(
        ("shell", "echo one"),
        ("shell", "echo one"),
        ("shell", "echo one; rm y"),
        ("shell", "rm -rf x"),
        ("write", "write"),
        ("other", "echo one"),
    )
    backend = open_backend("memory:")
    kinds = ["allow_always", *["reject_once"] * 8]
    async with running_server(agent_of(commands), store=backend, permissions=kinds) as client:
        first = await client.new_session("/w")
        await client.prompt(first, "go")
        assert commands.went == ["ran", "ran", "refused", "refused", "refused", "refused"]
        commands.commands, commands.went = [("shell", "echo one")], []
        second = await client.new_session("/w")
        await client.prompt(second, "go")
        assert commands.went == ["refused"]
    commands.commands = [("shell", "echo one"), ("shell", "echo two")]
    commands.went = []
    async with running_server(
        agent_of(commands), store=backend, series=1, permissions=["reject_once"]
    ) as client:
        await client.load_session(first, "/w")
        await client.prompt(first, "go")
    assert commands.went == ["ran", "refused"]


@pytest.mark.rule("grants-cover-their-key-only")
@pytest.mark.case("B37")
async def test_a_rejection_for_always_is_not_asked_again() -> None:
    commands = Commands(("shell", "rm x"), ("shell", "rm x"))
    async with running_server(agent_of(commands), permissions=["reject_always"]) as client:
        session_id = await client.new_session("/w")
        await client.prompt(session_id, "go")
        assert len(questions(client)) == 1
        assert [card.status for card in client.transcript.cards] == ["failed", "failed"]
    assert commands.went == ["refused", "refused"]


@pytest.mark.rule("no-answer-refuses-the-call")
async def test_a_call_that_the_client_was_never_told_of_is_not_asked_about() -> None:
    answers: list[str] = []

    async def drive(turn: Turn) -> None:
        answers.append(await run_of(turn).client.request_permission("of-another-agent", None))

    async with running_server(Agent("a", drive), permissions=["allow_once"]) as client:
        session_id = await client.new_session("/w")
        await client.prompt(session_id, "go")
        assert questions(client) == []
    assert answers == ["unavailable"]


@pytest.mark.rule("no-answer-refuses-the-call")
@pytest.mark.parametrize("answer", [None, 7, {}, {"outcome": {"outcome": "maybe"}}])
async def test_an_answer_that_is_none_leaves_the_call_unrun(answer: Any) -> None:
    commands = Commands(("shell", None))
    backend = open_backend("memory:")
    async with running_server(
        agent_of(commands), store=backend, permissions=lambda _params: answer
    ) as client:
        session_id = await client.new_session("/w")
        assert (await client.prompt(session_id, "go")).stop_reason == "end_turn"
        decided = await events_of(backend, session_id, "approval/decided")
        client.checker.violations.clear()  # the client's own answers are what is wrong here
    assert [event["outcome"] for event in decided] == ["unavailable"]
    assert commands.went == ["refused"]


class DeadPeer:
    """A connection that is gone."""

    async def request(self, *_given: Any, **_options: Any) -> Any:
        raise ConnectionClosedError


@pytest.mark.rule("no-answer-refuses-the-call")
async def test_a_dead_connection_leaves_the_question_unanswered() -> None:
    cards = ToolCards("/w")
    session = Session(SessionId("s"))
    session.append("turn/start", {"turn": 1, "trigger": {"kind": "config"}})
    session.append("step/start", {"turn": 1, "step": 1})
    view = {"type": "generic-call", "title": "t"}
    cards.on_card(session.append("tool/card", {"turn": 1, "step": 1, "callId": "c", "view": view}))
    client = SessionClient(DeadPeer(), "s", ClientCapabilities(), cards)  # type: ignore[arg-type]
    assert await client.request_permission("c") == "unavailable"


def rules(preset: str, kind: str, went: Sequence[str]) -> Any:
    return pytest.param(preset, kind, list(went), id=f"{preset}-{kind}")


@pytest.mark.rule("presets-decide-before-user")
@pytest.mark.parametrize(
    ("preset", "kind", "went"),
    [
        rules("full-access", "execute", ["ran"]),
        rules("read-only", "edit", ["refused"]),
        rules("auto-edit", "edit", ["ran"]),
    ],
)
async def test_a_preset_decides_without_a_request(preset: Any, kind: str, went: list[str]) -> None:
    commands = Commands(("tool", "tool"), kind=kind)
    async with running_server(agent_of(commands, modes=(preset,))) as client:
        session_id = await client.new_session("/w")
        assert (await client.prompt(session_id, "go")).stop_reason == "end_turn"
        assert questions(client) == []
    assert commands.went == went


@pytest.mark.rule("presets-decide-before-user")
async def test_auto_edit_still_asks_for_what_is_no_edit() -> None:
    commands = Commands(("tool", None), kind="execute")
    async with running_server(
        agent_of(commands, modes=("auto-edit",)), permissions=["allow_once"]
    ) as client:
        session_id = await client.new_session("/w")
        await client.prompt(session_id, "go")
        assert len(questions(client)) == 1


@pytest.mark.rule("decisions-have-an-order")
async def test_a_stored_refusal_goes_before_a_preset_that_allows() -> None:
    commands = Commands(("shell", "rm x"))
    async with running_server(
        agent_of(commands, modes=("ask", "full-access")), permissions=["reject_always"]
    ) as client:
        session_id = await client.new_session("/w")
        await client.prompt(session_id, "go")
        await client.set_mode(session_id, "full-access")
        await client.prompt(session_id, "again")
    assert commands.went == ["refused", "refused"]


@pytest.mark.rule("question-is-a-call")
async def test_a_plain_question_answers_true_or_false() -> None:
    heard: list[bool] = []

    async def drive(turn: Turn) -> None:
        heard.append(await turn.ask("Go on?"))

    async with running_server(
        Agent("a", drive), permissions=["allow_once", "reject_once"]
    ) as client:
        session_id = await client.new_session("/w")
        for _ in range(2):
            await client.prompt(session_id, "go")
        assert [card.content for card in client.transcript.cards] == [
            ({"type": "content", "content": {"type": "text", "text": word}},)
            for word in ("allowed", "rejected")
        ]
    assert heard == [True, False]


@pytest.mark.rule("waiting-session-blocks-no-other")
@pytest.mark.case("B27")
async def test_a_session_that_waits_for_an_answer_blocks_no_other() -> None:
    answered = anyio.Event()

    async def answer(_params: Any) -> Any:
        await answered.wait()
        return {"outcome": {"outcome": "selected", "optionId": "allow-once"}}

    async def drive(turn: Turn) -> None:
        if turn.prompt == "ask":
            async with turn.tool("shell", ask=True) as call:
                call.result("ran")
        await turn.text("hello")

    async with running_server(Agent("a", drive), permissions=answer) as client:
        waiting = await client.new_session("/w")
        asked = await client.start_prompt(waiting, "ask")
        await client.wait_for_agent_request("session/request_permission")
        other = await client.new_session("/w")
        assert (await client.prompt(other, "talk")).text == "hello"
        await client.list_sessions()
        assert not asked.done
        answered.set()
        assert (await asked.result()).stop_reason == "end_turn"

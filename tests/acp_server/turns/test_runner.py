"""Messages that no prompt brought: where they go in the log, and what they never do.

Rule: injected-messages-part-no-call.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from acp_server.agents.agent import Agent
from acp_server.agents.turn import Turn
from acp_server.testing import CountedIds, SteppingClock
from acp_server.turns.errors import CheckpointError
from acp_server.turns.ports import RunnerPorts
from acp_server.turns.runner import TurnRunner
from session_core import SessionStore

PLUGIN = {"kind": "plugin", "plugin": "test"}
PROMPT = [{"type": "text", "text": "go"}]


def text(said: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": said}]


class Disk:
    """A store that may be full, and a client that is never slow."""

    congested = False

    def __init__(self) -> None:
        self.full = False
        self.flushes = 0

    async def hold(self, *, wait: bool = True) -> None:
        return

    async def flush(self) -> None:
        self.flushes += 1
        if self.full:
            message = "the disk is full"
            raise CheckpointError(message)

    async def room(self) -> None:
        return


@asynccontextmanager
async def running(agent: Agent, disk: Disk) -> AsyncIterator[TurnRunner]:
    ids = CountedIds()
    store = SessionStore(clock=SteppingClock(), new_id=ids.session_id)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            ports = RunnerPorts(
                client=None,  # type: ignore[arg-type]  # these turns ask nobody
                durability=disk,
                pace=disk,
                ids=ids,
                tasks=tasks,
            )
            yield TurnRunner(store.create(cwd="/tmp"), agent, ports)


def types_of(runner: TurnRunner) -> list[str]:
    return [event.type for event in runner._session.events]


@pytest.mark.rule("injected-messages-part-no-call")
async def test_an_idle_injection_takes_a_turn_of_its_own_and_is_flushed_in_the_background() -> None:
    async def look(turn: Turn) -> None:
        await turn.text(str(len(turn.history)))

    disk = Disk()
    async with running(Agent("look", look), disk) as runner:
        runner.settings.change("mode", "read-only")
        runner.inject(text("by the way"), PLUGIN)
        assert types_of(runner) == ["turn/start", "permission/preset", "user/message", "turn/end"]
        start = runner._session.events[0].data
        assert start["trigger"] == {"kind": "injection", "source": PLUGIN}
        assert disk.flushes == 0
        runner.add_context(text("it rains"), PLUGIN)
        outcome = await runner.submit(PROMPT).outcome()
        assert outcome.kind == "completed"
        assert disk.flushes >= 2
        assert len(runner._session.derive_messages()) == 4


@pytest.mark.rule("injected-messages-part-no-call")
async def test_in_an_open_turn_a_message_waits_for_the_end_of_the_step() -> None:
    in_tool, go_on = anyio.Event(), anyio.Event()

    async def work(turn: Turn) -> None:
        async with turn.tool("wait") as call:
            in_tool.set()
            await go_on.wait()
            call.result("done")

    async with running(Agent("work", work), Disk()) as runner:
        pending = runner.submit(PROMPT)
        await in_tool.wait()
        runner.inject(text("by the way"), PLUGIN)
        assert types_of(runner)[-1] == "tool/call"
        go_on.set()
        await pending.outcome()
        assert types_of(runner)[-4:] == ["tool/result", "step/end", "user/message", "turn/end"]


async def test_a_message_that_the_log_refuses_ends_no_turn(
    caplog: pytest.LogCaptureFixture,
) -> None:
    in_tool, go_on = anyio.Event(), anyio.Event()

    async def work(turn: Turn) -> None:
        async with turn.tool("wait"):
            in_tool.set()
            await go_on.wait()

    async with running(Agent("work", work), Disk()) as runner:
        pending = runner.submit(PROMPT)
        await in_tool.wait()
        runner.inject([{"no": "type"}], PLUGIN)
        runner.inject(text("by the way"), PLUGIN)
        go_on.set()
        assert (await pending.outcome()).kind == "completed"
        assert types_of(runner)[-3:] == ["step/end", "user/message", "turn/end"]
    assert "a message to the model was refused" in caplog.text


@pytest.mark.rule("injected-messages-part-no-call")
async def test_between_the_steps_of_a_turn_a_message_is_appended_at_once() -> None:
    waiting, go_on = anyio.Event(), anyio.Event()

    async def wait(_turn: Turn) -> None:
        waiting.set()
        await go_on.wait()

    async with running(Agent("wait", wait), Disk()) as runner:
        pending = runner.submit(PROMPT)
        await waiting.wait()
        runner.add_context(text("it rains"), PLUGIN, "raw")
        assert types_of(runner)[-1] == "context/message"
        go_on.set()
        await pending.outcome()


@pytest.mark.rule("injected-messages-part-no-call")
async def test_what_the_user_says_cannot_be_injected() -> None:
    async with running(Agent("a", lambda _turn: anyio.lowlevel.checkpoint()), Disk()) as runner:
        with pytest.raises(ValueError, match="cannot come from the user"):
            runner.inject(text("x"), {"kind": "user"})
        assert types_of(runner) == []


@pytest.mark.rule("failed-flush-keeps-events")
async def test_a_prompt_is_refused_with_nothing_appended_while_the_disk_refuses() -> None:
    async def nothing(_turn: Turn) -> None:
        return

    disk = Disk()
    async with running(Agent("a", nothing), disk) as runner:
        await runner.submit(PROMPT).outcome()
        length = len(types_of(runner))
        disk.full = True
        outcome = await runner.submit(PROMPT).outcome()
        assert (outcome.kind, outcome.message) == ("error", "the disk is full")
        assert len(types_of(runner)) == length
        disk.full = False
        assert (await runner.submit(PROMPT).outcome()).kind == "completed"


@pytest.mark.rule("command-failures-are-text")
async def test_a_fault_in_a_command_does_not_end_the_queue() -> None:
    async def nothing(_turn: Turn) -> None:
        return

    async def fault() -> None:
        raise LookupError

    async with running(Agent("a", nothing), Disk()) as runner:
        first, second = runner.submit(PROMPT, fault), runner.submit(PROMPT)
        assert (await first.outcome()).kind == "completed"
        assert (await second.outcome()).kind == "completed"

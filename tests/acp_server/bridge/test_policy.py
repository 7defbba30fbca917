"""The policy of an agent: what it sees, and that nothing gets past it.

Rules: policy-blocks-prompt-first, policy-sees-all-text.
"""

import functools
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from acp_server import Agent, PromptView, Turn
from acp_server.testing import running_server
from persistence import open_backend
from tests.acp_server.helpers import echo, refused, stored_events

RESOURCE = {
    "type": "resource",
    "resource": {"uri": "file:///w/a.txt", "text": "this is forbidden", "mimeType": "text/plain"},
}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def no_forbidden(prompt: PromptView) -> str | None:
    return "not today" if "forbidden" in prompt.text else None


async def no_forbidden_async(prompt: PromptView) -> str | None:
    await anyio.lowlevel.checkpoint()
    return no_forbidden(prompt)


@pytest.mark.rule("policy-sees-all-text", "policy-blocks-prompt-first")
@pytest.mark.parametrize("policy", [no_forbidden, no_forbidden_async])
@pytest.mark.parametrize(
    "blocks", [[text("forbidden")], [text("for"), text("bidden")], [text("look at"), RESOURCE]]
)
async def test_a_policy_sees_all_text_of_a_prompt(policy: Any, blocks: list[Any]) -> None:
    backend = open_backend("memory:")
    async with running_server(Agent("a", echo, policy=policy), store=backend) as client:
        session_id = await client.new_session("/w")
        result = await client.prompt(session_id, blocks)
        assert result.stop_reason == "cancelled"
        assert "not today" in result.text
        assert (await client.prompt(session_id, "fine")).text == "fine"
        types = [event.type for event in await stored_events(backend, session_id)]
    assert types[:3] == ["turn/start", "prompt/blocked", "turn/end"]


@pytest.mark.rule("policy-sees-all-text")
async def test_a_policy_gets_the_blocks_and_the_text_of_resources_apart() -> None:
    seen: list[PromptView] = []
    blocks = [text("a"), text("b"), RESOURCE, text("c")]
    async with running_server(Agent("a", echo, policy=seen.append)) as client:
        session_id = await client.new_session("/w")
        await client.prompt(session_id, blocks)
    (view,) = seen
    assert list(view.blocks) == blocks
    assert view.text == "ab\nthis is forbidden\nc"


def raising(_prompt: PromptView) -> None:
    raise ZeroDivisionError("hush")


async def raising_async(_prompt: PromptView) -> None:
    raise ZeroDivisionError("hush")


def leaving(_prompt: PromptView) -> None:
    raise SystemExit(3)


def of_two(_option: str, _prompt: PromptView) -> bool:
    return False


async def false_async(_prompt: PromptView) -> bool:
    return False


def without_arguments() -> None:
    """Not what a policy is."""


class Inspector:
    def __call__(self, prompt: PromptView) -> None:
        assert "x" in prompt  # type: ignore[operator]  # that it has no `in` is the point


def line_of(function: Any, offset: int = 0) -> str:
    return f"{__file__}:{function.__code__.co_firstlineno + offset}"


@pytest.mark.rule("policy-sees-all-text")
@pytest.mark.parametrize(
    ("policy", "told"),
    [
        (raising, f"(ZeroDivisionError) at {line_of(raising, 1)}"),
        (raising_async, f"(ZeroDivisionError) at {line_of(raising_async, 1)}"),
        (leaving, f"(SystemExit) at {line_of(leaving, 1)}"),
        (false_async, f"at {line_of(false_async)} returned bool"),
        (functools.partial(of_two, "x"), f"at {line_of(of_two)} returned bool"),
        (without_arguments, f"(TypeError) at {line_of(without_arguments)}"),
        (Inspector(), f"(TypeError) at {line_of(Inspector.__call__, 1)}"),
    ],
    ids=["raises", "async", "exit", "false", "partial", "signature", "object"],
)
async def test_a_policy_that_fails_lets_nothing_through_and_says_where(
    policy: Any, told: str
) -> None:
    backend = open_backend("memory:")
    ran: list[str] = []

    async def drive(turn: Turn) -> None:
        ran.append(turn.prompt)

    async with running_server(Agent("a", drive, policy=policy), store=backend) as client:
        session_id = await client.new_session("/w")
        prompt = {"sessionId": session_id, "prompt": [text("go")]}
        for _ in range(2):
            error = await refused(client, "session/prompt", prompt)
            assert error.code == -32603
            assert told in error.message
            assert "hush" not in error.message
        events = await stored_events(backend, session_id)
    assert ran == []
    assert [event.type for event in events] == ["turn/start", "turn/end"] * 2
    assert events[1].data["reason"]["code"] == "POLICY_FAILED"


@pytest.mark.rule("policy-sees-all-text", "cancel-is-bounded-in-time")
async def test_a_cancel_ends_a_policy_that_waits() -> None:
    asked = anyio.Event()
    ran: list[str] = []

    async def policy(prompt: PromptView) -> str | None:
        if prompt.text == "wait":
            asked.set()
            await anyio.sleep_forever()
        return None

    async def drive(turn: Turn) -> None:
        ran.append(turn.prompt)

    async with running_server(Agent("a", drive, policy=policy)) as client:
        session_id = await client.new_session("/w")
        handle = await client.start_prompt(session_id, "wait")
        await asked.wait()
        await client.cancel(session_id)
        assert (await handle.result()).stop_reason == "cancelled"
        assert (await client.prompt(session_id, "on")).stop_reason == "end_turn"
    assert ran == ["on"]

"""Half a character, handed over anywhere, is U+FFFD in the log and on the wire."""

import contextlib
import inspect
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from acp_server.agents.agent import Agent
from acp_server.agents.turn import Turn
from acp_server.testing import FILE_CAPABILITIES, running_server
from persistence import open_backend
from tests.acp_server.helpers import stored_events

HALF = "a\ud800b"
FORM = {"type": "object", "properties": {HALF: {"type": "string"}}}
BLOCKS = [{"type": "text", "text": HALF}, {"type": HALF, HALF: HALF}]


async def tool(turn: Turn) -> None:
    call = turn.tool(
        HALF,
        title=HALF,
        arguments={HALF: HALF},
        locations=[HALF, (HALF, 1)],
        diff=(HALF, HALF, HALF),
        ask=HALF,
        grant=HALF,
    )
    async with call:
        call.update(title=HALF, locations=[HALF], content=BLOCKS)
        call.diff(HALF, None, HALF)
        call.result(BLOCKS, raw={HALF: HALF})


async def console(turn: Turn) -> None:
    async with turn.tool("run", kind="execute", console=HALF) as call:
        call.console(HALF, signal=HALF)


async def terminal(turn: Turn) -> None:
    async with turn.terminal(HALF, args=[HALF], cwd=HALF, env={HALF: HALF}) as command:
        await command.wait()


async def write(turn: Turn) -> None:
    await turn.files.write(HALF, HALF)
    await turn.files.read(HALF)


async def refuse(turn: Turn) -> None:
    turn.refuse({"provider": HALF, "model": HALF})


USES: dict[str, Callable[[Turn], Awaitable[Any]]] = {
    "text": lambda turn: turn.text(HALF),
    "thought": lambda turn: turn.thought(HALF),
    "todos": lambda turn: turn.todos([HALF, (HALF, "completed")]),
    "title": lambda turn: turn.title(HALF),
    "tool": tool,
    "tool console": console,
    "ask": lambda turn: turn.ask(HALF),
    "terminal": terminal,
    "elicit": lambda turn: turn.elicit(HALF, FORM),
    "elicit_url": lambda turn: turn.elicit_url(HALF, "https://example.org/"),
    "notice": lambda turn: turn.notice(HALF, HALF),
    "record": lambda turn: turn.record(f"me/{HALF}", {HALF: [HALF]}),
    "context": lambda turn: turn.context(HALF, source={"kind": "plugin", "plugin": HALF}),
    "files": write,
    "refuse": refuse,
}
TAKE_NO_TEXT = {"usage", "can_use_terminals"}
LOOK_UP = {"option", "events"}


@pytest.mark.rule("handle-text-is-made-encodable")
@pytest.mark.parametrize("use", USES.values(), ids=USES)
async def test_half_a_character_is_replaced_wherever_an_author_puts_it(
    use: Callable[[Turn], Awaitable[Any]], tmp_path: Path
) -> None:
    async def drive(turn: Turn) -> None:
        # The client has no such file, and runs no such command.
        with contextlib.suppress(OSError):
            await use(turn)
        await turn.text("still here")

    capabilities = {
        **FILE_CAPABILITIES,
        "terminal": True,
        "elicitation": {"form": {}, "url": {}},
        "session": {"notices": {}},
    }
    store = open_backend("memory:")
    async with running_server(
        Agent("a", drive), store=store, capabilities=capabilities, permissions=["allow_once"] * 2
    ) as client:
        session_id = await client.new_session(str(tmp_path))
        reply = await client.prompt(session_id, "go")
        events = await stored_events(store, session_id)
        shown = "".join(frame.data.decode() for frame in client.frames)
    assert "still here" in reply.text
    assert "a\ufffdb" in f"{shown}{events}"


def test_every_method_of_the_handle_is_tried() -> None:
    methods = {name for name, _ in inspect.getmembers(Turn) if not name.startswith("_")}
    properties = {name for name in methods if isinstance(getattr(Turn, name), property)}
    used = {name.split()[0] for name in USES} | {"tool"}
    assert methods - properties - used - TAKE_NO_TEXT - LOOK_UP == set()

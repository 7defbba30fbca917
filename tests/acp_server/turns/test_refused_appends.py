"""An append that is refused, whichever it is, costs at most its own turn.

State of a turn changes behind the append that it stands for. So wherever an append is refused, the
turn can still be closed, each call has exactly one result, and the next prompt is answered.
"""

from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_server.agents.agent import Agent
from acp_server.agents.turn import Turn
from acp_server.models.loop import ModelLoop
from acp_server.models.script_model import ScriptedModel
from acp_server.models.tools import WORKSPACE_TOOLS
from acp_server.testing import CountedIds, SteppingClock
from acp_server.turns.ports import GrantScope, PermissionOutcome, RunnerPorts
from acp_server.turns.runner import TurnRunner
from session_core import Event, Session, SessionStore, StoreListener, trace_of

CALLS = [{"name": "read", "arguments": {"path": name}} for name in ("a.txt", "gone.txt")]
SCRIPT: list[dict[str, Any]] = [
    {"thought": "hm", "text": "I look.", "calls": CALLS},
    {"text": "Done."},
]
NOTE = {"kind": "plugin", "plugin": "test"}


class Refuser(StoreListener):
    """Refuses one append, the n-th; counts all."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.seen: list[str] = []

    def before_append(self, session: Session, event: Event) -> None:
        self.seen.append(event.type)
        if len(self.seen) == self.number:
            message = "refused for the test"
            raise RuntimeError(message)


class Outside:
    """A client that allows everything and is never slow, and a disk that is never full."""

    can_read_files = False
    can_write_files = False
    congested = False

    async def request_permission(
        self, _call_id: str, _grant: GrantScope | None = None
    ) -> PermissionOutcome:
        return "allowed-always"

    async def hold(self, *, wait: bool = True) -> None:
        return

    async def flush(self) -> None:
        return

    async def room(self) -> None:
        return


async def played(number: int, workspace: Path) -> tuple[Session, Refuser, str]:
    """Play two prompts, the n-th append refused; return how the second one ended."""
    loop = ModelLoop(ScriptedModel(SCRIPT, "model", "test"), WORKSPACE_TOOLS)

    async def drive(turn: Turn) -> None:
        await turn.text("one ")
        if turn.prompt == "again":
            return
        async with turn.tool("edit", kind="execute", ask=True, grant="edit") as call:
            runner.inject([{"type": "text", "text": "by the way"}], NOTE)
            runner.change_setting("mode", "read-only")
            call.update(title="Edit")
            call.result("edited", raw={"count": 1})
        await turn.todos(["more"])
        await turn.thought("two")
        await loop.drive(turn)

    refuser, outside, ids = Refuser(number), Outside(), CountedIds()
    store = SessionStore(clock=SteppingClock(), new_id=ids.session_id)
    store.subscribe(refuser)
    session = store.create(cwd=str(workspace))
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            ports = RunnerPorts(
                client=outside,  # type: ignore[arg-type]  # these turns ask for permission only
                durability=outside,
                pace=outside,
                ids=ids,
                tasks=tasks,
            )
            runner = TurnRunner(session, Agent("edge", drive), ports)
            runner.change_setting("mode", "auto-edit")
            for prompt in ("go", "again"):
                pending = runner.submit([{"type": "text", "text": prompt}])
                ended = (await pending.outcome()).kind
    return session, refuser, ended


@pytest.mark.rule("state-follows-the-append")
async def test_wherever_an_append_is_refused_the_turn_is_closed_and_the_next_one_runs(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.txt").write_text("text of a", encoding="utf-8")
    session, refuser, ended = await played(0, tmp_path)
    assert ended == "completed"
    events = list(session.events)
    total = next(n for n, event in enumerate(events) if event.type == "turn/end") + 1
    assert {"tool/card", "approval/grant", "request/header", "permission/preset"} <= set(
        refuser.seen
    )
    for number in range(1, total + 1):
        session, refuser, ended = await played(number, tmp_path)
        refused = f"append {number}, {refuser.seen[number - 1]}"
        assert ended == "completed", refused
        assert trace_of(session.events).turn is None, refused
        asked = [
            block["id"]
            for event in session.events
            if event.type == "assistant/message"
            for block in event.data["content"]
            if block["type"] == "tool-call"
        ]
        results = [e.data["callId"] for e in session.events if e.type == "tool/result"]
        assert sorted(results) == sorted(asked), refused

"""docs/turn-to-log.md is executable: each call in it is run and must write the events it shows."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_server.agents.agent import Agent
from acp_server.agents.options import BooleanOption
from acp_server.agents.turn import Turn, run_of
from acp_server.testing import CountedIds, SteppingClock
from acp_server.turns.ports import (
    GrantScope,
    NoticeSeverity,
    PermissionOutcome,
    RunnerPorts,
    TerminalExit,
    TerminalOutput,
)
from acp_server.turns.runner import TurnRunner
from session_core import Event, SessionStore

DOCUMENT = Path(__file__).parents[3] / "docs" / "turn-to-log.md"
_EXAMPLE = re.compile(
    r"### (?P<name>.+?)\n.*?```python\n(?P<code>.*?)```\n.*?```text\n(?P<log>.*?)```", re.S
)


class LocalClient:
    """A client without files that allows everything, or refuses everything; it has one terminal."""

    can_read_files = False
    can_write_files = False
    can_use_terminals = True
    can_elicit_forms = True
    can_elicit_urls = True

    def __init__(self, outcome: PermissionOutcome = "allowed-once") -> None:
        self.outcome = outcome

    async def request_permission(
        self, call_id: str, grant: GrantScope | None = None
    ) -> PermissionOutcome:
        return "allowed-always" if grant is not None else self.outcome

    async def read_text_file(
        self, path: str, *, line: int | None = None, limit: int | None = None
    ) -> str:
        raise AssertionError(path)

    async def write_text_file(self, path: str, content: str) -> None:
        raise AssertionError(path)

    async def create_terminal(self, command: str, **_options: Any) -> str:
        return "terminal-1"

    async def terminal_output(self, terminal_id: str) -> TerminalOutput:
        return TerminalOutput("two tests passed\n", TerminalExit(0))

    async def wait_for_terminal_exit(self, terminal_id: str) -> TerminalExit:
        return TerminalExit(0)

    async def kill_terminal(self, terminal_id: str) -> None:
        return

    async def release_terminal(self, terminal_id: str) -> None:
        return

    async def elicit_form(self, message: str, schema: Mapping[str, Any]) -> dict[str, Any] | None:
        return {"name": "Ada"}

    async def elicit_url(self, message: str, url: str, elicitation_id: str) -> bool:
        return True

    def complete_elicitation(self, elicitation_id: str) -> None:
        return

    def notice(self, severity: NoticeSeverity, title: str, description: str | None) -> None:
        return


class NoDisk:
    async def hold(self, *, wait: bool = True) -> None:
        return

    async def flush(self) -> None:
        return

    congested = False

    async def room(self) -> None:
        return


async def events_of(agent: Agent, prompt: str, client: LocalClient, cwd: Path) -> Sequence[Event]:
    ids = CountedIds()
    store = SessionStore(clock=SteppingClock(), new_id=ids.session_id)
    session = store.create(cwd=str(cwd))
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            ports = RunnerPorts(
                client=client, durability=NoDisk(), pace=NoDisk(), ids=ids, tasks=tasks
            )
            runner = TurnRunner(session, agent, ports)
            await runner.submit([{"type": "text", "text": prompt}]).outcome()
    return list(session.events)


def rendered(event: Event) -> str:
    data = {key: value for key, value in event.data.items() if key not in ("turn", "step")}
    line = f"{event.seq:>2} {event.type:<17} {json.dumps(data, ensure_ascii=False)}"
    if event.source_event_seqs is not None:
        line += f"  <- {list(event.source_event_seqs)}"
    return line


def body_of(events: Sequence[Event]) -> list[Event]:
    """The events between the title and the end of the turn: what the agent caused."""
    start = next(n for n, event in enumerate(events) if event.type == "session/title")
    return list(events[start + 1 : -1])


def examples() -> list[Any]:
    found = list(_EXAMPLE.finditer(DOCUMENT.read_text(encoding="utf-8")))
    return [pytest.param(m["code"], m["log"], id=m["name"].strip("`")) for m in found]


async def run_code(code: str, tmp_path: Path) -> list[str]:
    (tmp_path / "README.md").write_text("# Hi\n", encoding="utf-8")
    namespace: dict[str, Any] = {}
    body = "".join(f"    {line}\n" for line in code.splitlines())
    exec(f"async def drive(turn, run):\n{body}", namespace)

    async def drive(turn: Turn) -> None:
        await namespace["drive"](turn, run_of(turn))

    refuses = "refus" in code
    client = LocalClient("rejected" if refuses else "allowed-once")
    agent = Agent("example", drive, options=(BooleanOption("verbose", "Say more"),))
    events = await events_of(agent, "hi there", client, tmp_path)
    return [rendered(event).replace(str(tmp_path), "/w") for event in body_of(events)]


@pytest.mark.rule(
    "turn-is-logged-in-order",
    "answer-decides-the-call",
    "failing-body-fails-its-call",
    "body-changes-update-the-card",
    "step-is-message-and-calls",
    "handle-writes-documented-events",
    "first-prompt-gives-title",
)
@pytest.mark.parametrize(("code", "log"), examples())
async def test_a_call_writes_the_events_that_the_document_shows(
    code: str, log: str, tmp_path: Path
) -> None:
    assert await run_code(code, tmp_path) == log.strip("\n").splitlines()


@pytest.mark.rule("handle-writes-documented-events")
def test_the_document_shows_every_public_method_of_the_turn() -> None:
    shown = " ".join(code for code, _log in (p.values for p in examples()))
    methods = {
        name for name in dir(Turn) if not name.startswith("_") and callable(getattr(Turn, name))
    }
    missing = sorted(name for name in methods if f"turn.{name}(" not in shown)
    assert missing == []


def test_examples_are_found() -> None:
    assert len(examples()) >= 10

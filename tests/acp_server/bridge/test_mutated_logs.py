"""Foreign logs with a field changed, lines lost, doubled, or swapped, imported and loaded.

Each mutant loads or is refused by name, at the import or at the load; a refusal changes no byte and
keeps no lock, and the server lives. `ACP_MUTANTS` sets how many there are for each store,
`ACP_MUTANT_SEED` which.
"""

import copy
import json
import os
import random
import sqlite3
from collections.abc import Awaitable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_server.agents.agent import Agent
from acp_server.testing import AcpClient, AcpError, FrameChecker, running_server
from persistence import PersistenceError, import_log, open_backend
from persistence.memory import MemoryBackend
from tests.acp_server.helpers import echo

MUTANTS = int(os.environ.get("ACP_MUTANTS", "150"))
SEED = int(os.environ.get("ACP_MUTANT_SEED", "0"))
SCENARIOS = Path(__file__).parents[3] / "fixtures" / "scenarios"
CWD = "/tmp/w"

Log = list[Any]

FOREIGN: tuple[Any, ...] = (
    *(None, True, 0, 1, -1, 2**53 - 1, 1.5, "", "x", "user", "text", "append", "\x00"),
    *([], [None], ["x"], {}, {"type": "text"}, {"type": "text", "text": None}, {"kind": 1}),
)


class MutantChecker(FrameChecker):
    """Lets calls come out of order: the log says so."""

    def raise_violations(self) -> None:
        self.violations = [found for found in self.violations if found.rule != "tool-call"]
        super().raise_violations()


def sound_logs() -> list[Log]:
    """Return the events of every scenario whose log has some."""
    logs = []
    for path in sorted(SCENARIOS.glob("*/session.expected.jsonl")):
        _header, *events = map(json.loads, path.read_text(encoding="utf-8").splitlines())
        if events:
            logs.append(events)
    return logs


def places_in(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each container with each of its keys, at any depth."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in items:
            yield value, key
            yield from places_in(inner)


def change_field(rand: random.Random, log: Log) -> None:
    """Change, drop, or add a field of an event's payload or surface marker, or its type."""
    event = rand.choice(log)
    places = [place for place in places_in(event) if place[1] not in ("seq", "time")]
    container, key = rand.choice(places)
    match rand.randrange(4):
        case 0:
            del container[key]
        case 1 if isinstance(container, dict):
            container[rand.choice(["type", "text", "error", "display", key])] = rand.choice(FOREIGN)
        case 2:
            other, other_key = rand.choice(list(places_in(rand.choice(log))))
            container[key] = copy.deepcopy(other[other_key])
        case _:
            container[key] = rand.choice(FOREIGN)


def move_lines(rand: random.Random, log: Log) -> None:
    """Lose, double, or swap lines, or end the log early."""
    place = rand.randrange(len(log))
    match rand.randrange(4):
        case 0:
            del log[place]
        case 1:
            log.insert(rand.randrange(len(log)), copy.deepcopy(log[place]))
        case 2:
            other = rand.randrange(len(log))
            log[place], log[other] = log[other], log[place]
        case _:
            del log[place + 1 :]


def mutant(rand: random.Random, log: Log) -> Log:
    """Return a changed copy, which is numbered from 0 on more often than not."""
    log = copy.deepcopy(log)
    for _ in range(rand.choice((1, 1, 1, 2, 3))):
        if log:
            rand.choice((change_field, change_field, move_lines))(rand, log)
    if rand.random() < 0.9:
        for seq, event in enumerate(log):
            event["seq"] = seq
    return log


def write_log(path: Path, log: Log) -> None:
    header = {"type": "session", "version": 0, "id": "m", "createdAt": 0, "cwd": CWD}
    path.write_text("".join(json.dumps(line) + "\n" for line in [header, *log]), encoding="utf-8")


def stored_bytes(folder: Path, store: str) -> Any:
    """Return all that is stored but locks and caches, to be compared."""
    if store == "sqlite":
        with closing(sqlite3.connect(folder / "s")) as connection:
            return list(connection.iterdump())
    files = (folder / "s").rglob("session.*")
    return sorted((str(path), path.read_bytes()) for path in files if path.suffix != ".lock")


async def refusal_of(request: Awaitable[Any]) -> AcpError | None:
    """Return the error that a request is answered with, which names what is wrong."""
    try:
        await request
    except AcpError as error:
        refusal = error
    else:
        return None
    assert refusal.message != "Internal error"
    return refusal


async def loads(client: AcpClient, session_id: str, *, prompts: bool) -> bool:
    """Load a session, and go on with it; return whether it loads."""
    if await refusal_of(client.load_session(session_id, CWD)) is not None:
        return False
    if prompts:
        await refusal_of(client.prompt(session_id, "go on"))
    await client.close_session(session_id)
    return True


@pytest.mark.rule("bad-input-never-ends-server", "source-format-logs-load")
@pytest.mark.parametrize("store", ["jsonl", "sqlite"])
async def test_a_mutated_log_loads_or_is_refused_by_name_and_left_alone(
    store: str, tmp_path: Path
) -> None:
    rand = random.Random(SEED)
    logs = sound_logs()
    spec = f"{store}:{tmp_path / 's'}"
    backend = open_backend(spec)
    path = tmp_path / "mutant.jsonl"
    async with running_server(Agent("echo", echo), store=spec, checker=MutantChecker()) as client:
        for number in range(MUTANTS):
            log = mutant(rand, rand.choice(logs))
            session_id = f"mutant-{number}"
            write_log(path, log)
            try:
                await import_log(path, backend, session_id=session_id)
            except PersistenceError:
                assert await backend.load_stored(session_id) is None
                continue
            before = stored_bytes(tmp_path, store)
            try:
                if not await loads(client, session_id, prompts=rand.random() < 0.5):
                    assert stored_bytes(tmp_path, store) == before
                    writer = await backend.acquire_writer(session_id, wait=False)
                    await writer.release()
            except BaseException as error:
                error.add_note(f"mutant {number} of seed {SEED}: {json.dumps(log)}")
                raise
            await client.delete_session(session_id)
        with anyio.fail_after(10):
            other = await client.new_session(CWD)
            assert (await client.prompt(other, "go")).stop_reason == "end_turn"
    await backend.close()


def turn_with(*events: dict[str, Any], end: dict[str, Any] | None = None) -> Log:
    """Return one turn, numbered from 0 on."""
    user = {"kind": "user"}
    log: Log = [
        {"type": "turn/start", "data": {"turn": 1, "trigger": {"kind": "message", "source": user}}},
        *events,
        {"type": "turn/end", "data": {"turn": 1, "reason": end or {"kind": "completed"}}},
    ]
    return [{**event, "seq": seq, "time": seq} for seq, event in enumerate(log)]


@pytest.mark.rule("stored-payloads-are-checked-for-use")
@pytest.mark.parametrize(
    ("log", "named"),
    [
        (turn_with({"type": "approval/asked", "data": {"callId": "c"}}), "'id' must be present"),
        (turn_with({"type": "approval/asked", "data": {"id": "a", "callId": []}}), "'callId'"),
        (turn_with({"type": "approval/decided", "data": {"outcome": "x"}}), "'id' must be present"),
        (turn_with({"type": "approval/decided", "data": {"id": "a", "outcome": 1}}), "'outcome'"),
        (turn_with(end={"kind": "error", "failure": {"code": "AUTH"}}), "'reason.failure.message'"),
    ],
)
async def test_a_payload_that_lacks_what_a_load_reads_is_named(
    log: Log, named: str, tmp_path: Path
) -> None:
    write_log(tmp_path / "m.jsonl", log)
    with pytest.raises(PersistenceError) as caught:
        await import_log(tmp_path / "m.jsonl", MemoryBackend())
    assert named in str(caught.value)


@pytest.mark.rule("events-project-to-updates")
@pytest.mark.parametrize(
    ("block", "shown"),
    [
        ({"type": "text", "text": "a", "display": 0}, {"type": "text", "text": "a"}),
        ({"type": "vendor", "x": 1}, "['vendor' block that cannot be shown]"),
        ({"type": "image", "data": 1.5, "mimeType": "image/png"}, "['image' block that cannot"),
    ],
)
async def test_a_prompt_block_of_a_foreign_log_is_shown_as_the_protocol_has_it(
    block: dict[str, Any], shown: Any, tmp_path: Path
) -> None:
    said = {"content": [block], "source": {"kind": "user"}}
    log = turn_with({"type": "user/message", "data": said, "surfaceOp": "append"})
    write_log(tmp_path / "m.jsonl", log)
    backend = MemoryBackend()
    await import_log(tmp_path / "m.jsonl", backend)
    async with running_server(Agent("echo", echo), store=backend) as client:
        await client.load_session("m", CWD)
        content = client.updates[0].update["content"]
        assert content == shown or content["text"].startswith(shown)


@pytest.mark.rule("events-project-to-updates")
async def test_a_todo_of_a_foreign_log_has_a_status_of_the_protocol(tmp_path: Path) -> None:
    todos = [{"content": "a", "status": "someday"}, {"content": "b", "status": "completed"}]
    log = turn_with({"type": "todo/write", "data": {"todos": todos}})
    write_log(tmp_path / "m.jsonl", log)
    backend = MemoryBackend()
    await import_log(tmp_path / "m.jsonl", backend)
    async with running_server(Agent("echo", echo), store=backend) as client:
        await client.load_session("m", CWD)
        entries = client.updates[0].update["entries"]
        assert [entry["status"] for entry in entries] == ["pending", "completed"]

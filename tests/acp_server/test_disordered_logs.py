"""Stored logs whose turns are out of order: readable, named, and never the end of the server."""

import json
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_server.agents.agent import Agent
from acp_server.agents.turn import Turn
from acp_server.testing import AcpClient, AcpError, running_server
from acp_server.turns.turn_log import TurnLog
from persistence import PersistenceError, import_log, open_backend, verify

LAST = 2**53 - 1
USER = {"kind": "user"}
Log = list[dict[str, Any]]
SPEC = f"{Path(__file__).parents[2] / 'fixtures' / 'agents' / 'worker.py'}:echo"


def boundary(kind: str, number: int) -> dict[str, Any]:
    what = {"trigger": {"kind": "message", "source": USER}}
    if kind == "end":
        what = {"reason": {"kind": "completed"}}
    return {"type": f"turn/{kind}", "data": {"turn": number, **what}}


def start(number: int) -> dict[str, Any]:
    return boundary("start", number)


def end(number: int) -> dict[str, Any]:
    return boundary("end", number)


def step(kind: str, turn: int, number: int = 1) -> dict[str, Any]:
    return {"type": f"step/{kind}", "data": {"turn": turn, "step": number}}


def said(text: str = "hi") -> dict[str, Any]:
    data = {"content": [{"type": "text", "text": text}], "source": USER}
    return {"type": "user/message", "data": data, "surfaceOp": "append"}


DISORDERED: dict[str, Log] = {
    "the last number there is": [start(LAST), said(), end(LAST)],
    "the last number, still open": [start(LAST), said()],
    "a number below zero": [start(-5), said(), end(-5)],
    "number zero": [start(0), said(), end(0)],
    "no start": [said(), end(1)],
    "the end of another turn": [start(1), said(), end(7)],
    "the end of the last turn there can be": [start(1), said(), end(LAST)],
    "a start inside an open turn": [start(1), said(), start(2), said(), end(2)],
    "a start inside an open turn, still open": [start(1), said(), start(2), said()],
    "a start inside an open step": [start(1), said(), step("start", 1), start(2), end(2)],
    "a number that comes twice": [start(1), said(), end(1), start(1), said(), end(1)],
    "numbers that fall": [start(9), said(), end(9), start(3), said(), end(3)],
    "an end inside an open step": [start(1), said(), step("start", 1), end(1)],
    "two ends": [start(1), said(), end(1), end(1)],
    "a step outside of a turn": [start(1), said(), end(1), step("start", 1)],
    "a step of another turn": [start(1), said(), step("start", 4, 3), step("end", 4, 3)],
    "steps in the wrong order": [start(1), step("end", 1), step("start", 1, 2), said(), end(1)],
}
ENDED = {
    name for name, log in DISORDERED.items() if any(e["data"].get("turn") == LAST for e in log)
}


def write_log(path: Path, log: Log, cwd: Path) -> Path:
    header = {"type": "session", "version": 0, "id": path.stem, "cwd": str(cwd), "createdAt": 1}
    lines: Log = [header]
    lines += [{**event, "seq": seq, "time": 1000 + seq} for seq, event in enumerate(log)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


@asynccontextmanager
async def serving(store: str, folder: Path) -> AsyncIterator[AcpClient]:
    argv = [sys.executable, "-m", "acp_server", "serve", "--agent", SPEC, "--store", store]
    async with AcpClient.spawn(argv, cwd=folder) as client:
        await client.initialize()
        yield client
        await client.close_stdin()
        with anyio.fail_after(15):
            assert await client.wait() == 0


@pytest.fixture(params=["jsonl", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"{request.param}:{tmp_path / 'store'}"


async def stored(store: str, log: Log, folder: Path, name: str = "mutant") -> str | None:
    """Import a log; None if it is refused."""
    backend = open_backend(store)
    try:
        done = await import_log(write_log(folder / f"{name}.jsonl", log, folder), backend)
    except PersistenceError:
        return None
    finally:
        await backend.close()
    return done.header.id


async def is_sound(store: str, session_id: str) -> bool:
    backend = open_backend(store)
    try:
        found = await verify(backend, session_id)
    finally:
        await backend.close()
    return not found.problems


async def test_every_disorder_is_readable_named_and_survived(store: str, tmp_path: Path) -> None:
    mutants = {
        name: await stored(store, log, tmp_path, f"m{number}")
        for number, (name, log) in enumerate(DISORDERED.items())
    }
    for name, session_id in mutants.items():
        assert session_id is not None, name
        assert not await is_sound(store, session_id), name
    async with serving(store, tmp_path) as client:
        other = await client.new_session(tmp_path)
        for name, session_id in mutants.items():
            assert session_id is not None
            await client.load_session(session_id, tmp_path)
            if name in ENDED:
                for attempt in (
                    client.prompt(session_id, "go"),
                    client.set_mode(session_id, "read-only"),
                ):
                    with pytest.raises(AcpError) as caught:
                        await attempt
                    assert caught.value.code == -32603, name
                    assert "no number is left behind turn 9007199254740991" in str(caught.value)
                await client.prompt(session_id, "/title x")
                assert "no number is left" in client.transcript_of(session_id).messages[-1].text
            else:
                assert (await client.prompt(session_id, "go")).text == "go", name
                await client.set_mode(session_id, "read-only")
                await client.prompt(session_id, "/title x")
                assert (await client.prompt(session_id, "more")).text == "more", name
            assert (await client.prompt(other, "still here")).text == "still here", name
    async with serving(store, tmp_path) as client:
        for name, session_id in mutants.items():
            assert session_id is not None
            await client.load_session(session_id, tmp_path)
            assert (name in ENDED) != ("more" in str(client.transcript_of(session_id))), name


@pytest.mark.parametrize("seed", range(2))
async def test_boundaries_dropped_doubled_swapped_and_renumbered(
    seed: int, store: str, tmp_path: Path
) -> None:
    """Whatever was done to a log, a prompt in it is answered and the next session is served."""
    chance = random.Random(seed)
    sound: Log = []
    for turn in (1, 2, 3):
        sound += [start(turn), said(), step("start", turn), step("end", turn), end(turn)]
    ids = []
    for number in range(12):
        log = [json.loads(json.dumps(event)) for event in sound]
        for _ in range(chance.randint(1, 4)):
            at, to = chance.randrange(len(log)), chance.randrange(len(log))
            match chance.choice(["drop", "double", "swap", "turn", "step"]):
                case "drop":
                    del log[at]
                case "double":
                    log.insert(to, log[at])
                case "swap":
                    log[at], log[to] = log[to], log[at]
                case key:
                    if key in log[at]["data"]:
                        value = chance.choice([-1, 0, 1, 2, 5, LAST - 1, LAST])
                        log[at] = {**log[at], "data": {**log[at]["data"], key: value}}
        ids.append(await stored(store, log, tmp_path, f"s{number}"))
    async with serving(store, tmp_path) as client:
        other = await client.new_session(tmp_path)
        for session_id in filter(None, ids):
            await client.load_session(session_id, tmp_path)
            try:
                assert (await client.prompt(session_id, "go")).text == "go"
            except AcpError as error:
                assert "no number is left behind" in str(error)  # noqa: PT017 - either is right
            assert (await client.prompt(other, "still here")).text == "still here"


@pytest.mark.parametrize(
    ("event_type", "data"),
    [
        ("turn/end", {"turn": 1, "reason": {"kind": "completed"}}),
        ("step/start", {"turn": 1, "step": 1}),
        ("todo/write", {"todos": []}),
        ("mode/set", {}),
    ],
)
async def test_an_agent_cannot_record_what_the_log_writes_itself(
    event_type: str, data: dict[str, Any], tmp_path: Path
) -> None:
    text = (
        "async def recording(turn):\n"
        "    if turn.prompt == 'go':\n"
        f"        await turn.record({event_type!r}, {data!r})\n"
        "    await turn.text('fine')\n"
    )
    (tmp_path / "recording.py").write_text(text, encoding="utf-8")
    spec = f"{tmp_path / 'recording.py'}:recording"
    store = f"jsonl:{tmp_path / 'store'}"
    argv = [sys.executable, "-m", "acp_server", "serve", "--agent", spec, "--store", store]
    async with AcpClient.spawn(argv, cwd=tmp_path) as client:
        await client.initialize()
        session_id = await client.new_session(tmp_path)
        with pytest.raises(AcpError, match="the agent failed"):
            await client.prompt(session_id, "go")
        assert (await client.prompt(session_id, "again")).text == "fine"
        await client.close_stdin()
        with anyio.fail_after(15):
            assert await client.wait() == 0
    assert await is_sound(store, session_id)


async def test_a_turn_that_cannot_be_closed_is_answered_and_the_session_loads_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault of ours, or a veto of somebody's: the log takes no end of the turn."""

    async def echo(turn: Turn) -> None:
        await turn.text(turn.prompt)

    close = TurnLog.close

    def broken(self: TurnLog, reason: Any, *, clean: bool) -> None:
        if breaks:
            raise RuntimeError("the end is refused")
        close(self, reason, clean=clean)

    monkeypatch.setattr(TurnLog, "close", broken)
    breaks = True
    async with running_server(Agent("echo", echo), store=f"jsonl:{tmp_path / 's'}") as client:
        session_id = await client.new_session(tmp_path)
        other = await client.new_session(tmp_path)
        with pytest.raises(AcpError, match="load the session again"):
            await client.prompt(session_id, "go")
        breaks = False
        assert (await client.prompt(other, "still here")).text == "still here"
        with pytest.raises(AcpError) as caught:
            await client.prompt(session_id, "not open any more")
        assert caught.value.code == -32002
        await client.load_session(session_id, tmp_path)
        assert (await client.prompt(session_id, "more")).text == "more"

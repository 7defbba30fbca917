"""Stored logs whose turns and steps stand out of order: readable, named, and harmless.

Rule: stored-payloads-are-checked-for-use.
"""

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from acp_server.agents.agent import Agent
from acp_server.agents.commands import Command, CommandCall
from acp_server.agents.turn import Turn
from acp_server.testing import AcpClient, AcpError, running_server
from persistence import import_log, open_backend, verify
from session_core import MAX_SAFE_INT, Event, Message, Session, Summary

Log = list[dict[str, Any]]
Mutate = Callable[[Log], Log]

SESSION: Final = "s"
USER: Final = {"kind": "user"}
BOUNDARIES: Final = ("turn/start", "turn/end", "step/start", "step/end")
NO_NUMBER: Final = f"no number is left behind turn {MAX_SAFE_INT}"
LOOSE: Final = {"type": "todo/write", "data": {"todos": []}}


def sound_log() -> Log:
    """Return two turns of two steps each, the first of which calls a tool."""
    return [
        {"type": kind, "data": data, **surface}
        for turn in (1, 2)
        for kind, data, surface in _turn(turn)
    ]


def _turn(turn: int) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    one, two = {"turn": turn, "step": 1}, {"turn": turn, "step": 2}
    call = {"callId": f"c{turn}", "name": "t", "arguments": "{}"}
    block = {"type": "tool-call", "id": f"c{turn}", "name": "t", "arguments": "{}"}
    said = [{"type": "text", "text": "x"}]
    model = {"provenance": {"provider": "p", "model": "m"}}
    append = {"surfaceOp": "append"}
    return [
        ("turn/start", {"turn": turn, "trigger": {"kind": "message", "source": USER}}, {}),
        ("user/message", {"content": said, "source": USER}, append),
        ("step/start", one, {}),
        ("assistant/message", {**one, "content": [block], **model}, append),
        ("tool/call", {**one, **call}, {}),
        ("tool/result", {**one, "callId": f"c{turn}", "content": said, "isError": False}, append),
        ("step/end", one, {}),
        ("step/start", two, {}),
        ("assistant/message", {**two, "content": said, **model}, append),
        ("step/end", two, {}),
        ("turn/end", {"turn": turn, "reason": {"kind": "completed"}}, {}),
    ]


def numbered(old: int, new: int) -> Mutate:
    """Give a turn another number, in all of its events."""
    return lambda log: [
        {**e, "data": {**e["data"], "turn": new}} if e["data"].get("turn") == old else e
        for e in log
    ]


def place(log: Log, kind: str, turn: int) -> int:
    return next(i for i, e in enumerate(log) if e["type"] == kind and e["data"]["turn"] == turn)


def without(kind: str, turn: int) -> Mutate:
    def drop(log: Log) -> Log:
        at = place(log, kind, turn)
        return [*log[:at], *log[at + 1 :]]

    return drop


def doubled(kind: str, turn: int) -> Mutate:
    def double(log: Log) -> Log:
        at = place(log, kind, turn)
        return [*log[: at + 1], *log[at:]]

    return double


def changed(kind: str, turn: int, /, **data: int) -> Mutate:
    def change(log: Log) -> Log:
        at = place(log, kind, turn)
        return [*log[:at], {**log[at], "data": {**log[at]["data"], **data}}, *log[at + 1 :]]

    return change


def cut_behind(kind: str, turn: int) -> Mutate:
    return lambda log: log[: place(log, kind, turn) + 1]


def chain(*steps: Mutate) -> Mutate:
    def mutate(log: Log) -> Log:
        for step in steps:
            log = step(log)
        return log

    return mutate


def start_inside(log: Log) -> Log:
    at = place(log, "step/start", 2)
    trigger = {"kind": "message", "source": USER}
    start = {"type": "turn/start", "data": {"turn": 7, "trigger": trigger}}
    return [*log[: at + 1], start, *log[at + 1 :]]


DISORDERS: Final[dict[str, Mutate]] = {
    "turn-negative": numbered(2, -4),
    "turn-zero": numbered(2, 0),
    "turn-ahead": numbered(2, 9),
    "turn-again": numbered(2, 1),
    "turns-swapped": lambda log: [*log[11:], *log[:11]],
    "first-turn-late": numbered(1, 6),
    "only-turn-negative": chain(cut_behind("turn/end", 1), numbered(1, -1)),
    "near-the-last-number": numbered(1, MAX_SAFE_INT - 99),
    "no-start": without("turn/start", 2),
    "no-first-start": without("turn/start", 1),
    "no-start-at-all": chain(without("turn/start", 1), without("turn/start", 2)),
    "no-end": without("turn/end", 1),
    "no-last-end": chain(without("turn/start", 2), without("turn/end", 2)),
    "end-of-another": changed("turn/end", 2, turn=7),
    "end-of-an-earlier": changed("turn/end", 2, turn=1),
    "end-of-a-negative": changed("turn/end", 2, turn=-7),
    "start-inside": start_inside,
    "start-inside-open": chain(start_inside, lambda log: log[:-4]),
    "start-twice": doubled("turn/start", 2),
    "end-twice": doubled("turn/end", 2),
    "step-of-another": changed("step/start", 2, turn=5),
    "step-ahead": changed("step/start", 2, step=8),
    "step-at-its-end": changed("step/start", 2, step=MAX_SAFE_INT),
    "step-not-ended": without("step/end", 2),
    "step-not-started": without("step/start", 2),
    "open-call-of-another-step": chain(
        cut_behind("tool/call", 2), changed("assistant/message", 2, step=4)
    ),
    "open-negative": chain(cut_behind("step/start", 2), numbered(2, -4)),
    "loose-at-the-start": lambda log: [LOOSE, *log],
    "loose-at-the-end": lambda log: [*log, LOOSE],
}
"""Each breaks the order; a prompt in it is answered all the same."""

FULL: Final[dict[str, Mutate]] = {
    "last-number": numbered(2, MAX_SAFE_INT),
    "last-number-first": numbered(1, MAX_SAFE_INT),
    "end-of-the-last": changed("turn/end", 2, turn=MAX_SAFE_INT),
    "open-last": chain(cut_behind("step/start", 2), numbered(2, MAX_SAFE_INT)),
}
"""Behind these no turn has a number."""


def write_log(folder: Path, log: Log, session_id: str = SESSION) -> Path:
    header = {"type": "session", "version": 0, "id": session_id, "createdAt": 5, "cwd": "/w"}
    events = [{"seq": seq, "time": 1000 + seq, **event} for seq, event in enumerate(log)]
    path = folder / f"{session_id}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in [header, *events]))
    return path


@pytest.fixture(params=["jsonl:{}/store", "sqlite:{}/store.db"])
def spec(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(request.param).format(tmp_path)


async def imported(spec: str, folder: Path, log: Log, session_id: str = SESSION) -> None:
    backend = open_backend(spec)
    await import_log(write_log(folder, log, session_id), backend)
    await backend.close()


async def faults(spec: str) -> list[str]:
    backend = open_backend(spec)
    found = await verify(backend, SESSION)
    await backend.close()
    return [f"{problem.kind} {problem.seq} {problem.detail}" for problem in found.problems]


async def echo(turn: Turn) -> None:
    async with turn.tool("look") as call:
        call.result("seen")
    await turn.text(turn.prompt)


async def shortened(_messages: Sequence[Message]) -> Summary:
    return Summary("short", "p", "m", 1)


ECHO: Final = Agent("echo", echo, summarize=shortened)


def warned(result: dict[str, Any]) -> list[str]:
    warnings = result.get("_meta", {}).get("acp-session-server", {}).get("warnings", [])
    return [w["message"] for w in warnings if w["code"] == "log-out-of-order"]


async def lives(client: AcpClient) -> None:
    other = await client.new_session("/w")
    assert (await client.prompt(other, "still here")).text == "still here"
    await client.close_session(other)


async def refusal(client: AcpClient, text: str = "go on") -> str:
    with pytest.raises(AcpError) as caught:
        await client.prompt(SESSION, text)
    assert caught.value.code == -32603
    return caught.value.message


@pytest.mark.parametrize("name", DISORDERS)
async def test_a_disordered_log_is_loaded_named_and_continued(
    name: str, spec: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await imported(spec, tmp_path, DISORDERS[name](sound_log()))
    named = await faults(spec)
    assert named
    for series in (1, 2):  # again behind a restart, with what the first run has left
        async with running_server(ECHO, store=spec, series=series) as client:
            caplog.clear()
            (message,) = warned(await client.load_session(SESSION, "/w"))
            fault = named[0].split(" ", 2)[2].split(": ", 1)[1]
            assert fault in message
            assert fault in caplog.text
            assert client.updates_of(SESSION)
            assert (await client.prompt(SESSION, "go on")).text == "go on"
            await client.set_mode(SESSION, "read-only" if series == 1 else "ask")
            await client.set_config_option(SESSION, "mode", "auto-edit")
            assert "called" in (await client.prompt(SESSION, "/title Name")).text
            assert "Forked" in (await client.prompt(SESSION, "/fork")).text
            assert (await client.prompt(SESSION, "/compact")).stop_reason == "end_turn"
            assert (await client.prompt(SESSION, "go on")).stop_reason == "end_turn"
            await lives(client)
    assert await faults(spec) == named  # what was added is sound, closers included


@pytest.mark.parametrize("name", FULL)
async def test_a_log_without_a_free_turn_number_is_readable_and_refuses_by_name(
    name: str, spec: str, tmp_path: Path
) -> None:
    await imported(spec, tmp_path, FULL[name](sound_log()))
    async with running_server(ECHO, store=spec) as client:
        assert warned(await client.load_session(SESSION, "/w"))
        assert client.updates_of(SESSION)
        assert NO_NUMBER in await refusal(client)
        for call in (
            client.set_mode(SESSION, "full-access"),
            client.set_config_option(SESSION, "mode", "full-access"),
        ):
            with pytest.raises(AcpError, match=NO_NUMBER) as caught:
                await call
            assert caught.value.code == -32603
        for command in ("/title Name", "/compact"):
            assert NO_NUMBER in (await client.prompt(SESSION, command)).text
        assert "Forked" in (await client.prompt(SESSION, "/fork")).text
        assert NO_NUMBER in await refusal(client)
        loaded = await client.load_session(SESSION, "/w")
        assert loaded["modes"]["currentModeId"] == "ask"  # what was refused is not set
        await lives(client)


def disordered(seed: int) -> Log:
    """Return a log some of whose boundaries were swapped, dropped, doubled or renumbered."""
    chance = random.Random(seed)
    log = sound_log()
    for _ in range(chance.randint(1, 4)):
        if not any(e["type"] in BOUNDARIES for e in log):
            break
        at = chance.choice([i for i, e in enumerate(log) if e["type"] in BOUNDARIES])
        match chance.randrange(5):
            case 0:
                del log[at]
            case 1:
                log.insert(at, log[at])
            case 2:
                other = chance.choice([i for i, e in enumerate(log) if e["type"] in BOUNDARIES])
                log[at], log[other] = log[other], log[at]
            case 3:
                number = chance.choice([-1, 0, 1, 2, 3, MAX_SAFE_INT - 9])
                log[at] = {**log[at], "data": {**log[at]["data"], "turn": number}}
            case _:
                del log[chance.randint(at + 1, len(log)) :]
    return log or sound_log()


async def test_whatever_becomes_of_the_boundaries_a_prompt_is_answered(
    spec: str, tmp_path: Path
) -> None:
    names = [f"s{seed}" for seed in range(60)]
    for seed, name in enumerate(names):
        await imported(spec, tmp_path, disordered(seed), name)
    async with running_server(ECHO, store=spec) as client:
        for name in names:
            await client.load_session(name, "/w")
            assert (await client.prompt(name, "go on")).text == "go on", name
            await client.set_mode(name, "read-only")
            assert (await client.prompt(name, "go on")).stop_reason == "end_turn"
            await client.close_session(name)
        await lives(client)


@pytest.mark.parametrize("source", [None, {"no": "kind"}])
async def test_what_was_said_during_a_command_and_is_refused_ends_nothing(
    source: Any, spec: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Either no number is left for its turn, or its source is none."""
    said: list[CommandCall] = []

    async def summarize(_messages: Sequence[Message]) -> Summary:
        said[0].session.add_context("meanwhile", source)
        said[0].session.add_context("and", source)
        return Summary("short", "p", "m", 1)

    async def compact(call: CommandCall) -> str:
        said.append(call)
        return str(await call.session.compact())

    agent = Agent("a", echo, commands=(Command("both", "d", compact),), summarize=summarize)
    last = 2 if source else MAX_SAFE_INT - 1
    await imported(spec, tmp_path, numbered(2, last)(sound_log()))
    async with running_server(agent, store=spec) as client:
        await client.load_session(SESSION, "/w")
        assert (await client.prompt(SESSION, "/both")).text == "8"
        assert caplog.text.count("a message to the model was refused") == 2
        if source:
            assert (await client.prompt(SESSION, "go on")).text == "go on"
        else:
            assert NO_NUMBER in await refusal(client)
        await lives(client)


async def test_a_command_that_leaves_a_turn_open_is_answered_and_the_session_loads_again(
    spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = Session.append

    def refusing(self: Session, type: str, *rest: Any) -> Event:
        if type == "turn/end" and refuses:
            message = "no end"
            raise RuntimeError(message)
        return append(self, type, *rest)

    async def summarize(_messages: Sequence[Message]) -> Summary:
        said[0].session.add_context("meanwhile")
        return Summary("short", "p", "m", 1)

    async def compact(call: CommandCall) -> str:
        said.append(call)
        return str(await call.session.compact())

    said: list[CommandCall] = []
    agent = Agent("a", echo, commands=(Command("both", "d", compact),), summarize=summarize)
    await imported(spec, tmp_path, sound_log())
    monkeypatch.setattr(Session, "append", refusing)
    refuses = True
    async with running_server(agent, store=spec) as client:
        await client.load_session(SESSION, "/w")
        assert "load the session again" in await refusal(client, "/both")
        refuses = False
        await lives(client)
        await client.load_session(SESSION, "/w")
        assert (await client.prompt(SESSION, "go on")).text == "go on"
    assert await faults(spec) == []

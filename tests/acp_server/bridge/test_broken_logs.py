"""Stored logs with lines lost, doubled, swapped or changed: each loads or is refused by name."""

import random
from collections.abc import Callable

import anyio
import orjson
import pytest

from acp_server.agents.agent import Agent
from acp_server.agents.turn import Turn
from acp_server.testing import AcpError, FrameChecker, running_server
from persistence.memory import MemoryBackend, MemoryLog

SEEDS = range(8)
MUTANTS = 30


class RepeatedCalls(FrameChecker):
    """Lets a call come twice: the log says so."""

    def raise_violations(self) -> None:
        self.violations = [found for found in self.violations if found.rule != "tool-call"]
        super().raise_violations()


async def drive(turn: Turn) -> None:
    """A turn with a bit of everything."""
    await turn.todos(["first"])
    await turn.thought("hm")
    async with turn.tool("read", kind="read", arguments={"n": 1}) as call:
        call.result("content")
    await turn.text("done")


def lose(lines: list[bytes], place: int) -> None:
    del lines[place]


def double(lines: list[bytes], place: int) -> None:
    lines.insert(place, lines[place])


def swap(lines: list[bytes], place: int) -> None:
    lines[place - 1], lines[place] = lines[place], lines[place - 1]


def strip_surface(lines: list[bytes], place: int) -> None:
    record = orjson.loads(lines[place])
    record.pop("surfaceOp", None)
    lines[place] = orjson.dumps(record) + b"\n"


def add_surface(lines: list[bytes], place: int) -> None:
    record = orjson.loads(lines[place])
    record["surfaceOp"] = {"op": "replace", "start": 1, "end": place}
    lines[place] = orjson.dumps(record) + b"\n"


def empty_data(lines: list[bytes], place: int) -> None:
    record = orjson.loads(lines[place])
    if "data" in record:
        record["data"].pop(next(iter(record["data"]), ""), None)
    lines[place] = orjson.dumps(record) + b"\n"


CHANGES: tuple[Callable[[list[bytes], int], None], ...] = (
    lose,
    double,
    swap,
    strip_surface,
    add_surface,
    empty_data,
)


def renumbered(lines: list[bytes]) -> list[bytes]:
    """Give the events the seqs of their places, so that no gap hides what else is wrong."""
    seq, out = 0, []
    for line in lines:
        record = orjson.loads(line)
        if "seq0" in record:
            record["seq0"] = seq
            seq += len(record["texts"]) if "texts" in record else 1
        else:
            record["seq"] = seq
            seq += 1
        out.append(orjson.dumps(record) + b"\n")
    return out


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_broken_log_loads_or_is_refused_by_name_and_left_alone(seed: int) -> None:
    rand = random.Random(seed)
    backend = MemoryBackend()
    logs = backend.disk.logs
    async with running_server(
        Agent("all", drive), store=backend, checker=RepeatedCalls()
    ) as client:
        whole = await client.new_session("/tmp/w")
        for _ in range(2):
            await client.prompt(whole, "go")
        await client.close_session(whole)
        header, sound = logs[whole].header, list(logs[whole].lines)
        for number in range(MUTANTS):
            lines = list(sound)
            if rand.random() < 0.5:
                del lines[rand.randrange(4, len(lines)) :]
            for _ in range(rand.randint(1, 2)):
                rand.choice(CHANGES)(lines, rand.randrange(1, len(lines)))
            if rand.random() < 0.7:
                lines = renumbered(lines)
            before = list(lines)
            logs[whole] = MemoryLog(header, lines, 1000 + number)
            try:
                await client.load_session(whole, "/tmp/w")
            except AcpError as error:
                refusal: AcpError | None = error
            else:
                refusal = None
            if refusal is not None:
                assert refusal.message != "Internal error", before
                assert logs[whole].lines == before
                assert whole not in backend.disk.locked
            else:
                await client.close_session(whole)
        with anyio.fail_after(5):
            other = await client.new_session("/tmp/w")
            assert (await client.prompt(other, "go")).stop_reason == "end_turn"

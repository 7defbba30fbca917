from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.lowlevel import checkpoint

from acp_server.transport.outbox import (
    CONGESTED_BYTES,
    OVERLOADED_BYTES,
    RELIEVED_BYTES,
    ROOM_BYTES,
    WRITE_BYTES,
    Outbox,
)

MIB = 1024 * 1024


class Gate:
    """A sink that records writes and lets them through as far as the test allows."""

    def __init__(self, allowed: float = float("inf")) -> None:
        self.writes: list[bytes] = []
        self.allowed = allowed
        self.arrived = anyio.Event()
        self._opened = anyio.Event()

    async def write(self, data: bytes) -> None:
        self.arrived.set()
        while self.allowed < len(data):
            await self._opened.wait()
        self.allowed -= len(data)
        self.writes.append(data)

    def let_through(self, size: float) -> None:
        self.allowed += size
        self._opened.set()
        self._opened = anyio.Event()


@asynccontextmanager
async def written_to(gate: Gate) -> AsyncIterator[Outbox]:
    outbox = Outbox()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outbox.run, gate.write)
            yield outbox
            tasks.cancel_scope.cancel()


@pytest.mark.rule("frames-leave-in-order")
async def test_frames_that_are_ready_together_leave_in_one_write() -> None:
    gate = Gate()
    async with written_to(gate) as outbox:
        for number in range(3):
            outbox.put(b"%d\n" % number)
        await outbox.drained()
        assert gate.writes == [b"0\n1\n2\n"]


async def test_frames_of_tasks_that_run_together_leave_in_one_write() -> None:
    gate = Gate()
    async with written_to(gate) as outbox:

        async def produce(number: int) -> None:
            await checkpoint()
            outbox.put(b"%d\n" % number)

        async with anyio.create_task_group() as producers:
            for number in range(5):
                producers.start_soon(produce, number)
        await outbox.drained()
        assert gate.writes == [b"0\n1\n2\n3\n4\n"]


async def test_a_dense_stream_takes_far_fewer_writes_than_frames() -> None:
    gate = Gate()
    async with written_to(gate) as outbox:
        for number in range(500):
            outbox.put(b"%d\n" % number)
            await checkpoint()
        await outbox.drained()
        assert b"".join(gate.writes) == b"".join(b"%d\n" % number for number in range(500))
        assert len(gate.writes) <= 250


@pytest.mark.rule("frames-leave-in-order")
async def test_a_large_backlog_leaves_in_order_and_in_bounded_writes() -> None:
    gate = Gate()
    frames = [b"%d %s\n" % (number, b"x" * 999) for number in range(2000)]
    frames.insert(700, b"y" * (3 * WRITE_BYTES) + b"\n")
    async with written_to(gate) as outbox:
        for frame in frames:
            outbox.put(frame)
        await outbox.drained()
    assert b"".join(gate.writes) == b"".join(frames)
    assert sorted(len(write) for write in gate.writes)[-2] <= WRITE_BYTES
    assert len(gate.writes) <= 12


async def test_congestion_begins_at_its_mark_and_ends_at_half_of_it() -> None:
    gate = Gate(allowed=0)
    async with written_to(gate) as outbox:
        for _ in range(CONGESTED_BYTES // MIB):
            outbox.put(b"x" * MIB)
        assert not outbox.congested
        outbox.put(b"\n")
        assert outbox.congested
        room = anyio.Event()

        async def wait_for_room() -> None:
            await outbox.room()
            room.set()

        async with anyio.create_task_group() as waiting:
            waiting.start_soon(wait_for_room)
            await gate.arrived.wait()
            gate.let_through(CONGESTED_BYTES - ROOM_BYTES)
            await anyio.wait_all_tasks_blocked()
            assert outbox.unwritten_bytes == ROOM_BYTES + 1
            assert outbox.congested
            assert not room.is_set()
            gate.let_through(MIB)
            await room.wait()
        assert not outbox.congested


async def test_overload_begins_at_64_mebibytes_and_ends_below() -> None:
    gate = Gate(allowed=0)
    async with written_to(gate) as outbox:
        for _ in range(OVERLOADED_BYTES // MIB):
            outbox.put(b"x" * MIB)
        assert not outbox.overloaded
        outbox.put(b"\n")
        assert outbox.overloaded
        gate.let_through(OVERLOADED_BYTES)
        await outbox.relieved()
        assert outbox.unwritten_bytes <= RELIEVED_BYTES


async def test_drained_waits_for_the_frames_before_the_call_only() -> None:
    gate = Gate(allowed=2)
    async with written_to(gate) as outbox:
        outbox.put(b"1\n")
        async with anyio.create_task_group() as waiting:
            waiting.start_soon(outbox.drained)
            await gate.arrived.wait()
            outbox.put(b"2\n")
        assert gate.writes == [b"1\n"]


async def test_closing_releases_every_waiter_and_drops_frames() -> None:
    gate = Gate(allowed=0)
    async with written_to(gate) as outbox:
        outbox.put(b"x" * (OVERLOADED_BYTES + 1))
        assert outbox.congested
        assert outbox.overloaded
        async with anyio.create_task_group() as waiting:
            waiting.start_soon(outbox.room)
            waiting.start_soon(outbox.relieved)
            waiting.start_soon(outbox.drained)
            await gate.arrived.wait()
            outbox.close()
        outbox.put(b"late\n")
        assert (outbox.closed, outbox.unwritten_bytes, outbox.congested) == (True, 0, False)
        await outbox.drained()


async def test_a_sleeping_writer_ends_when_the_box_is_closed() -> None:
    outbox = Outbox()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outbox.run, Gate().write)
            await anyio.wait_all_tasks_blocked()
            outbox.close()


async def test_a_sink_that_breaks_closes_the_box_and_ends_the_writer() -> None:
    async def broken(data: bytes) -> None:
        raise BrokenPipeError

    outbox = Outbox()
    outbox.put(b"1\n")
    with anyio.fail_after(5):
        await outbox.run(broken)
    outbox.put(b"2\n")
    assert outbox.closed
    assert outbox.unwritten_bytes == 0

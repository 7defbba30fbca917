"""What every transport does, held by the one in memory and by those over real descriptors."""

import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import pytest

from acp_server.transport.descriptors import DescriptorStream
from acp_server.transport.framing import OversizeFrame
from acp_server.transport.memory import memory_transport_pair
from acp_server.transport.stream import StreamTransport

Pair = tuple[StreamTransport, StreamTransport]
LIMIT = 1024 * 1024


def pair_in_memory() -> Pair:
    return memory_transport_pair(max_frame_bytes=LIMIT)


def pair_over_pipes() -> Pair:
    a_read, b_write = os.pipe()
    b_read, a_write = os.pipe()
    return (
        StreamTransport(DescriptorStream(a_read, a_write), max_frame_bytes=LIMIT),
        StreamTransport(DescriptorStream(b_read, b_write), max_frame_bytes=LIMIT),
    )


def pair_over_one_socket_each() -> Pair:
    def transport(end: socket.socket) -> StreamTransport:
        read_fd = end.detach()
        return StreamTransport(DescriptorStream(read_fd, os.dup(read_fd)), max_frame_bytes=LIMIT)

    a, b = socket.socketpair()
    return transport(a), transport(b)


@pytest.fixture(params=[pair_in_memory, pair_over_pipes, pair_over_one_socket_each])
def make_pair(request: pytest.FixtureRequest) -> Callable[[], Pair]:
    make: Callable[[], Pair] = request.param
    return make


@asynccontextmanager
async def running(make_pair: Callable[[], Pair]) -> AsyncIterator[Pair]:
    with anyio.fail_after(5):
        here, there = make_pair()
        async with here, there, anyio.create_task_group() as tasks:
            tasks.start_soon(here.run)
            tasks.start_soon(there.run)
            yield here, there
            tasks.cancel_scope.cancel()


async def received(transport: StreamTransport, count: int) -> list[bytes | OversizeFrame]:
    frames: list[bytes | OversizeFrame] = []
    while len(frames) < count:
        more = await transport.receive()
        assert more is not None, f"ended after {frames!r}"
        frames += more
    return frames


async def test_frames_arrive_in_order_in_both_directions(make_pair: Callable[[], Pair]) -> None:
    async with running(make_pair) as (here, there):
        for number in range(100):
            here.send(b"%d\n" % number)
            there.send(b"-%d\n" % number)
        assert await received(there, 100) == [b"%d" % number for number in range(100)]
        assert await received(here, 100) == [b"-%d" % number for number in range(100)]


async def test_a_frame_larger_than_the_pipe_arrives_whole(make_pair: Callable[[], Pair]) -> None:
    async with running(make_pair) as (here, there):
        frame = bytes(range(32, 127)) * 10_000
        here.send(frame + b"\n")
        assert await received(there, 1) == [frame]


async def test_an_oversize_frame_is_marked_and_the_next_arrives(
    make_pair: Callable[[], Pair],
) -> None:
    async with running(make_pair) as (here, there):
        here.send(b"x" * (LIMIT + 1) + b"\n")
        here.send(b"next\n")
        assert await received(there, 2) == [OversizeFrame(LIMIT), b"next"]


async def test_a_reader_that_does_not_read_congests_the_writer(
    make_pair: Callable[[], Pair],
) -> None:
    async with running(make_pair) as (here, there):
        sent = 0
        while not here.congested:
            here.send(b"x" * 99_999 + b"\n")
            sent += 1
        async with anyio.create_task_group() as reading:
            reading.start_soon(received, there, sent)
            await here.room()
        assert not here.congested


async def test_the_end_of_one_side_is_the_end_of_input_of_the_other(
    make_pair: Callable[[], Pair],
) -> None:
    async with running(make_pair) as (here, there):
        here.send(b"first\nlast without end")
        await here.drained()
        await here.aclose()
        assert await received(there, 2) == [b"first", b"last without end"]
        assert await there.receive() is None
        assert await there.receive() is None


async def test_writing_to_a_side_that_is_gone_closes_the_transport(
    make_pair: Callable[[], Pair],
) -> None:
    async with running(make_pair) as (here, there):
        await there.aclose()
        here.send(b"x\n")
        await here.drained()
        while not here.closed:
            here.send(b"x\n")
            await anyio.lowlevel.checkpoint()
        await here.drained()
        await here.room()


async def test_closing_ends_a_waiting_reader(make_pair: Callable[[], Pair]) -> None:
    async with running(make_pair) as (here, _):
        ended = anyio.Event()

        async def read() -> None:
            assert await here.receive() is None
            ended.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            await here.aclose()
            await here.aclose()
        assert ended.is_set()
        assert here.closed


async def test_closing_ends_a_waiting_writer(make_pair: Callable[[], Pair]) -> None:
    here, there = make_pair()
    async with here, there:
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(here.run)
                here.send(b"x" * 10_000_000 + b"\n")
                await anyio.wait_all_tasks_blocked()
                await here.aclose()


async def test_a_reader_that_always_finds_bytes_still_lets_others_run(
    make_pair: Callable[[], Pair],
) -> None:
    async with running(make_pair) as (here, there):
        here.send(b"1\n")
        await here.drained()
        ran = anyio.Event()

        async def note() -> None:
            ran.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(note)
            await there.receive()
            assert ran.is_set()

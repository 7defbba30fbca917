import os
import socket
from pathlib import Path

import anyio
import pytest

from acp_server.transport.descriptors import DescriptorStream


async def test_non_blocking_mode_is_given_back_on_close() -> None:
    read_fd, write_fd = os.pipe()
    shared_read, shared_write = os.dup(read_fd), os.dup(write_fd)
    stream = DescriptorStream(read_fd, write_fd)
    assert not os.get_blocking(shared_read)
    assert not os.get_blocking(shared_write)
    stream.close()
    assert os.get_blocking(shared_read)
    assert os.get_blocking(shared_write)
    os.close(shared_read)
    os.close(shared_write)


def test_non_blocking_mode_of_one_open_file_behind_both_is_given_back() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        stream = DescriptorStream(os.dup(ours.fileno()), os.dup(ours.fileno()))
        assert not os.get_blocking(ours.fileno())
        stream.close()
        assert os.get_blocking(ours.fileno())


def test_a_descriptor_that_was_non_blocking_stays_so() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        DescriptorStream(os.dup(ours.fileno()), os.dup(ours.fileno())).close()
        assert not os.get_blocking(ours.fileno())


async def test_regular_files_and_devices_can_be_read_and_written(tmp_path: Path) -> None:
    source, sink = tmp_path / "in", tmp_path / "out"
    source.write_bytes(b"0123456789")
    stream = DescriptorStream(os.open(source, os.O_RDONLY), os.open(sink, os.O_WRONLY | os.O_CREAT))
    with anyio.fail_after(5):
        assert await stream.read(6) == b"012345"
        assert await stream.read(6) == b"6789"
        assert await stream.read(6) == b""
        await stream.write(b"abc")
    stream.close()
    assert sink.read_bytes() == b"abc"

    null = DescriptorStream(os.open(os.devnull, os.O_RDONLY), os.open(os.devnull, os.O_WRONLY))
    with anyio.fail_after(5):
        assert await null.read(6) == b""
        await null.write(b"abc")
    null.close()


async def test_a_closed_stream_reads_nothing_and_cannot_be_written() -> None:
    stream = DescriptorStream(*os.pipe())
    stream.close()
    stream.close()
    assert await stream.read(1) == b""
    with pytest.raises(BrokenPipeError):
        await stream.write(b"x")

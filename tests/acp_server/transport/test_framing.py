import itertools
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_server.transport.framing import DEFAULT_MAX_FRAME_BYTES, Framer, OversizeFrame

LIMIT: Final = 8
BOM: Final = b"\xef\xbb\xbf"

PIECES = st.sampled_from(
    [b"\n", b"\r", b"\r\n", b" ", b"\t", b"{}", b"x" * 7, b"y" * 8, b"z" * 9, BOM, BOM[:1], b"\x85"]
)
STREAMS = st.lists(PIECES, max_size=12).map(b"".join)


def frames_of_whole(stream: bytes) -> list[bytes | OversizeFrame]:
    """Say what a stream holds, seen as a whole; written apart from the framer."""
    frames: list[bytes | OversizeFrame] = []
    for line in stream.removeprefix(BOM).split(b"\n"):
        content = line[:-1] if line[-1:] == b"\r" else line
        if len(content) > LIMIT:
            frames.append(OversizeFrame(LIMIT))
        elif content.strip():
            frames.append(content)
    return frames


def fed(framer: Framer, *pieces: bytes) -> list[bytes | OversizeFrame]:
    frames = [frame for piece in pieces for frame in framer.feed(piece)]
    return frames + framer.finish()


@given(stream=STREAMS, cuts=st.lists(st.integers(0, 60)))
@pytest.mark.rule("only-lf-ends-a-line")
@pytest.mark.case("B08")
def test_any_split_of_the_bytes_gives_the_same_frames(stream: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    pieces = [stream[start:end] for start, end in itertools.pairwise(edges)]
    assert fed(Framer(LIMIT), *pieces) == frames_of_whole(stream)


@given(stream=STREAMS)
def test_bytes_one_by_one_give_the_same_frames_and_hold_at_most_one(stream: bytes) -> None:
    framer = Framer(LIMIT)
    frames: list[bytes | OversizeFrame] = []
    for byte in stream:
        frames += framer.feed(bytes([byte]))
        assert len(framer._partial) <= LIMIT + len(BOM) + 1
    assert frames + framer.finish() == frames_of_whole(stream)


def test_frames_of_one_packet_come_together_and_in_order() -> None:
    assert Framer().feed(b"one\ntwo\nthr") == [b"one", b"two"]


@pytest.mark.rule("only-lf-ends-a-line")
@pytest.mark.case("B08")
def test_only_lf_ends_a_line() -> None:
    text = '"a\u2028b\u2029c\u0085d\x0b\x0c\x1c\x1d\x1e"'.encode()
    assert Framer().feed(text + b"\n") == [text]


@pytest.mark.rule("only-lf-ends-a-line")
def test_crlf_and_blank_lines_are_tolerated() -> None:
    assert Framer().feed(b"\r\n{}\r\n\n   \n\t\r\n[]\n") == [b"{}", b"[]"]


@pytest.mark.rule("large-frames-come-whole")
@pytest.mark.case("B01")
def test_a_frame_of_ten_megabytes_in_pipe_sized_pieces_comes_whole() -> None:
    line = b"a" * 10_000_000
    framer = Framer()
    pieces = [line[start : start + 65536] for start in range(0, len(line), 65536)]
    assert all(framer.feed(piece) == [] for piece in pieces)
    assert framer.feed(b"\n[]\n") == [line, b"[]"]


@pytest.mark.rule("large-frames-come-whole")
@pytest.mark.case("B01")
def test_an_oversize_line_is_marked_once_and_never_parsed() -> None:
    framer = Framer(LIMIT)
    marker = OversizeFrame(LIMIT)
    assert framer.feed(b"ok\n" + b"x" * 20) == [b"ok", marker]
    assert framer.feed(b"x" * 20) == []
    assert framer.feed(b"{}\n{}\n") == [b"{}"]


def test_an_oversize_line_at_the_end_is_marked_once() -> None:
    assert fed(Framer(LIMIT), b"x" * 20) == [OversizeFrame(LIMIT)]


def test_a_last_line_without_lf_is_a_frame() -> None:
    assert fed(Framer(), b"{}\n[", b"]") == [b"{}", b"[]"]


def test_the_default_limit_is_64_mebibytes() -> None:
    assert DEFAULT_MAX_FRAME_BYTES == 64 * 1024 * 1024

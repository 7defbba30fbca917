"""The checksum file: what it says, and what a crash may do to it."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persistence.jsonl.integrity import (
    Checksum,
    Sidecar,
    decode_sidecar,
    encode_checksum,
    extend_crc,
)

FIRST, SECOND = Checksum(10, 2, 77), Checksum(25, 5, 99)
DATA = encode_checksum(FIRST) + encode_checksum(SECOND)


def test_a_line_has_the_form_of_the_contract() -> None:
    assert encode_checksum(FIRST) == b'{"end":10,"seq":2,"crc":77}\n'


def test_lines_come_back() -> None:
    sidecar = decode_sidecar(DATA)
    assert sidecar == Sidecar((FIRST, SECOND), len(DATA), 0)
    assert sidecar.last == SECOND
    assert decode_sidecar(b"").last is None


def test_a_torn_last_line_is_dropped_and_the_next_goes_over_it() -> None:
    first_line = len(encode_checksum(FIRST))
    for cut in range(first_line, len(DATA)):
        assert decode_sidecar(DATA[:cut]) == Sidecar((FIRST,), first_line, 0)


def test_what_a_power_cut_left_is_passed_over() -> None:
    damaged = b"\0" * 12 + b"\n" + encode_checksum(SECOND) + b"\0" * 40
    assert decode_sidecar(damaged) == Sidecar((SECOND,), len(damaged) - 40, 1)


@pytest.mark.parametrize(
    "line",
    [
        b"7",
        b'{"end":1,"seq":1}',
        b'{"end":1,"seq":1,"crc":1,"x":1}',
        b'{"end":-1,"seq":1,"crc":1}',
        b'{"end":1.0,"seq":1,"crc":1}',
        b'{"end":true,"seq":1,"crc":1}',
        b'{"end":1,"seq":1,"crc":4294967296}',
    ],
)
def test_a_line_of_another_form_is_unreadable(line: bytes) -> None:
    assert decode_sidecar(line + b"\n" + DATA).unreadable == 1


@given(st.binary(), st.binary())
def test_the_checksum_goes_on_over_batches(one: bytes, other: bytes) -> None:
    assert extend_crc(extend_crc(0, one), other) == zlib.crc32(one + other)

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
    assert encode_checksum(FIRST) == b'{"end":10,"seq":2,"crc":77,"sum":%d}\n' % (
        zlib.crc32(b"10 2 77")
    )


def test_lines_come_back() -> None:
    sidecar = decode_sidecar(DATA)
    assert sidecar == Sidecar((FIRST, SECOND), len(DATA))
    assert sidecar.last == SECOND
    assert decode_sidecar(b"").last is None


def test_a_torn_last_line_is_dropped_and_the_next_goes_over_it() -> None:
    first_line = len(encode_checksum(FIRST))
    for cut in range(first_line, len(DATA)):
        assert decode_sidecar(DATA[:cut]) == Sidecar((FIRST,), first_line)


def test_what_a_power_cut_left_is_passed_over() -> None:
    damaged = b"\0" * 12 + b"\n" + encode_checksum(SECOND) + b"\0" * 40
    assert decode_sidecar(damaged) == Sidecar((SECOND,), len(damaged) - 40)


def own_sum(numbers: str) -> int:
    return zlib.crc32(numbers.encode())


@pytest.mark.parametrize(
    "line",
    [
        "7",
        '{"end":1,"seq":1,"crc":1}',
        f'{{"end":1,"seq":1,"crc":1,"sum":{own_sum("1 1 1")},"x":1}}',
        f'{{"end":-1,"seq":1,"crc":1,"sum":{own_sum("-1 1 1")}}}',
        f'{{"end":1.0,"seq":1,"crc":1,"sum":{own_sum("1 1 1")}}}',
        f'{{"end":true,"seq":1,"crc":1,"sum":{own_sum("1 1 1")}}}',
        f'{{"end":"1","seq":1,"crc":1,"sum":{own_sum("1 1 1")}}}',
        f'{{"end":2,"seq":1,"crc":1,"sum":{own_sum("1 1 1")}}}',
    ],
)
def test_a_line_of_another_form_is_unreadable(line: str) -> None:
    assert decode_sidecar(line.encode() + b"\n" + DATA) == Sidecar(
        (FIRST, SECOND), len(line) + 1 + len(DATA)
    )


def test_no_flipped_bit_makes_another_line_of_a_line() -> None:
    line = encode_checksum(Checksum(7891, 23, 210525154))
    for position in range(len(line) - 1):
        for bit in range(8):
            flipped = bytearray(line)
            flipped[position] ^= 1 << bit
            assert decode_sidecar(bytes(flipped)).checksums == ()


@given(st.binary(), st.binary())
def test_the_checksum_goes_on_over_batches(one: bytes, other: bytes) -> None:
    assert extend_crc(extend_crc(0, one), other) == zlib.crc32(one + other)

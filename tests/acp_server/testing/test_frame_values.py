"""Reading a frame as strictly and as exactly as its rules are."""

import pytest

from acp_server.testing.checks.frame_values import read_strict


def test_an_id_of_any_size_stays_an_integer() -> None:
    assert read_strict(b'{"id":123456789012345678901234567890}') == {
        "id": 123456789012345678901234567890
    }


@pytest.mark.parametrize("line", [b"NaN", b'"\\ud800"', b"\xff", b"{", b"Infinity" + b"1" * 20])
def test_what_is_no_strict_json_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_strict(line)

"""Reading a log: what is kept, what is torn, what is damage."""

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from persistence import CorruptLogError, RefusedLogError, StoredLog, UnsupportedVersionError
from persistence.files import OsFiles
from persistence.jsonl.integrity import Checksum, encode_checksum, extend_crc
from persistence.jsonl.layout import SessionPaths, session_paths
from persistence.jsonl.position import ReadPosition
from persistence.jsonl.scan import read_header, read_log
from persistence.records import encode_records
from persistence.testing.faulty_files import FaultyFiles
from persistence.testing.harness import CWD, header, turn_events
from session_core import Event, SessionId

HEADER = {"type": "session", "version": 0, "id": "s", "createdAt": 1000, "cwd": CWD}
ROW = {
    "type": "text-chunks",
    "seq0": 3,
    "time0": 5,
    "data": {"turn": 1, "step": 1, "index": 0, "dt": [1, 1], "texts": ["a", "😀", ""]},
}


def line(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def lines(events: Iterable[Event]) -> list[bytes]:
    return [line(event.to_json()) for event in events]


@pytest.fixture
def paths(tmp_path: Path) -> SessionPaths:
    paths = session_paths(str(tmp_path), "s", CWD)
    Path(paths.directory).mkdir(parents=True)
    return paths


@pytest.fixture
def read(paths: SessionPaths) -> Callable[..., StoredLog]:
    """Write a log (and checksums at the given offsets), read it, and see that reading is all."""

    def write_and_read(data: bytes, ends: Iterable[int] = ()) -> StoredLog:
        Path(paths.log).write_bytes(data)
        checksums = [Checksum(end, 0, extend_crc(0, data[:end])) for end in ends]
        Path(paths.sidecar).write_bytes(b"".join(map(encode_checksum, checksums)))
        try:
            return read_log(OsFiles(), "s", paths)
        finally:
            assert Path(paths.log).read_bytes() == data

    return write_and_read


def mark_of(stored: StoredLog) -> ReadPosition:
    assert isinstance(stored.mark, ReadPosition)
    return stored.mark


E = turn_events(1, 0)
OPEN = turn_events(2, 3)[:2]
OK3, OK4 = lines(OPEN)
BAD = b'{"type":"turn/sta\n'


def test_a_whole_log_has_nothing_torn(read: Callable[..., StoredLog]) -> None:
    data = b"".join([line(HEADER), *lines(E)])
    stored = read(data)
    assert list(stored.log) == E
    assert stored.torn is None
    assert stored.header == header("s")
    assert mark_of(stored).end == mark_of(stored).size == len(data)
    assert mark_of(stored).crc == extend_crc(0, data)


@pytest.mark.rule(
    "tail-examples-decide-alike",
    "torn-tail-is-cut",
    "unterminated-record-is-kept",
    "complete-events-are-kept",
)
@pytest.mark.parametrize(
    ("records", "kept"),
    [
        ([OK3, OK4, b'{"type":"x"'], 5),
        ([BAD, OK4], 3),
        ([OK3, BAD], 4),
        ([line(ROW)[:-1].replace(b'"dt"', b'"td"') + b"\n", OK4], 3),
        ([line(ROW)[:-20]], 3),
        ([b"\n"], 3),
        ([b" " * 20], 3),
        ([b"\0" * 4096], 3),
        ([OK3, b"\0" * 10 + b"\n" + b"\0" * 10], 4),
        ([OK3, b'{"type":"\xff\xfe"}\n'], 4),
        ([line({"a": 1})], 3),
        ([b"7\n"], 3),
        # A `turn/end` that lacks its newline commits nothing before it.
        ([BAD, lines(turn_events(2, 3))[2][:-1]], 3),
    ],
)
def test_behind_the_last_turn_everything_unreadable_is_torn(
    read: Callable[..., StoredLog], records: list[bytes], kept: int
) -> None:
    good = b"".join([line(HEADER), *lines(E), *[OK3, OK4][: kept - 3]])
    stored = read(b"".join([line(HEADER), *lines(E), *records]))
    assert list(stored.log) == [*E, *OPEN][:kept]
    assert stored.torn is not None
    assert mark_of(stored).end == len(good)
    assert mark_of(stored).crc == extend_crc(0, good)
    assert not mark_of(stored).needs_newline


@pytest.mark.rule("removed-forms-are-refused")
@pytest.mark.parametrize(
    "record",
    [
        OK4,
        OK4[:-1],
        lines(E)[2],
        line({**ROW, "seq0": 4}),
        line({"type": "image-chunks", "seq0": 3, "time0": 5, "data": {}}),
        line({**E[0].to_json(), "seq": "3"}),
        b'{"type":"x/y","seq":3,"time":1,"data":9007199254740993}\n',
        b'{"type":"x/y","seq":3,"time":1,"data":' + b"[" * 240 + b"]" * 240 + b"}\n",
    ],
)
@pytest.mark.parametrize("behind", [b"", OK4, b'{"half'])
def test_a_whole_record_that_is_refused_is_no_torn_tail(
    read: Callable[..., StoredLog], record: bytes, behind: bytes
) -> None:
    data = b"".join([line(HEADER), *lines(E)])
    for ends in ([], [len(data)]):
        with pytest.raises(RefusedLogError) as raised:
            read(data + record + behind * record.endswith(b"\n"), ends)
        assert (raised.value.seq, raised.value.offset) == (3, len(data))


@pytest.mark.rule("tail-examples-decide-alike", "torn-tail-is-cut", "unterminated-record-is-kept")
def test_a_complete_record_that_lacks_its_newline_is_kept(
    read: Callable[..., StoredLog],
) -> None:
    stored = read(b"".join([line(HEADER), *lines(E), OK3[:-1]]))
    assert list(stored.log) == [*E, *OPEN][:4]
    assert stored.torn is not None
    assert mark_of(stored).needs_newline
    assert mark_of(stored).end == mark_of(stored).size


@pytest.mark.rule("committed-bytes-are-a-boundary", "damage-refuses-the-load", "torn-tail-is-cut")
@pytest.mark.parametrize(
    "bad",
    [
        BAD,
        b"\n",
        line({"a": 1}),
        line({**E[1].to_json(), "seq": 7}),
        line({**E[1].to_json(), "data": {}}),
        line({"extra": 1, **{k: v for k, v in E[1].to_json().items() if k != "time"}}),
        line({**E[1].to_json(), "time": -1}),
        line({**ROW, "seq0": 1, "data": {**ROW["data"], "texts": []}}),  # type: ignore[dict-item]
        line({"type": "mode/set", "seq": 1, "time": 1, "data": {}}),
        line({"type": "request/header-delta", "seq": 1, "time": 1, "data": {}}),
        b'{"type":"x/y","seq":1,"time":1,"data":' + b"[" * 3000 + b"]" * 3000 + b"}\n",
        b'{"type":"x/y","seq":1,"time":1,"data":NaN}\n',
        b'{"type":"x/y","seq":1,"time":1,"data":-0.0}\n',
        b'{"type":"x/y","seq":1,"time":1,"data":1e999}\n',
        b'{"type":"x/y","seq":1,"time":1,"data":18446744073709551617}\n',
        b'{"type":"x/y","seq":1,"time":1,"data":9007199254740993}\n',
        b'{"type":"x/y","seq":1,"time":1,"data":' + b"[" * 240 + b"]" * 240 + b"}\n",
    ],
)
def test_before_the_last_turn_end_everything_unreadable_is_corruption(
    read: Callable[..., StoredLog], bad: bytes
) -> None:
    before = line(HEADER) + lines(E)[0]
    with pytest.raises(CorruptLogError) as raised:
        read(b"".join([before, bad, lines(E)[2]]))
    assert raised.value.session_id == "s"
    assert raised.value.seq == 1
    assert raised.value.offset == len(before)


def test_a_gap_right_at_the_last_turn_end_is_corruption(read: Callable[..., StoredLog]) -> None:
    with pytest.raises(CorruptLogError):
        read(b"".join([line(HEADER), *lines(E)[:2], *lines(turn_events(1, 7))[2:]]))


@pytest.mark.rule("committed-bytes-are-a-boundary", "torn-tail-is-cut", "damage-refuses-the-load")
@pytest.mark.parametrize("bad", [BAD, line({**ROW, "seq0": 3, "data": {}}), b"\0\n"])
def test_before_the_last_checksum_everything_unreadable_is_corruption(
    read: Callable[..., StoredLog], bad: bytes
) -> None:
    data = b"".join([line(HEADER), *lines(E), bad])
    with pytest.raises(CorruptLogError) as raised:
        read(data + BAD, [len(data)])
    assert (raised.value.seq, raised.value.offset) == (3, len(data) - len(bad))
    assert len(read(data + BAD, [len(data) - len(bad)]).log) == 3


@pytest.mark.rule("log-is-one-record-per-line")
def test_offsets_are_bytes(read: Callable[..., StoredLog]) -> None:
    events = turn_events(1, 0, text="naïve 😀 プ")
    data = b"".join([line(HEADER), *lines(events)])
    stored = read(data + b"{")
    assert list(stored.log) == events
    assert mark_of(stored).end == len(data)


@pytest.mark.rule("reading-ignores-packing-switch")
def test_packed_and_single_records_mix(read: Callable[..., StoredLog]) -> None:
    opened = [line(HEADER), *lines(E), line(ROW)]
    single = [event.to_json() for event in read(b"".join(opened)).log.view()[3:]]
    again = [{**event, "seq": event["seq"] + 3} for event in single]
    stored = read(b"".join([*opened, *map(line, again), line({**ROW, "seq0": 9})]))
    assert len(stored.log) == 12
    texts = [event.data["chunk"]["text"] for event in stored.log.view()[3:]]
    assert texts == ["a", "😀", ""] * 3


@pytest.mark.rule("batches-are-checksummed")
def test_a_log_without_checksums_loads(read: Callable[..., StoredLog], paths: SessionPaths) -> None:
    Path(paths.log).write_bytes(b"".join([line(HEADER), *lines(E)]))
    assert len(read_log(OsFiles(), "s", paths).log) == 3


@pytest.mark.rule("batches-are-checksummed")
def test_every_flipped_bit_of_checksummed_bytes_is_found(
    read: Callable[..., StoredLog], paths: SessionPaths
) -> None:
    flushes = [line(HEADER) + b"".join(lines(E)), b"".join(lines(turn_events(2, 3)))]
    data = b"".join(flushes)
    read(data, [len(flushes[0]), len(data)])
    for position in range(len(line(HEADER)), len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 1 << position % 8
        Path(paths.log).write_bytes(flipped)
        with pytest.raises(CorruptLogError) as raised:
            read_log(OsFiles(), "s", paths)
        assert raised.value.offset is not None
        assert raised.value.offset <= position


def test_a_mismatch_is_narrowed_to_one_flush(
    read: Callable[..., StoredLog], paths: SessionPaths
) -> None:
    parts = [line(HEADER)] + [b"".join(lines(turn_events(k + 1, 3 * k))) for k in range(3)]
    ends = [sum(map(len, parts[: k + 1])) for k in range(1, 4)]
    data = b"".join(parts)
    read(data, ends)
    Path(paths.log).write_bytes(data.replace(b'"turn":2,"reason"', b'"turn":3,"reason"'))
    with pytest.raises(CorruptLogError) as raised:
        read_log(OsFiles(), "s", paths)
    assert raised.value.offset == ends[0]
    assert f"bytes {ends[0]} to {ends[1]}" in str(raised.value)


def test_lost_committed_bytes_are_corruption(read: Callable[..., StoredLog]) -> None:
    data = b"".join([line(HEADER), *lines(E)])
    checksum = encode_checksum(Checksum(len(data), 3, extend_crc(0, data)))
    for cut in range(len(line(HEADER)) + 1, len(data) - 1):
        with pytest.raises(CorruptLogError, match=f"{len(data)} bytes were stored|damaged at seq"):
            read_with_sidecar(read, data[:cut], checksum)


def test_a_lost_last_newline_is_proven_by_the_checksum(read: Callable[..., StoredLog]) -> None:
    data = b"".join([line(HEADER), *lines(E)])
    checksum = encode_checksum(Checksum(len(data), 3, extend_crc(0, data)))
    stored = read_with_sidecar(read, data[:-1], checksum)
    assert list(stored.log) == E
    assert mark_of(stored).needs_newline


def read_with_sidecar(read: Callable[..., StoredLog], data: bytes, sidecar: bytes) -> StoredLog:
    paths = mark_of(read(b"".join([line(HEADER), *lines(E)]))).paths
    Path(paths.log).write_bytes(data)
    Path(paths.sidecar).write_bytes(sidecar)
    return read_log(OsFiles(), "s", paths)


def test_unreadable_checksum_lines_are_no_damage_of_the_log(
    read: Callable[..., StoredLog],
) -> None:
    data = b"".join([line(HEADER), *lines(E)])
    checksum = encode_checksum(Checksum(len(data), 3, extend_crc(0, data)))
    stored = read_with_sidecar(read, data, b"\0\0\n" + checksum)
    assert len(stored.log) == 3
    assert len(read_with_sidecar(read, data, checksum[:-5] + b"7}\n").log) == 3
    assert len(read_with_sidecar(read, data, checksum[10:]).log) == 3


@pytest.mark.rule("bad-header-refuses-the-log")
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"garbage\n",
        line(HEADER)[:-1],
        b"\0" * 100,
        line(E[0].to_json()),
        line([]),
        line({**HEADER, "createdAt": "now"}),
        line({**HEADER, "cwd": "relative"}),
        line({"type": "session", "version": 0, "id": "s"}),
    ],
)
def test_a_log_without_a_header_is_an_error(read: Callable[..., StoredLog], data: bytes) -> None:
    with pytest.raises(CorruptLogError):
        read(data)


@pytest.mark.rule("header-must-match-its-place", "stored-id-must-match")
@pytest.mark.parametrize("change", [{"id": "t"}, {"cwd": "/elsewhere"}])
def test_a_header_of_another_place_is_an_error(
    read: Callable[..., StoredLog], paths: SessionPaths, change: dict[str, str]
) -> None:
    with pytest.raises(CorruptLogError):
        read(line({**HEADER, **change}) + b"".join(lines(E)) + BAD)
    with pytest.raises(CorruptLogError):
        read_header(OsFiles(), paths)


@pytest.mark.rule("only-version-zero-is-read")
@pytest.mark.parametrize("version", [1, -1, "1", "0", 0.0, True, None, 10**9])
def test_another_format_version_is_named(read: Callable[..., StoredLog], version: Any) -> None:
    with pytest.raises(UnsupportedVersionError) as raised:
        read(line({**HEADER, "version": version}) + BAD)
    assert raised.value.found == version
    assert raised.value.supported == 0


def test_a_header_without_a_version_is_refused(read: Callable[..., StoredLog]) -> None:
    with pytest.raises(UnsupportedVersionError):
        read(line({"type": "session", "id": "s", "createdAt": 1}))


@pytest.mark.rule("source-format-logs-load", "header-is-immutable-record")
def test_the_delegation_depth_is_an_integer_or_absent(read: Callable[..., StoredLog]) -> None:
    for bad in (b"-0.0", b"1.5", b"-1", b'"1"', b"true"):
        data = line(HEADER)[:-2] + b',"delegationDepth":' + bad + b"}\n"
        with pytest.raises(CorruptLogError):
            read(data)
    assert (read(line(HEADER)).header.delegation_depth or 0) == 0


@pytest.mark.rule("source-format-logs-load")
def test_unknown_header_keys_are_kept(read: Callable[..., StoredLog]) -> None:
    assert read(line({**HEADER, "x": {"y": 1}})).header.extra == {"x": {"y": 1}}


def test_an_unknown_event_is_kept_word_for_word(read: Callable[..., StoredLog]) -> None:
    odd = {"type": "x/y", "seq": 3, "time": 1, "data": [1, {"a": None}, 1.5, "\u2028"]}
    stored = read(b"".join([line(HEADER), *lines(E), line(odd)]))
    assert encode_records(stored.log.records(3)) == line(odd)


def test_a_key_that_events_do_not_have_is_passed_over_and_named(
    read: Callable[..., StoredLog],
) -> None:
    odd = {**E[1].to_json(), "extra": {"n": 1.5e300}, "ignorable": True}
    stored = read(b"".join([line(HEADER), lines(E)[0], line(odd), lines(E)[2]]))
    assert list(stored.log) == E
    assert [problem for problem in stored.problems if "'extra'" in problem] == [*stored.problems]


def test_lone_surrogates_of_a_foreign_log_become_replacement_characters(
    read: Callable[..., StoredLog],
) -> None:
    odd = b'{"type":"x/y","seq":3,"time":1,"data":{"\\ud800":["a\\udfffb"]}}\n'
    stored = read(b"".join([line(HEADER), *lines(E), odd]))
    assert stored.log.event_at(3).data == {"\ufffd": ["a\ufffdb"]}


def test_a_log_longer_than_one_block_is_read_whole(read: Callable[..., StoredLog]) -> None:
    big = "x" * 700_000
    events = [event for k in range(4) for event in turn_events(k + 1, 3 * k, text=big)]
    data = b"".join([line(HEADER), *lines(events)])
    stored = read(data + b"{", [len(data)])
    assert list(stored.log) == events
    assert mark_of(stored).crc == extend_crc(0, data)


def test_a_bad_line_is_committed_by_a_turn_end_in_a_later_block(
    read: Callable[..., StoredLog],
) -> None:
    big = lines(turn_events(2, 3, text="x" * 3_000_000))
    with pytest.raises(CorruptLogError):
        read(b"".join([line(HEADER), *lines(E), BAD, *big]))


def test_reading_leaves_no_file_open(paths: SessionPaths) -> None:
    files = FaultyFiles()
    for data in (b"garbage\n", line(HEADER) + BAD + b"".join(lines(E)), line(HEADER)):
        Path(paths.log).write_bytes(data)
        with suppress(CorruptLogError):
            read_log(files, "s", paths)
        with suppress(CorruptLogError):
            read_header(files, paths)
    assert files.opened == set()


def test_ids_are_checked_where_the_file_lies(paths: SessionPaths) -> None:
    Path(paths.log).write_bytes(line(HEADER))
    assert read_log(OsFiles(), None, paths).header.id == SessionId("s")


GAP = b'{"type":"turn/st\0\0\0\0\0\0\0\0essage","seq":4}\n'
NULS = b"\0" * 30
END2 = line({**turn_events(2, 3)[2].to_json()})
TURN3 = lines(turn_events(3, 6))


@pytest.mark.parametrize(
    "tail",
    [
        [GAP],
        [GAP, OK4],
        [GAP, END2],
        [GAP, OK4, END2],
        [GAP, OK4, b'{"half'],
        [NULS, END2],
        [NULS, OK4, END2],
        [NULS, b"\n", OK4, END2],
        [NULS, *TURN3[:2]],
        [NULS, *TURN3[:2], TURN3[2][:-1]],
    ],
)
def test_a_gap_in_the_last_write_is_a_torn_tail(
    read: Callable[..., StoredLog], tail: list[bytes]
) -> None:
    """The medium took the end of a write, perhaps its `turn/end`, and not its middle.

    Rule: batches-are-checksummed.
    """
    data = b"".join([line(HEADER), *lines(E)])
    stored = read(b"".join([data, *tail]), [len(data)])
    assert list(stored.log) == E
    assert mark_of(stored).end == len(data)


@pytest.mark.parametrize(
    "tail",
    [
        [GAP, END2, OK3],
        [GAP, END2, END2],
        [GAP, END2, b'{"half'],
        [GAP, END2, b"\0"],
        [NULS, END2, OK3],
        [NULS, *TURN3],
        [NULS, b"\n", *TURN3],
        [NULS, OK3, OK4, END2],
        [GAP, OK4, *TURN3],
        [GAP, TURN3[0], NULS, TURN3[2]],
    ],
    ids=range(10),
)
def test_a_gap_that_more_than_its_write_follows_is_damage(
    read: Callable[..., StoredLog], tail: list[bytes]
) -> None:
    """A turn that is whole behind the gap was written after it, so that the gap was stored once."""
    data = b"".join([line(HEADER), *lines(E)])
    with pytest.raises(CorruptLogError) as raised:
        read(b"".join([data, *tail]), [len(data)])
    assert raised.value.offset == len(data)


def test_a_gap_is_damage_in_a_log_without_a_checksum_file(paths: SessionPaths) -> None:
    data = b"".join([line(HEADER), *lines(E)])
    for gap in (GAP, NULS, NULS + b"\n"):
        Path(paths.log).write_bytes(b"".join([data, gap, END2]))
        with pytest.raises(CorruptLogError):
            read_log(OsFiles(), "s", paths)


def test_a_gap_before_the_last_checksum_is_damage(read: Callable[..., StoredLog]) -> None:
    data = b"".join([line(HEADER), *lines(E), GAP, END2])
    with pytest.raises(CorruptLogError):
        read(data, [len(data)])

"""Load, import and verify agree on every log, and none of them cuts what is whole."""

import json
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from persistence import CorruptLogError, RefusedLogError, SessionRepository, import_log, verify
from persistence.log_reader import LogReader
from persistence.memory import MemoryBackend
from persistence.records import encode_records, turn_boundary
from persistence.sqlite.harness import SqliteHarness
from persistence.testing import BackendHarness
from persistence.testing.harness import header, turn_events, write_turn
from persistence.testing.harnesses import JsonlHarness, MemoryHarness
from persistence.testing.reading_checks import REFUSED_EVENTS
from session_core import Session, SessionStore

FIRST = turn_events(1, 0)


def tail_lines() -> list[bytes]:
    """Return a streamed turn with a packed row, and the beginning of another."""
    session = Session("s", seed=FIRST, clock=iter(range(3000, 4000)).__next__)
    write_turn(session, "naïve", deltas=4)
    events = [*list(session.events)[3:], *turn_events(3, len(session.events))[:2]]
    return encode_records(events).splitlines(keepends=True)


TAIL = tail_lines()
RUBBISH = [b"?\n", b"\n", b"\0" * 40, b"\0" * 40 + b"\n", b'{"a":1}\n', b'{"type":"turn/st\n']
REFUSED = [encode_records([event]) for event in REFUSED_EVENTS.values()]
FIELDS = st.sampled_from(["seq", "seq0", "time", "type", "data", "surfaceOp", "sourceEventSeqs"])
VALUES: st.SearchStrategy[Any] = st.sampled_from([None, -1, 5, "x", "turn/end", {}, [], [0], 1.5])


@st.composite
def mutated_tails(draw: st.DrawFn) -> list[bytes]:
    """Draw what may stand behind a stored turn: lines changed, lost, doubled, cut, overwritten."""
    lines = TAIL[: draw(st.integers(0, len(TAIL)))]
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, max(len(lines) - 1, 0)))
        kind = draw(st.sampled_from(["drop", "double", "swap", "insert", "field", "nuls"]))
        if kind == "insert" or not lines:
            lines = [*lines[:at], draw(st.sampled_from(RUBBISH + REFUSED)), *lines[at:]]
        elif kind == "drop":
            lines = [*lines[:at], *lines[at + 1 :]]
        elif kind == "double":
            lines = [*lines[: at + 1], *lines[at:]]
        elif kind == "swap":
            lines = [*lines[:at], *lines[at : at + 2][::-1], *lines[at + 2 :]]
        elif kind == "nuls":
            stop = draw(st.integers(0, len(lines[at])))
            lines = [*lines[:at], b"\0" * stop + lines[at][stop:], *lines[at + 1 :]]
        else:
            lines = [*lines[:at], changed(lines[at], draw(FIELDS), draw(VALUES)), *lines[at + 1 :]]
    is_cut = draw(st.booleans())
    if lines and is_cut:
        lines[-1] = lines[-1][: draw(st.integers(1, len(lines[-1])))]
    return b"".join(lines).splitlines(keepends=True)


def changed(line: bytes, field: str, value: Any) -> bytes:
    record = parsed(line)
    if not isinstance(record, dict):
        return line
    return json.dumps({**record, field: value}).encode() + b"\n"


def parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


async def store_first(harness: BackendHarness) -> None:
    async with SessionRepository(harness.open(), SessionStore()) as persistence:
        await persistence.create(header("s"))
        await persistence.append("s", FIRST)


async def outcome_of(harness: BackendHarness) -> Any:
    """Return what a look and a load make of a log: its events, or why it is refused."""
    before = harness.contents("s")
    async with SessionRepository(harness.open(), SessionStore()) as persistence:
        try:
            kept = list((await persistence.inspect("s")).log)
        except CorruptLogError as error:
            with pytest.raises(type(error)):
                await persistence.load("s")
            assert harness.contents("s") == before
            return type(error), error.seq
        loaded = await persistence.load("s")
        assert list(loaded.log)[: len(kept)] == kept
    async with SessionRepository(harness.open(), SessionStore()) as persistence:
        again = await persistence.load("s")
        assert (list(again.log), again.repaired) == (list(loaded.log), None)
    return kept


async def import_outcome(path: Path) -> Any:
    target = MemoryBackend()
    try:
        await import_log(path, target)
    except CorruptLogError as error:
        return type(error), error.seq
    stored = await target.load_stored("s")
    assert stored is not None
    return list(stored.log)


def is_for_rows(tail: list[bytes]) -> bool:
    """Whether rows can hold a tail: they are found by their seqs, have types, and are whole."""
    seqs = [len(FIRST) - 1]
    for line in tail:
        record = parsed(line)
        if not line.endswith(b"\n") or (record is not None and not is_for_row(record)):
            return False
        seqs.append(seqs[-1] + 1 if record is None else record["seq"])
    return all(one < other for one, other in pairwise(seqs))


def is_for_row(record: Any) -> bool:
    columns = {"type": str, "seq": int, "time": int}
    return (
        isinstance(record, dict)
        and all(type(record.get(column)) is kind for column, kind in columns.items())
        and "data" in record
        and "seq0" not in record
    )


async def check_agreement(folder: Path, tail: list[bytes]) -> None:
    jsonl, memory = JsonlHarness(folder / "jsonl"), MemoryHarness()
    for harness in (jsonl, memory):
        await store_first(harness)
        harness.plant("s", *tail)
    # An import knows of no checksums, and neither do the logs it is compared with.
    (jsonl.log("s").parent / "session.crc").unlink()
    imported = await import_outcome(jsonl.log("s"))
    backend = jsonl.open()
    verified = await verify(backend, "s")
    await backend.close()
    outcome = await outcome_of(jsonl)
    assert imported == outcome
    assert await outcome_of(memory) == outcome
    if isinstance(outcome, tuple):
        kind = "refused" if outcome[0] is RefusedLogError else "damage"
        assert [(problem.kind, problem.seq) for problem in verified.problems] == [
            (kind, outcome[1])
        ]
    else:
        assert verified.event_count == len(outcome)
        whole = [line for line in tail if turn_boundary(line) == "turn/end"]
        ends = sum(event.type == "turn/end" for event in outcome[3:])
        # Only one that ends the file without its LF may be missing, behind what cannot be read.
        assert len(whole) - ends <= (not tail[-1].endswith(b"\n") if tail else 0)
    if is_for_rows(tail):
        rows = SqliteHarness(folder / "store.db")
        await store_first(rows)
        rows.plant("s", *tail)
        rows.execute("UPDATE events SET crc = NULL")
        assert await outcome_of(rows) == outcome


@pytest.mark.rule(
    "removed-forms-are-refused",
    "torn-tail-is-cut",
    "unterminated-record-is-kept",
    "complete-events-are-kept",
    "damage-refuses-the-load",
)
@settings(max_examples=80, deadline=None)
@given(mutated_tails())
@example(REFUSED[:1])
@example([b"?\n", *TAIL])
@example([b"\0" * 40 + TAIL[0], *TAIL[1:]])
def test_load_import_and_verify_agree_and_refuse_without_a_change(tail: list[bytes]) -> None:
    with TemporaryDirectory() as folder:
        anyio.run(check_agreement, Path(folder), tail)


@given(mutated_tails(), st.booleans())
@settings(deadline=None)
def test_a_reader_keeps_a_prefix_and_cuts_no_whole_turn(
    tail: list[bytes], is_checksummed: bool
) -> None:
    reader = LogReader("s", is_checksummed=is_checksummed)
    records = [*encode_records(FIRST).splitlines(keepends=True), *tail]
    try:
        kept = [
            reader.take(line.removesuffix(b"\n"), is_whole=line.endswith(b"\n")) for line in records
        ]
    except CorruptLogError:
        return
    cut = records[sum(kept) :]
    assert kept == [True] * sum(kept) + [False] * len(cut)
    whole = [line.rpartition(b"\0")[2] for line in cut if line.endswith(b"\n")]
    boundaries = [boundary for boundary in map(turn_boundary, whole) if boundary]
    assert boundaries.count("turn/end") <= is_checksummed
    assert "turn/end" not in boundaries[1:]

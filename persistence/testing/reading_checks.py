"""Checks of reading: which records of a stored log are kept, cut, or make it refused.

Rules: stored-payloads-are-checked-for-use, batches-are-checksummed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from persistence.errors import CorruptLogError, RefusedLogError
from persistence.records import encode_records
from persistence.repository import SessionRepository
from persistence.testing.harness import expect, header, mark, refusing, turn_events
from persistence.transfer import verify
from session_core import Event, FrozenDict, SessionStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from persistence.testing.harness import BackendHarness, Check

_STORED = turn_events(1, 0)
_SECOND = turn_events(2, 3)


def _lines(events: list[Event]) -> list[bytes]:
    return encode_records(events).splitlines(keepends=True)


def _event(event_type: str, data: dict[str, Any], seq: int = 3, **fields: Any) -> Event:
    return Event(event_type, seq, 2000, FrozenDict(data), **fields)


_MESSAGE = _SECOND[1].data
REFUSED_EVENTS = {
    "vocabulary": _event("mode/set", {"mode": "x"}),
    "field": _event("user/message", {"source": {"kind": "user"}}, surface_op="append"),
    "order": _SECOND[0]._replace(seq=4),
    "time": _SECOND[0]._replace(time=-1),
    "surface": _event("user/message", _MESSAGE),
    "sources": _event("context/message", _MESSAGE, source_event_seqs=[7], surface_op="append"),
}
"""Whole events that may not follow a turn of three events, by what is wrong with them."""


async def _open_and_store(harness: BackendHarness) -> None:
    async with SessionRepository(harness.open(), SessionStore()) as persistence:
        await persistence.create(header("s"))
        await persistence.append("s", _STORED)


def _append_to(persistence: SessionRepository) -> Callable[[str], Awaitable[object]]:
    return lambda session_id: persistence.append(session_id, _SECOND)


async def _expect_refused(
    harness: BackendHarness, error_type: type[CorruptLogError], *records: bytes
) -> None:
    """Every way of reading refuses the log, names the place and leaves log and lock alone."""
    await _open_and_store(harness)
    harness.plant("s", *records)
    before = harness.contents("s")
    async with SessionRepository(harness.open(), SessionStore()) as persistence:
        for read in (persistence.load, persistence.inspect, _append_to(persistence)):
            with refusing(error_type) as raised:
                await read("s")
            expect((raised.error.session_id, raised.error.seq), ("s", 3))
        expect(harness.contents("s"), before)
        backend = harness.open()
        (problem,) = (await verify(backend, "s")).problems
        expect(problem.kind, "refused" if error_type is RefusedLogError else "damage")
        expect(harness.contents("s"), before)
        # Whoever comes next finds the lock free.
        await (await backend.acquire_writer("s")).release()
        await backend.close()


async def _expect_repaired(
    harness: BackendHarness, kept: list[Event], *records: bytes, torn: bool = True
) -> None:
    """A load keeps these events behind the stored turn, and the log goes on behind them."""
    await _open_and_store(harness)
    harness.plant("s", *records)
    before = harness.contents("s")
    async with SessionRepository(harness.open(), SessionStore()) as persistence:
        expect(list((await persistence.inspect("s")).log), [*_STORED, *kept])
        expect(harness.contents("s"), before)
        loaded = await persistence.load("s")
        closers = len(loaded.log) - 3 - len(kept)
        expect(list(loaded.log)[: 3 + len(kept)], [*_STORED, *kept])
        expect(loaded.repaired is not None and loaded.repaired.closer_count, closers)
        if torn:
            expect(loaded.repaired is not None and loaded.repaired.torn is not None, True)
        await persistence.append("s", turn_events(3, len(loaded.log)))
    async with SessionRepository(harness.open(), SessionStore()) as persistence:
        again = await persistence.load("s")
        expect(list(again.log), [*loaded.log, *turn_events(3, len(loaded.log))])
        expect(again.repaired, None)


def _refusal_check(name: str) -> Check:
    @mark.rule("removed-forms-are-refused")
    async def check(harness: BackendHarness) -> None:
        await _expect_refused(harness, RefusedLogError, *_lines([REFUSED_EVENTS[name]]))

    check.__name__ = f"a_last_event_refused_for_its_{name}_is_never_cut"
    return check


@mark.rule("removed-forms-are-refused")
async def a_refused_event_in_the_middle_is_never_cut(harness: BackendHarness) -> None:
    """What follows it, a whole turn for instance, changes nothing."""
    records = _lines([REFUSED_EVENTS["vocabulary"], *turn_events(2, 4)])
    await _expect_refused(harness, RefusedLogError, *records)


async def a_refused_event_that_lacks_its_newline_is_never_cut(harness: BackendHarness) -> None:
    """A record that can be read is whole, however it ends (unterminated-record-is-kept)."""
    (record,) = _lines([REFUSED_EVENTS["vocabulary"]])
    await _expect_refused(harness, RefusedLogError, record[:-1])


@mark.rule("torn-tail-is-cut", "unterminated-record-is-kept", "complete-events-are-kept")
async def half_a_record_behind_whole_ones_is_cut(harness: BackendHarness) -> None:
    """What is whole stays, though its turn is open."""
    first, second, _ = _lines(_SECOND)
    await _expect_repaired(harness, _SECOND[:1], first, second[:-20])


@mark.rule("torn-tail-is-cut", "unterminated-record-is-kept")
async def a_last_record_that_lacks_its_newline_is_kept(harness: BackendHarness) -> None:
    """Stores without lines have nothing to put right there (unterminated-record-is-kept)."""
    first, second, _ = _lines(_SECOND)
    await _expect_repaired(harness, _SECOND[:2], first, second[:-1], torn=False)


async def nul_bytes_at_the_end_are_cut(harness: BackendHarness) -> None:
    """The medium took the size of the last write and not its bytes (batches-are-checksummed)."""
    await _expect_repaired(harness, _SECOND[:1], *_lines(_SECOND[:1]), b"\0" * 700)


@mark.rule("damage-refuses-the-load")
async def an_unreadable_record_before_a_turn_end_is_damage(harness: BackendHarness) -> None:
    """A turn is durable before anything follows it, so that the record was whole once."""
    await _expect_refused(harness, CorruptLogError, b"?\n", *_lines(turn_events(2, 4)))


@mark.rule("damage-refuses-the-load")
async def a_whole_turn_behind_nul_bytes_is_never_cut(harness: BackendHarness) -> None:
    """The write that NUL bytes are a gap in has ended before that turn began.

    Rules: batches-are-checksummed, unreadable-is-never-empty.
    """
    first, *rest = _lines(_SECOND)
    await _expect_refused(harness, CorruptLogError, b"\0" * 64 + first, *rest)


@mark.rule("damage-refuses-the-load")
async def a_whole_turn_in_lines_behind_nul_bytes_is_never_cut(harness: BackendHarness) -> None:
    """The same, where the gap ends with its line."""
    records = _lines(turn_events(2, 4))
    await _expect_refused(harness, CorruptLogError, b"\0" * 64 + b"\n", *records)


READING_CHECKS: tuple[Check, ...] = (
    *map(_refusal_check, REFUSED_EVENTS),
    a_refused_event_in_the_middle_is_never_cut,
    a_refused_event_that_lacks_its_newline_is_never_cut,
    half_a_record_behind_whole_ones_is_cut,
    a_last_record_that_lacks_its_newline_is_kept,
    nul_bytes_at_the_end_are_cut,
    an_unreadable_record_before_a_turn_end_is_damage,
    a_whole_turn_behind_nul_bytes_is_never_cut,
    a_whole_turn_in_lines_behind_nul_bytes_is_never_cut,
)

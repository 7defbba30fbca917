"""Whole sessions: imported from files, copied between stores, verified."""

import json
from pathlib import Path
from typing import Any

import pytest

from persistence import (
    CorruptLogError,
    PersistenceError,
    RefusedLogError,
    SessionCollisionError,
    SessionNotFoundError,
    SessionRepository,
    StorageBackend,
    StoreReadError,
    TransferError,
    UnsupportedVersionError,
    copy_session,
    import_log,
    open_backend,
    verify,
)
from persistence.memory import MemoryBackend
from persistence.testing.harness import header, turn_events, write_turn
from session_core import EventLogBuilder, SessionStore

HEADER: dict[str, Any] = {
    "type": "session",
    "version": 0,
    "id": "s",
    "createdAt": 1000,
    "cwd": "/work/project",
}
SPECS = ("memory:", "jsonl:{}/jsonl", "sqlite:{}/store.db")


@pytest.fixture(params=SPECS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> StorageBackend:
    return open_backend(request.param.format(tmp_path))


def log_file(folder: Path, *records: Any, header: Any = HEADER, end: str = "\n") -> Path:
    lines = [header, *records]
    path = folder / "log.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts) + end)
    return path


def turn(number: int = 1, start: int = 0) -> list[dict[str, Any]]:
    return [event.to_json() for event in turn_events(number, start)]


async def events_in(backend: StorageBackend, session_id: str = "s") -> list[Any]:
    stored = await backend.load_stored(session_id)
    assert stored is not None
    return list(stored.log)


async def test_a_log_file_is_imported_as_it_is(backend: StorageBackend, tmp_path: Path) -> None:
    row = {
        "type": "text-chunks",
        "seq0": 5,
        "time0": 2000,
        "data": {"turn": 2, "step": 1, "index": 0, "dt": [3, -1], "texts": ["a", "", "b"]},
    }
    begin = turn(2, 3)[0]
    step = {"type": "step/start", "seq": 4, "time": 2000, "data": {"turn": 2, "step": 1}}
    unknown = {"type": "x/y", "seq": 8, "time": 1, "data": [1.0, {"é": None}], "ignorable": True}
    path = log_file(tmp_path, *turn(), begin, step, row, unknown, header=HEADER | {"mine": [1]})
    moved = await import_log(path, backend)
    assert (moved.event_count, moved.torn) == (9, None)
    events = await events_in(backend)
    assert events[:3] == turn_events(1, 0)
    assert [event.data["chunk"]["text"] for event in events[5:8]] == ["a", "", "b"]
    assert (events[8].type, list(events[8].data)) == ("x/y", [1.0, {"é": None}])
    stored = await backend.load_stored("s")
    assert stored is not None
    assert stored.header.extra == {"mine": [1]}
    async with SessionRepository(backend, SessionStore()) as persistence:
        loaded = await persistence.load("s")
        assert [event.type for event in loaded.log][9:] == ["step/end", "turn/end"]


async def test_an_import_can_take_another_id_and_directory(
    backend: StorageBackend, tmp_path: Path
) -> None:
    path = log_file(tmp_path, *turn(), header=HEADER | {"cwd": "{{cwd}}", "id": "{{sessionId}}"})
    with pytest.raises(CorruptLogError):
        await import_log(path, backend)
    moved = await import_log(path, backend, session_id="other", cwd="/elsewhere")
    assert (moved.header.id, moved.header.cwd) == ("other", "/elsewhere")
    assert await events_in(backend, "other") == turn_events(1, 0)
    await backend.close()


async def test_what_an_import_leaves_out_of_an_event_is_said(tmp_path: Path) -> None:
    start, *rest = turn()
    moved = await import_log(log_file(tmp_path, start | {"later": 1}, *rest), MemoryBackend())
    assert moved.event_count == 3
    assert "'later'" in moved.problems[0]


@pytest.mark.parametrize("end", ["\n", ""])
async def test_a_last_line_may_lack_its_newline(
    backend: StorageBackend, tmp_path: Path, end: str
) -> None:
    moved = await import_log(log_file(tmp_path, *turn(), end=end), backend)
    assert (moved.event_count, moved.torn) == (3, None)
    await backend.close()


async def test_a_torn_end_is_left_out_and_reported(backend: StorageBackend, tmp_path: Path) -> None:
    path = log_file(tmp_path, *turn(), turn(2, 3)[0], '{"type":"user/mess', end="")
    moved = await import_log(path, backend)
    assert moved.event_count == 4
    assert moved.torn
    assert len(await events_in(backend)) == 4
    await backend.close()


@pytest.mark.parametrize(
    ("records", "error", "words"),
    [
        (["?", *turn()], CorruptLogError, "seq 0"),
        ([*turn(), "?", *turn(2, 3)], CorruptLogError, "seq 3, byte"),
        ([*turn(), *turn(2, 4)], CorruptLogError, "seq 3"),
        ([*turn(), {"type": "mode/set", "seq": 3, "time": 1, "data": {}}], CorruptLogError, "mode"),
        ([turn()[0], turn()[1] | {"data": {}}], RefusedLogError, "content"),
        ([turn()[0], turn()[1] | {"surfaceOp": "no"}], RefusedLogError, "surfaceOp"),
        ([*turn(), turn(2, 4)[0]], RefusedLogError, "seq must be 3"),
        ([], TransferError, "no events"),
    ],
)
async def test_a_log_that_cannot_be_imported_leaves_nothing(
    tmp_path: Path, records: list[Any], error: type[PersistenceError], words: str
) -> None:
    for spec in SPECS:
        backend = open_backend(spec.format(tmp_path))
        with pytest.raises(error, match=words):
            await import_log(log_file(tmp_path, *records), backend)
        assert await backend.load_stored("s") is None
        await backend.close()


@pytest.mark.parametrize(
    "first", ["", "?", [], {}, HEADER | {"type": "x"}, HEADER | {"id": ""}, HEADER | {"cwd": "a"}]
)
async def test_a_file_without_a_session_header_is_refused(tmp_path: Path, first: Any) -> None:
    with pytest.raises(CorruptLogError):
        await import_log(log_file(tmp_path, *turn(), header=first), MemoryBackend())


@pytest.mark.rule("only-version-zero-is-read")
@pytest.mark.case("B42")
@pytest.mark.parametrize("version", [1, -1, "0", None, True, 10**9])
async def test_another_format_version_is_refused_by_its_number(
    tmp_path: Path, version: object
) -> None:
    path = log_file(tmp_path, *turn(), header=HEADER | {"version": version})
    with pytest.raises(UnsupportedVersionError) as raised:
        await import_log(path, MemoryBackend())
    assert raised.value.found == version


async def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing", tmp_path):
        with pytest.raises(StoreReadError):
            await import_log(path, MemoryBackend())


async def test_a_stored_id_is_not_imported_or_copied_over(
    backend: StorageBackend, tmp_path: Path
) -> None:
    path = log_file(tmp_path, *turn())
    await import_log(path, backend)
    other = MemoryBackend()
    await import_log(log_file(tmp_path, *turn(), *turn(2, 3)), other)
    with pytest.raises(SessionCollisionError):
        await import_log(path, backend)
    with pytest.raises(SessionCollisionError):
        await copy_session("s", other, backend)
    assert await events_in(backend) == turn_events(1, 0)
    await (await backend.acquire_writer("s")).release()
    await backend.close()


async def test_a_session_goes_from_store_to_store_and_back_unchanged(tmp_path: Path) -> None:
    store = SessionStore()
    first = open_backend(f"jsonl:{tmp_path}/a")
    async with SessionRepository(first, store) as persistence:
        session = store.create("s", cwd="/work")
        for _ in range(3):
            write_turn(session, deltas=20)
            await persistence.flush(session)
    stops = [open_backend(f"sqlite:{tmp_path}/b.db"), open_backend(f"jsonl:{tmp_path}/c")]
    source = first
    for target in stops:
        moved = await copy_session("s", source, target)
        assert moved.event_count == session.seq
        source = target
    assert await events_in(source) == list(session.events)
    original, last = await first.load_stored("s"), await source.load_stored("s")
    assert original is not None
    assert last is not None
    assert last.header == original.header
    (entry,) = (await source.list_page(None, None, 5)).entries
    assert entry.summary == (await first.list_page(None, None, 5)).entries[0].summary
    for backend in (first, *stops):
        await backend.close()


async def test_an_unknown_session_is_not_copied_or_verified(backend: StorageBackend) -> None:
    with pytest.raises(SessionNotFoundError):
        await copy_session("s", backend, MemoryBackend())
    with pytest.raises(SessionNotFoundError):
        await verify(backend, "s")
    await backend.close()


async def test_a_copy_that_differs_is_taken_back(tmp_path: Path) -> None:
    class Forgetful(MemoryBackend):
        async def load_stored(self, session_id: str) -> Any:
            stored = await super().load_stored(session_id)
            if stored is not None:
                builder = EventLogBuilder()
                builder.extend(turn_events(1, 0, text="HELLO"))
                object.__setattr__(stored, "log", builder.build())
            return stored

    target = Forgetful()
    with pytest.raises(TransferError, match="differs"):
        await import_log(log_file(tmp_path, *turn()), target)
    assert target.disk.logs == {}
    assert target.disk.locked == set()


async def test_a_sound_session_has_no_problems(backend: StorageBackend, tmp_path: Path) -> None:
    await import_log(log_file(tmp_path, *turn()), backend)
    found = await verify(backend, "s")
    assert (found.event_count, found.problems, found.notes) == (3, (), ())
    await backend.close()


async def test_an_open_turn_is_a_note(backend: StorageBackend, tmp_path: Path) -> None:
    await import_log(log_file(tmp_path, *turn()[:2]), backend)
    found = await verify(backend, "s")
    assert found.problems == ()
    assert len(found.notes) == 1
    await backend.close()


@pytest.mark.rule("stored-violations-are-reported")
async def test_what_a_load_tolerates_is_named(tmp_path: Path) -> None:
    backend = MemoryBackend()
    start, _, end = turn()
    await import_log(log_file(tmp_path, start, start | {"seq": 1}, end), backend)
    found = await verify(backend, "s")
    assert [problem.kind for problem in found.problems] == ["order"]


async def test_damage_is_named_where_it_is(tmp_path: Path) -> None:
    backend = open_backend(f"jsonl:{tmp_path}/store")
    async with SessionRepository(backend, SessionStore()) as persistence:
        await persistence.create(header("s"))
        await persistence.append("s", [*turn_events(1, 0), *turn_events(2, 3)])
    (log,) = (tmp_path / "store").glob("*/s/session.jsonl")
    log.write_bytes(log.read_bytes().replace(b"hello", b"hellO", 1))
    found = await verify(backend, "s")
    assert [problem.kind for problem in found.problems] == ["damage"]
    assert found.event_count == 0

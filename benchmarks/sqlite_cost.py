"""What the SQLite backend costs beside bare sqlite3, in one run.

Run: python benchmarks/sqlite_cost.py [EVENTS]
Appends turns of 200 events, each durable on return, and loads them cold; then lists 10,000
sessions. Bare sqlite3 holds a row for each event in WAL mode with synchronous FULL, its JSON made
and parsed by orjson, in one thread. Prints medians of interleaved rounds and the ratios.
"""

import gc
import json
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import orjson

from persistence import StorageBackend
from persistence.jsonl import JsonlBackend
from persistence.sqlite import SqliteBackend
from persistence.summary import SummaryFold
from persistence.testing.harness import header, turn_events
from session_core import ChunkRun, Event, Record, Session

TURN = 200
ROUNDS = 5
SESSIONS = 10_000
WORDS = ("the", "quick", "brown", "fox", "jumps", "over", "all", "the", "lazy", "dogs")


def turns(count: int) -> list[list[Record]]:
    """Return turns of streamed text, as a live session hands them to its store."""
    clock = iter(range(1_700_000_000_000, 1_900_000_000_000, 17)).__next__
    session = Session("s", clock=clock)
    made: list[list[Record]] = []
    for turn in range(1, count // TURN + 1):
        first = session.seq
        trigger = {"kind": "message", "source": {"kind": "user"}}
        session.append("turn/start", {"turn": turn, "trigger": trigger})
        session.append("step/start", {"turn": turn, "step": 1})
        for k in range(TURN - 4):
            text = " ".join(WORDS[(k + i) % len(WORDS)] for i in range(4))
            session.append_delta(turn, 1, "text-delta", 0, text)
        session.append("step/end", {"turn": turn, "step": 1})
        session.append("turn/end", {"turn": turn, "reason": {"kind": "completed"}})
        made.append(list(session.events.records(first)))
    return made


def events_of(turn: list[Record]) -> Iterator[Event]:
    for record in turn:
        if isinstance(record, ChunkRun):
            yield from record
        else:
            yield record


class Bare:
    """A row for each event."""

    def __init__(self, folder: Path) -> None:
        self.connection = sqlite3.connect(folder / "bare.db", isolation_level=None)
        self.connection.execute("PRAGMA journal_mode=WAL")
        self.connection.execute("PRAGMA synchronous=FULL")
        self.connection.execute(
            "CREATE TABLE IF NOT EXISTS ev(sid TEXT, seq INTEGER, data BLOB, PRIMARY KEY(sid, seq))"
            " WITHOUT ROWID"
        )

    def append(self, turn: list[dict[str, Any]]) -> None:
        rows = [("s", event["seq"], orjson.dumps(event)) for event in turn]
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.executemany("INSERT INTO ev VALUES(?,?,?)", rows)
        self.connection.execute("COMMIT")

    def load(self) -> list[Any]:
        rows = self.connection.execute("SELECT data FROM ev WHERE sid='s' ORDER BY seq")
        return [orjson.loads(row[0]) for row in rows]


def bare_round(folder: Path, made: list[list[Record]]) -> tuple[float, float]:
    plain = [[event.to_json() for event in events_of(turn)] for turn in made]
    bare = Bare(folder)
    gc.collect()
    start = time.perf_counter()
    for turn in plain:
        bare.append(turn)
    appended = time.perf_counter() - start
    bare.connection.close()
    bare = Bare(folder)
    start = time.perf_counter()
    loaded = len(bare.load())
    took = time.perf_counter() - start
    bare.connection.close()
    assert loaded == sum(map(len, plain))
    return appended, took


async def our_round(
    open_backend: Callable[[], StorageBackend], made: list[list[Record]]
) -> tuple[float, float]:
    backend = open_backend()
    writer = await backend.acquire_writer("s", header("s"))
    gc.collect()
    start = time.perf_counter()
    fold = SummaryFold(header("s"))
    for turn in made:
        fold.advance(turn)
        await writer.append_batch(header("s"), turn, fold.summary())
    appended = time.perf_counter() - start
    await backend.close()
    backend = open_backend()
    start = time.perf_counter()
    stored = await backend.load_stored("s")
    took = time.perf_counter() - start
    await backend.close()
    assert stored is not None
    assert len(stored.log) == len(made) * TURN
    return appended, took


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@contextmanager
def scratch() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(dir=sys.argv[2] if len(sys.argv) > 2 else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


async def list_cost() -> float:
    """Return how long the first page of many sessions takes, in ms."""
    with scratch() as folder:
        backend = SqliteBackend(str(folder / "store.db"))
        for k in range(SESSIONS):
            # Made in one place, so that preparing does not take minutes of fsync.
            if not k:
                writer = await backend.acquire_writer("s0", header("s0"))
                await writer.append_batch(header("s0"), turn_events(1, 0))
                await writer.release()
        await backend.close()
        with sqlite3.connect(folder / "store.db") as connection:
            columns = [row[1] for row in connection.execute("PRAGMA table_info(sessions)")]
            copied = ", ".join(
                {"id": "'s' || n", "updated_at": "n * 7919 % 1000003"}.get(name, name)
                for name in columns
            )
            connection.execute(
                "WITH RECURSIVE k(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM k"
                f" WHERE n < {SESSIONS}) INSERT INTO sessions SELECT {copied} FROM sessions, k"
            )
        connection.close()
        backend = SqliteBackend(str(folder / "store.db"))
        start = time.perf_counter()
        page = await backend.list_page(None, None, 50)
        took = time.perf_counter() - start
        assert len(page.entries) == 50
        await backend.close()
    return took * 1000


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    made = turns(count)
    whole: Callable[[Path], dict[str, Callable[[], StorageBackend]]] = lambda folder: {  # noqa: E731
        "sqlite": partial(SqliteBackend, str(folder / "store.db")),
        "sqlite, a row an event": partial(SqliteBackend, str(folder / "store.db"), pack=False),
        "jsonl": partial(JsonlBackend, str(folder / "store")),
    }
    results: dict[str, list[tuple[float, float]]] = {}
    sizes: dict[str, float] = {}
    for _ in range(ROUNDS):
        with scratch() as folder:
            results.setdefault("bare sqlite3", []).append(bare_round(folder, made))
            sizes["bare sqlite3"] = size_of(folder) / count
        for name in whole(Path()):
            with scratch() as folder:
                took = anyio.run(our_round, whole(folder)[name], made)
                results.setdefault(name, []).append(took)
                sizes[name] = size_of(folder) / count
    bare = results["bare sqlite3"]
    print(
        f"{count:,} events in durable turns of {TURN}; JSON of an event: "
        f"{len(json.dumps(next(events_of(made[0][2:3])).to_json())):,} bytes"
    )
    for name, rounds in results.items():
        append = statistics.median(count / took for took, _ in rounds)
        load = statistics.median(count / took for _, took in rounds)
        against = [
            statistics.median(b[i] / o[i] for b, o in zip(bare, rounds, strict=True))
            for i in (0, 1)
        ]
        print(
            f"{name:<24} append {append:>11,.0f} events/s, {against[0]:5.2f} x bare;"
            f"  load {load:>11,.0f} events/s, {against[1]:5.2f} x bare;  {sizes[name]:6.1f} B/event"
        )
    listed = [anyio.run(list_cost) for _ in range(3)]
    print(f"first page of {SESSIONS:,} sessions, cold: {statistics.median(listed):.1f} ms")


if __name__ == "__main__":
    main()

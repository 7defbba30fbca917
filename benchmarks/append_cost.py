"""What one streamed token costs in the session core, and what loading a long log costs.

Run: python benchmarks/append_cost.py
Prints microseconds per append near the 1,000th and near the 100,000th event of one session, with
payload check, invariants and one observer on; then time and memory to make a session of 100,000
chunk events from stored lines, packed rows of 50. All times are CPU time, so that a busy machine
matters less.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from session_core import EventLogBuilder, Session, SessionStore, decode_storage_run

CHUNKS = 100_000
ROW_MEMBERS = 50
WINDOW = 1_000
ROUNDS = 5


def open_session() -> Session:
    store = SessionStore()
    session = store.create()
    store.observe(session, lambda event: None)
    trigger = {"kind": "message", "source": {"kind": "user"}}
    session.append("turn/start", {"turn": 1, "trigger": trigger})
    session.append("step/start", {"turn": 1, "step": 1})
    return session


def append_delta(session: Session) -> None:
    session.append_delta(1, 1, "text-delta", 0, "twenty characters ok")


def append_payload(session: Session) -> None:
    chunk = {"type": "text-delta", "index": 0, "text": "twenty characters ok"}
    session.append("assistant/chunk", {"turn": 1, "step": 1, "chunk": chunk})


def window_cost(session: Session, append: Callable[[Session], None]) -> float:
    """Return the microseconds per append over the next `WINDOW` appends."""
    start = time.process_time_ns()
    for _ in range(WINDOW):
        append(session)
    return (time.process_time_ns() - start) / WINDOW / 1000


def append_cost(append: Callable[[Session], None]) -> tuple[float, float]:
    """Return the cost around the 1,000th and around the 100,000th append, medians of rounds."""
    early, late = [], []
    for _ in range(ROUNDS):
        session = open_session()
        costs = [window_cost(session, append) for _ in range(CHUNKS // WINDOW + 2)]
        early.append(statistics.median(costs[1:4]))
        late.append(statistics.median(costs[-3:]))
    return statistics.median(early), statistics.median(late)


def packed_rows() -> list[bytes]:
    rows: list[dict[str, Any]] = [
        {
            "type": "turn/start",
            "seq": 0,
            "time": 1000,
            "data": {"turn": 1, "trigger": {"kind": "x"}},
        },
        {"type": "step/start", "seq": 1, "time": 1000, "data": {"turn": 1, "step": 1}},
    ]
    for first in range(2, CHUNKS + 2, ROW_MEMBERS):
        data = {
            "turn": 1,
            "step": 1,
            "index": 0,
            "dt": [first % 30] * (ROW_MEMBERS - 1),
            "texts": [f"token {seq} of the text " for seq in range(first, first + ROW_MEMBERS)],
        }
        time0 = 1_700_000_000_000 + first
        rows.append({"type": "text-chunks", "seq0": first, "time0": time0, "data": data})
    return [orjson.dumps(row) for row in rows]


def resident_mib() -> float:
    # Not ru_maxrss: on Linux a child starts with the peak of its parent.
    status = subprocess.run(
        ["ps", "-o", "rss=", "-p", str(os.getpid())], capture_output=True, text=True, check=True
    )
    return int(status.stdout) / 1024


def load(path: Path) -> Session:
    builder = EventLogBuilder()
    with path.open("rb") as lines:
        for line in lines:
            builder.add(decode_storage_run(orjson.loads(line)))
    return Session("loaded", seed=builder.build())


def parse(path: Path) -> None:
    """Parse all lines and keep nothing: what a load cannot do without."""
    with path.open("rb") as lines:
        for line in lines:
            orjson.loads(line)


def median_ms(work: Callable[[Path], object], path: Path) -> float:
    costs = []
    for _ in range(ROUNDS):
        start = time.process_time()
        work(path)
        costs.append((time.process_time() - start) * 1000)
    return statistics.median(costs)


def measure_load(path: Path) -> None:
    """Print what it takes to make a session of stored lines; in a process of its own."""
    before = resident_mib()
    session = load(path)
    more = resident_mib() - before
    events = len(session.events)
    whole, parsing = median_ms(load, path), median_ms(parse, path)
    size = path.stat().st_size / 1024 / 1024
    print(
        f"load of {events:,} events, {size:.1f} MiB of packed rows: {whole:.1f} ms, of which "
        f"{parsing:.1f} ms are parsing; {more:.1f} MiB more"
    )


def main() -> None:
    if len(sys.argv) > 1:
        measure_load(Path(sys.argv[1]))
        return
    for append in (append_delta, append_payload):
        early, late = append_cost(append)
        print(
            f"{append.__name__}: {early:.2f} us near event 1,000, {late:.2f} us near event "
            f"{CHUNKS:,}, ratio {late / early:.2f}"
        )
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "rows.jsonl"
        path.write_bytes(b"".join(line + b"\n" for line in packed_rows()))
        subprocess.run([sys.executable, __file__, str(path)], check=True)


if __name__ == "__main__":
    main()

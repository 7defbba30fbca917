"""What one streamed token costs in the session core, and what loading a long log costs.

Run: python benchmarks/append_cost.py
Prints microseconds per append near the 1,000th and near the 100,000th event of one session, with
payload check, invariants and one observer on; then time and memory to build a session of 100,000
chunk events from packed rows of 50.
"""

import gc
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

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
    start = time.perf_counter_ns()
    for _ in range(WINDOW):
        append(session)
    return (time.perf_counter_ns() - start) / WINDOW / 1000


def append_cost(append: Callable[[Session], None]) -> tuple[float, float]:
    """Return the cost around the 1,000th and around the 100,000th append, medians of rounds."""
    early, late = [], []
    for _ in range(ROUNDS):
        session = open_session()
        costs = [window_cost(session, append) for _ in range(CHUNKS // WINDOW + 2)]
        early.append(statistics.median(costs[1:4]))
        late.append(statistics.median(costs[-3:]))
    return statistics.median(early), statistics.median(late)


def packed_rows() -> list[str]:
    rows = [
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
    return [json.dumps(row) for row in rows]


def resident_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure_load() -> None:
    """Print what it takes to build a session from packed rows; in a process of its own."""
    lines = packed_rows()
    size = sum(map(len, lines)) / 1024 / 1024
    values = [json.loads(line) for line in lines]
    del lines
    gc.collect()
    before = resident_mib()
    start = time.perf_counter()
    builder = EventLogBuilder()
    for value in values:
        builder.add(decode_storage_run(value))
    session = Session("loaded", seed=builder.build())
    took = time.perf_counter() - start
    print(
        f"load {len(session.events):,} events from {size:.1f} MiB of packed rows, parsed before: "
        f"{took * 1000:.1f} ms, {resident_mib() - before:.1f} MiB more"
    )


def main() -> None:
    if sys.argv[1:] == ["load"]:
        measure_load()
        return
    for append in (append_delta, append_payload):
        early, late = append_cost(append)
        print(
            f"{append.__name__}: {early:.2f} us near event 1,000, {late:.2f} us near event "
            f"{CHUNKS:,}, ratio {late / early:.2f}"
        )
    subprocess.run([sys.executable, __file__, "load"], check=True)


if __name__ == "__main__":
    main()

"""What the store costs over the bare thing, side by side in one run.

    store_cost.py [--events 100000] [--turn 200] [--rounds 5] [--dir DIR] [--only append,load,list]

- append: turns through a live session and `flush`, against the same lines written and fdatasynced.
- load: a cold load of the packed log, against `orjson.loads` of the same lines.
- list: the first page of 10,000 sessions by a fresh process, against a stat of each and
  `orjson.loads` of the index.

Prints medians of interleaved rounds and their ratio; only the ratios carry over to another machine.
"""

import argparse
import gc
import itertools
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio
import orjson

from persistence import SessionRepository
from persistence.files import OsFiles, make_dirs
from persistence.header_line import encode_header
from persistence.jsonl import JsonlBackend
from persistence.jsonl.layout import session_paths
from persistence.jsonl.scan import read_log
from persistence.records import encode_records
from persistence.testing.harness import end_turn, header, turn_events
from session_core import APPEND, Session, SessionStore, SurfaceIntent

ROW = 50
"""Deltas of one block, so that a packed row has about as many members as a real one."""
TEXT = "a token of text and "


def stream_turn(session: Session, turn: int, events: int) -> None:
    """Append a turn of about so many events, nearly all of them deltas."""
    trigger = {"kind": "message", "source": {"kind": "user"}}
    session.append("turn/start", {"turn": turn, "trigger": trigger})
    prompt = {"content": [{"type": "text", "text": TEXT}], "source": {"kind": "user"}}
    session.append("user/message", prompt, APPEND)
    session.append("step/start", {"turn": turn, "step": 1})
    first = session.seq
    for k in range(events - 6):
        session.append_delta(turn, 1, "text-delta", k // ROW, TEXT)
    answer = {
        "turn": turn,
        "step": 1,
        "content": [{"type": "text", "text": TEXT * (events - 6)}],
        "provenance": {"provider": "bench", "model": "bench"},
    }
    session.append("assistant/message", answer, SurfaceIntent("append", range(first, session.seq)))
    session.append("step/end", {"turn": turn, "step": 1})
    end_turn(session, turn)


def streamed_session(events: int, turn: int) -> Session:
    session = Session("bench", header=header("bench"))
    for number in range(1, events // turn + 1):
        stream_turn(session, number, turn)
    return session


def timed(work: Callable[[], object]) -> float:
    gc.collect()
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def interleaved(rounds: int, **works: Callable[[], float]) -> dict[str, float]:
    """Return the median of each work's seconds; the works take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            seconds[name].append(work())
    return {name: statistics.median(values) for name, values in seconds.items()}


def bench_append(directory: Path, events: int, turn: int, rounds: int) -> None:
    log = streamed_session(events, turn)
    bounds = [0] + [e.seq + 1 for e in log.events if e.type == "turn/end"]
    lines = [
        b"".join(orjson.dumps(e.to_json()) + b"\n" for e in log.events[a:b])
        for a, b in itertools.pairwise(bounds)
    ]
    packed = [encode_records(log.events.records(a, b)) for a, b in itertools.pairwise(bounds)]

    def bare(batches: list[bytes]) -> float:
        path = directory / "bare"
        path.unlink(missing_ok=True)
        handle = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

        def work() -> None:
            for batch in batches:
                os.write(handle, batch)
                os.fdatasync(handle)

        seconds = timed(work)
        os.close(handle)
        return seconds

    async def flush_turns(root: str) -> float:
        store = SessionStore()
        async with SessionRepository(JsonlBackend(root), store) as persistence:
            session = store.create("bench", cwd="/work")
            stream_turn(session, 1, turn)
            await persistence.flush(session)
            seconds = 0.0
            for number in range(2, len(lines) + 1):
                stream_turn(session, number, turn)
                start = time.perf_counter()
                await persistence.flush(session)
                seconds += time.perf_counter() - start
            return seconds

    def through_store() -> float:
        root = tempfile.mkdtemp(dir=directory)
        seconds = anyio.run(flush_turns, root)
        shutil.rmtree(root)
        return seconds

    result = interleaved(
        rounds,
        lines=partial(bare, lines),
        rows=partial(bare, packed),
        store=through_store,
    )
    print(f"append, {len(lines)} turns of {turn} events, durable each")
    report("  write + fdatasync of event lines", result["lines"], events)
    report("  write + fdatasync of packed rows", result["rows"], events)
    report("  SessionRepository.flush", result["store"], events)
    print(f"  store / bare event lines: {result['lines'] / result['store']:.2f} x")
    print(f"  store / bare packed rows: {result['rows'] / result['store']:.2f} x")


def bench_load(directory: Path, events: int, turn: int, rounds: int) -> None:
    session = streamed_session(events, turn)
    paths = session_paths(str(directory), "bench", session.header.cwd)
    make_dirs(OsFiles(), paths.directory)
    data = encode_header(session.header) + encode_records(session.events.records())
    Path(paths.log).write_bytes(data)
    lines = data.splitlines()

    def bare() -> float:
        gc.disable()
        seconds = timed(lambda: [orjson.loads(line) for line in lines])
        gc.enable()
        return seconds

    def load() -> float:
        return timed(lambda: read_log(OsFiles(), "bench", paths))

    result = interleaved(rounds, bare=bare, load=load)
    print(f"cold load, {session.seq} events, {len(data) / 1e6:.1f} MB in {len(lines)} lines")
    report("  orjson.loads of the lines, collector off", result["bare"], events)
    report("  read_log", result["load"], events)
    print(f"  load / bare decode: {result['load'] / result['bare']:.2f} x")
    print(f"  memory of a fresh process that loads it: {loading_process(str(directory))}")


def loading_process(root: str) -> str:
    # Linux only: `ru_maxrss` would count what this process had when it forked.
    code = (
        "import re, sys, anyio\n"
        "from persistence.jsonl import JsonlBackend\n"
        "def peak():\n"
        "    status = open('/proc/self/status').read()\n"
        "    return int(re.search(r'VmHWM:\\s+(\\d+)', status)[1]) / 1024\n"
        "before = peak()\n"
        "log = anyio.run(JsonlBackend(sys.argv[1]).load_stored, 'bench')\n"
        "print(f'{before:.0f} MB before, {peak():.0f} MB at the peak')\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code, root], capture_output=True, text=True, check=True
    ).stdout.strip()


def bench_list(directory: Path, rounds: int, sessions: int = 10_000) -> None:
    records = encode_records(turn_events(1, 0, text="what a person typed " * 5))
    files = OsFiles()
    logs = []
    for k in range(sessions):
        paths = session_paths(str(directory), f"session-{k:06d}", f"/home/me/project-{k % 20}")
        make_dirs(files, paths.directory)
        Path(paths.log).write_bytes(
            encode_header(header(f"session-{k:06d}", f"/home/me/project-{k % 20}")) + records
        )
        logs.append(paths.log)
    index = directory / "index.jsonl"
    print(f"list, first page of {sessions} sessions")
    report("  all summaries built anew", timed(lambda: page(directory)), sessions)

    def bare() -> float:
        def work() -> None:
            for path in logs:
                os.stat(path)
            for line in index.read_bytes().split(b"\n"):
                if line:
                    orjson.loads(line)

        return timed(work)

    result = interleaved(rounds, bare=bare, page=lambda: timed(lambda: page(directory)))
    report("  stat of each, orjson.loads of the index", result["bare"], sessions)
    report("  a page by a fresh backend", result["page"], sessions)
    print(f"  page / bare: {result['page'] / result['bare']:.2f} x")


def page(directory: Path) -> object:
    return anyio.run(JsonlBackend(str(directory)).list_page, None, None, 50)


def report(what: str, seconds: float, count: int) -> None:
    print(f"{what}: {seconds * 1000:.1f} ms, {count / seconds:,.0f}/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--turn", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", type=Path, default=None, help="where to write; a temp directory")
    parser.add_argument("--only", default="append,load,list")
    options = parser.parse_args()
    benches: dict[str, Callable[[Path], None]] = {
        "append": lambda d: bench_append(d, options.events, options.turn, options.rounds),
        "load": lambda d: bench_load(d, options.events, options.turn, options.rounds),
        "list": lambda d: bench_list(d, options.rounds),
    }
    for name in options.only.split(","):
        with tempfile.TemporaryDirectory(dir=options.dir) as directory:
            benches[name](Path(directory))
    usage = resource.getrusage(resource.RUSAGE_SELF)
    print(f"peak memory of this process: {usage.ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()

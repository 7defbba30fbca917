"""What stands where nothing should be lost is damaged: bits that flip, a file that ends early.

`ACP_FLIPS` sets how many bits flip for each backend, `ACP_FLIP_SEED` which.
"""

import os
import random
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from persistence import CorruptLogError, PersistenceError, SessionRepository, open_backend
from persistence.testing.disk_states import cached_image
from persistence.testing.harness import CWD, header, turn_events, write_turn
from persistence.testing.power_cuts import History, SimulatedSession, run_now
from persistence.testing.simulated_disk import DiskImage, SimulatedDisk
from persistence.testing.simulated_jsonl import no_kernel_locks, open_simulated_jsonl
from session_core import Event, Session, SessionStore

FLIPS = int(os.environ.get("ACP_FLIPS", "300"))
SEED = int(os.environ.get("ACP_FLIP_SEED", "0"))

FIRST = turn_events(1, 0)


@pytest.fixture
def _locks() -> Iterator[None]:
    with no_kernel_locks():
        yield


def streamed_turn() -> list[Event]:
    """Return a second turn, with packed rows and letters of several bytes."""
    session = Session("s", seed=FIRST, clock=count(3000).__next__)
    write_turn(session, "naïve 😀", deltas=5)
    return list(session.events)[len(FIRST) :]


def two_turns() -> DiskImage:
    disk = SimulatedDisk()
    session = SimulatedSession(disk, open_simulated_jsonl(disk), History())
    run_now(session.append(FIRST))
    run_now(session.append(streamed_turn()))
    return cached_image(disk)


def with_log(image: DiskImage, log: bytes, sidecar: bytes | None = None) -> DiskImage:
    """Return an image with another log, and with other checksums if they are given."""
    files = []
    for path, number, data in image.files:
        if path.endswith("/session.jsonl"):
            files.append((path, number, log))
        elif path.endswith("/session.crc") and sidecar is not None:
            files.append((path, number, sidecar))
        elif not path.endswith(".tmp"):
            files.append((path, number, data))
    return DiskImage(image.directories, tuple(files))


def content(image: DiskImage, name: str) -> bytes:
    (data,) = [data for path, _, data in image.files if path.endswith(f"/{name}")]
    return data


def session_on(image: DiskImage) -> SimulatedSession:
    disk = SimulatedDisk(image)
    return SimulatedSession(disk, open_simulated_jsonl(disk), History())


@pytest.mark.rule(
    "torn-tail-is-cut",
    "unterminated-record-is-kept",
    "complete-events-are-kept",
    "log-is-one-record-per-line",
)
@pytest.mark.usefixtures("_locks")
async def test_a_log_cut_at_any_byte_of_a_streamed_turn_goes_on() -> None:
    """B51: whole records before the cut stay, a packed row whole or not at all."""
    image, second = two_turns(), streamed_turn()
    log, checksums = content(image, "session.jsonl"), content(image, "session.crc")
    first_line, _, rest = checksums.partition(b"\n")
    assert rest
    start = log.index(b'{"type":"turn/start","seq":3')
    history = History()
    history.ask(FIRST)
    history.acknowledge(FIRST)
    history.possible.append([*FIRST, *second])
    for cut in range(start, len(log)):
        session = session_on(with_log(image, log[:cut], first_line + b"\n"))
        loaded = await session.load()
        closers = loaded.repaired.closer_count if loaded.repaired else 0
        found = list(loaded.log)
        assert history.fault(found[: len(found) - closers]) is None
        await session.append(turn := turn_events(3 if closers else 2, len(found)))
        again = await session_on(cached_image(session.disk)).load()
        assert list(again.log) == [*found, *turn]
        assert again.repaired is None


@pytest.mark.rule("damage-refuses-the-load")
@pytest.mark.usefixtures("_locks")
async def test_every_flipped_bit_of_a_log_is_found_and_nothing_is_touched() -> None:
    image, chosen = two_turns(), random.Random(SEED)
    log = content(image, "session.jsonl")
    for _ in range(FLIPS):
        damaged = with_log(image, flipped(log, chosen))
        session = session_on(damaged)
        with pytest.raises(PersistenceError) as raised:
            await session.load()
        assert type(raised.value).__name__ in {"CorruptLogError", "UnsupportedVersionError"}
        assert cached_image(session.disk) == damaged


@pytest.mark.usefixtures("_locks")
async def test_no_flipped_bit_of_the_checksums_changes_what_is_read() -> None:
    image, chosen = two_turns(), random.Random(SEED)
    log, checksums = content(image, "session.jsonl"), content(image, "session.crc")
    for _ in range(FLIPS):
        session = session_on(with_log(image, log, flipped(checksums, chosen)))
        assert list((await session.load()).log) == [*FIRST, *streamed_turn()]


def flipped(data: bytes, chosen: random.Random) -> bytes:
    damaged = bytearray(data)
    damaged[chosen.randrange(len(damaged))] ^= 1 << chosen.randrange(8)
    return bytes(damaged)


async def test_no_flipped_bit_of_a_database_is_read_as_truth(tmp_path: Path) -> None:
    """Much of a database is empty, or not events: then what is read must be what was stored."""
    path = tmp_path / "store.db"
    async with SessionRepository(open_backend(f"sqlite:{path}"), SessionStore()) as persistence:
        await persistence.create(header("s", CWD))
        await persistence.append("s", FIRST)
        await persistence.append("s", streamed_turn())
    data, chosen = path.read_bytes(), random.Random(SEED)
    events = [*FIRST, *streamed_turn()]
    for _ in range(FLIPS // 3):
        path.write_bytes(flipped(data, chosen))
        assert await read(path) in (None, events)


async def test_every_flipped_bit_of_a_text_in_a_database_is_found(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with SessionRepository(open_backend(f"sqlite:{path}"), SessionStore()) as persistence:
        await persistence.create(header("s", CWD))
        await persistence.append("s", FIRST)
        await persistence.append("s", streamed_turn())
    data, chosen = path.read_bytes(), random.Random(SEED)
    text = b"token 0 token 1 token 2"
    start = data.index(text)
    for _ in range(FLIPS // 3):
        damaged = flipped(data[start : start + len(text)], chosen)
        path.write_bytes(data[:start] + damaged + data[start + len(text) :])
        with pytest.raises(CorruptLogError):
            await inspect(path)


async def inspect(path: Path) -> list[Event]:
    async with SessionRepository(open_backend(f"sqlite:{path}"), SessionStore()) as persistence:
        return list((await persistence.inspect("s")).log)


async def read(path: Path) -> list[Event] | None:
    """Return what is stored, or None if that was refused."""
    try:
        return await inspect(path)
    except PersistenceError:
        return None

"""Try a folder of foreign session logs on both backends: `corpus_program.py FOLDER`.

Each `*.jsonl` with a session header below the folder is imported into a JSONL and into a SQLite
store, loaded there with its repair, and carried JSONL -> SQLite -> JSONL; what comes back must
equal what was imported. Prints one line a log, what refused ones were refused for among them; ends
with 1 if a log came back changed.
"""

import sys
import tempfile
from pathlib import Path

import anyio

from persistence import (
    PersistenceError,
    SessionRepository,
    StorageBackend,
    copy_session,
    import_log,
    open_backend,
    verify,
)
from persistence.records import encode_records
from session_core import SessionStore

# What recorders of scenarios put in the place of what differs from run to run.
TOKENS = {"{{sessionId}}": "the-session", "{{cwd}}": "/the/folder"}


async def loaded(backend: StorageBackend, session_id: str) -> bytes:
    """Return the log as a load leaves it, closers included."""
    async with SessionRepository(backend, SessionStore()) as persistence:
        return encode_records((await persistence.load(session_id)).log.records(), pack=False)


async def stored(backend: StorageBackend, session_id: str) -> bytes:
    log = await backend.load_stored(session_id)
    assert log is not None
    return encode_records(log.log.records(), pack=False)


async def tried(log: Path, folder: Path) -> str:
    """Try one log; return a line of praise.

    Raises:
        PersistenceError: it was refused.
        AssertionError: it came back changed.
    """
    first, sqlite, last = (
        open_backend(spec)
        for spec in (f"jsonl:{folder}/a", f"sqlite:{folder}/b.db", f"jsonl:{folder}/c")
    )
    direct = open_backend(f"sqlite:{folder}/d.db")
    moved = await import_log(log, first)
    session_id = moved.header.id
    await import_log(log, direct)
    await copy_session(session_id, first, sqlite)
    await copy_session(session_id, sqlite, last)
    events = await stored(first, session_id)
    for backend in (sqlite, last, direct):
        assert await stored(backend, session_id) == events, "the copies differ"
    found = await verify(sqlite, session_id)
    repaired = [await loaded(backend, session_id) for backend in (last, direct)]
    assert repaired[0] == repaired[1], "the repairs differ"
    assert repaired[0].startswith(events), "the repair changed events"
    for backend in (first, sqlite):
        await backend.close()
    closers = len(repaired[0].splitlines()) - moved.event_count
    more = f", torn: {moved.torn}" if moved.torn else ""
    if found.problems:
        more += f", {len(found.problems)} odd: {found.problems[0].detail}"
    return f"{moved.event_count} events, {closers} closers{more}"


def logs_under(corpus: Path) -> dict[str, str]:
    """Return the logs below a folder by name, tokens replaced."""
    logs: dict[str, str] = {}
    for source in sorted(corpus.glob("**/*.jsonl")):
        text = source.read_text("utf-8")
        if not text.startswith('{"type":"session"'):
            continue
        for token, value in TOKENS.items():
            text = text.replace(token, value)
        logs[str(source.relative_to(corpus))] = text
    return logs


async def main(corpus: Path) -> int:
    bad = 0
    for name, text in logs_under(corpus).items():
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "log.jsonl"
            log.write_text(text, "utf-8")
            try:
                line = "ok    " + await tried(log, Path(folder))
            except PersistenceError as error:
                line = f"refused: {error}"
            except AssertionError as error:
                bad += 1
                line = f"CHANGED: {error}"
        print(name, line)  # noqa: T201 - its only way to speak
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(anyio.run(main, Path(sys.argv[1])))

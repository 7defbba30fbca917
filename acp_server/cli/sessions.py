"""`acp-server sessions`: thin commands over stored sessions, for people and for scripts.

Each works on a backend as it lies on the disk; no server need run. With `--json` each result is one
JSON object on a line of stdout; sentences about what went wrong are on stderr in any case. Exit
codes: 0 all well, 1 something is wrong with a session or a store, 2 the command makes no sense.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import anyio

from acp_server.cli.usage import PROGRAM, UsageError, default_store
from persistence import (
    PersistenceError,
    SessionNotFoundError,
    UnknownStoreError,
    copy_session,
    import_log,
    open_backend,
    verify,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator, Awaitable, Callable

    from persistence import SessionEntry, StorageBackend, Transferred, Verification

FAILED = 1

LATEST = "latest"
_PAGE = 1000
_SHOWN_MATCHES = 4


def run(options: argparse.Namespace) -> int:
    """Carry out one parsed command; return the exit code."""
    try:
        code = anyio.run(_COMMANDS[options.command], options)
        sys.stdout.flush()
    except UnknownStoreError as error:
        raise UsageError(str(error)) from error
    except PersistenceError as error:
        _complain(error)
        return FAILED
    except BrokenPipeError:
        # `| head` has seen enough; what is still buffered must not fail once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return code


async def _list(options: argparse.Namespace) -> int:
    async with _opened(options.store) as backend:
        left = options.limit
        async for entry in _entries(backend, options.cwd):
            if left == 0:
                break
            left = None if left is None else left - 1
            _show(options, _entry_json(entry), _entry_text(entry))
    return 0


async def _import(options: argparse.Namespace) -> int:
    if options.id is not None and len(options.files) > 1:
        raise UsageError("--id names one session, so it takes one file")
    async with _opened(options.store) as backend:

        async def bring(path: str) -> tuple[dict[str, Any], str]:
            moved = await import_log(path, backend, session_id=options.id, cwd=options.cwd)
            return _moved(moved, {"file": path}, f"imported from {path}")

        return await _each(options, options.files, "file", bring)


async def _convert(options: argparse.Namespace) -> int:
    if bool(options.ids) == options.all:
        raise UsageError("convert takes session ids, or --all")
    async with _opened(options.store) as source, _opened(options.to) as target:
        ids = [await _resolve(source, name) for name in options.ids]
        if options.all:
            ids = [entry.header.id async for entry in _entries(source)]

        async def bring(session_id: str) -> tuple[dict[str, Any], str]:
            moved = await copy_session(session_id, source, target)
            return _moved(moved, {}, f"copied to {options.to}")

        return await _each(options, ids, "id", bring)


async def _verify(options: argparse.Namespace) -> int:
    bad = 0
    async with _opened(options.store) as backend:
        ids = [await _resolve(backend, name) for name in options.ids]
        if not ids:
            ids = [entry.header.id async for entry in _entries(backend)]
        for session_id in ids:
            found = await verify(backend, session_id)
            bad += bool(found.problems)
            _show(options, _verification_json(found), _verification_text(found))
    return FAILED if bad else 0


_COMMANDS: dict[str, Callable[[argparse.Namespace], Awaitable[int]]] = {
    "list": _list,
    "import": _import,
    "convert": _convert,
    "verify": _verify,
}


@asynccontextmanager
async def _opened(spec: str | None) -> AsyncIterator[StorageBackend]:
    backend = open_backend(spec or default_store())
    try:
        yield backend
    finally:
        await backend.close()


async def _entries(backend: StorageBackend, cwd: str | None = None) -> AsyncIterator[SessionEntry]:
    cursor = None
    while True:
        page = await backend.list_page(cwd, cursor, _PAGE)
        for entry in page.entries:
            yield entry
        cursor = page.next_cursor
        if cursor is None:
            return


async def _resolve(backend: StorageBackend, name: str) -> str:
    """Return the id that a full id, a unique prefix or `latest` means.

    Raises:
        UsageError: Several sessions begin so.
        SessionNotFoundError: There is no latest session, as there is none.
    """
    if name == LATEST:
        page = await backend.list_page(None, None, 1)
        if not page.entries:
            raise SessionNotFoundError(LATEST)
        return page.entries[0].header.id
    matches: list[str] = []
    async for entry in _entries(backend):
        if entry.header.id == name:
            return name
        if entry.header.id.startswith(name):
            matches.append(entry.header.id)
    if len(matches) > 1:
        shown = ", ".join(map(repr, sorted(matches)[:_SHOWN_MATCHES]))
        more = ", ..." if len(matches) > _SHOWN_MATCHES else ""
        raise UsageError(f"{name!r} is the beginning of {len(matches)} ids: {shown}{more}")
    # A damaged session may be stored and not listed; whoever reads it will see.
    return matches[0] if matches else name


async def _each(
    options: argparse.Namespace,
    names: list[str],
    kind: str,
    work: Callable[[str], Awaitable[tuple[dict[str, Any], str]]],
) -> int:
    """Do something for each name; one that fails does not keep the others from it."""
    failed = 0
    for name in names:
        try:
            value, text = await work(name)
        except PersistenceError as error:
            failed += 1
            _complain(error)
            if options.json:
                _show(options, {kind: name, "error": str(error)}, "")
        else:
            _show(options, value, text)
    return FAILED if failed else 0


def _moved(moved: Transferred, more: dict[str, Any], how: str) -> tuple[dict[str, Any], str]:
    value = {
        "id": moved.header.id,
        "events": moved.event_count,
        "torn": moved.torn,
        "problems": list(moved.problems),
        **more,
    }
    text = f"{moved.header.id}  {moved.event_count} events {how}"
    if moved.torn is not None:
        text += f"; a torn last record was left out ({moved.torn})"
    return value, "\n".join([text, *(f"  note: {problem}" for problem in moved.problems)])


def _entry_json(entry: SessionEntry) -> dict[str, Any]:
    header, summary, revision = entry
    return {
        "id": header.id,
        "cwd": header.cwd,
        "createdAt": header.created_at,
        "updatedAt": summary.updated_at,
        "title": summary.title,
        "firstPrompt": summary.first_prompt,
        "events": summary.event_count,
        "turns": summary.turn_count,
        "revision": revision,
    }


def _entry_text(entry: SessionEntry) -> str:
    header, summary, _ = entry
    name = summary.title or summary.first_prompt or "-"
    try:
        updated = datetime.fromtimestamp(summary.updated_at / 1000, UTC).astimezone()
        when = updated.strftime("%Y-%m-%d %H:%M")
    except (OverflowError, ValueError, OSError):
        # A time of a foreign log that no calendar has.
        when = str(summary.updated_at)
    return f"{when}  {header.id}  {summary.turn_count} turns  {header.cwd or '-'}  {name}"


def _verification_json(found: Verification) -> dict[str, Any]:
    return {
        "id": found.session_id,
        "events": found.event_count,
        "problems": [problem._asdict() for problem in found.problems],
        "notes": list(found.notes),
    }


def _verification_text(found: Verification) -> str:
    state = "damaged" if found.problems else "sound"
    lines = [f"{found.session_id}  {state}, {found.event_count} events"]
    for kind, seq, detail in found.problems:
        place = "" if seq is None else f" at seq {seq}"
        lines.append(f"  {kind}{place}: {detail}")
    lines += [f"  note: {note}" for note in found.notes]
    return "\n".join(lines)


def _show(options: argparse.Namespace, value: dict[str, Any], text: str) -> None:
    sys.stdout.write(f"{json.dumps(value) if options.json else _printable(text)}\n")


def _complain(error: Exception) -> None:
    sys.stderr.write(f"{PROGRAM}: {_printable(str(error))}\n")


def _printable(text: str) -> str:
    """Return a text that does nothing to a terminal, and that any terminal can take."""
    shown = "".join(char if char.isprintable() or char == "\n" else "\ufffd" for char in text)
    encoding = sys.stdout.encoding or "utf-8"
    return shown.encode(encoding, "replace").decode(encoding)

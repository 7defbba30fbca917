"""The workspace of a run: a working directory and a store, and what is in both."""

import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import orjson

from acp_server.testing.kit.scenario import WORKSPACE, ScenarioFault
from persistence import PersistenceError, StorageBackend, StoredLog, open_backend
from session_core import (
    Event,
    EventLog,
    EventLogBuilder,
    SessionCoreError,
    SessionHeader,
    decode_storage_run,
)

DEFAULT_STORES = ("jsonl", "sqlite", "memory")
_GIVEN_ID = "0000feed-0000-7000-8000-{:012x}"
_SESSION_TOKEN = re.compile(r"\{\{session(?:\.(\d+)|Id)\}\}")


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session as the store holds it.

    Attributes:
        header: Its header, as JSON.
        log: Its events; empty if the log is damaged.
        records: The records as they are stored, where the store is a file of lines.
        damage: What is wrong with the log.
    """

    header: dict[str, Any]
    log: EventLog
    records: tuple[dict[str, Any], ...] = ()
    damage: str | None = None

    @property
    def events(self) -> list[Event]:
        """All events, packed runs expanded."""
        return list(self.log.view())


class Workspace:
    """The directories and the store of one run.

    Args:
        source: The directory whose `workspace` is copied and whose logs can be put into the store.
        root: An empty directory for this run.
        store: Kind of store: `jsonl`, `sqlite`, `memory`, or the scheme of another backend.

    Attributes:
        cwd: The working directory, resolved.
        store_spec: The store as `--store` takes it.
        shared: The open backend of a store that lives in this process only.
    """

    def __init__(self, source: Path, root: Path, store: str) -> None:
        self.root = root.resolve()
        self.cwd = self.root / WORKSPACE
        self.kind = store
        self._source = source
        workspace = source / WORKSPACE
        if workspace.is_dir():
            shutil.copytree(workspace, self.cwd)
        else:
            self.cwd.mkdir()
        self.store_spec = "memory:" if store == "memory" else f"{store}:{self.root / 'store'}"
        self.shared: StorageBackend | None = open_backend("memory:") if store == "memory" else None

    @asynccontextmanager
    async def backend(self) -> AsyncIterator[StorageBackend]:
        """Open the store beside the server, which may have it open, too."""
        if self.shared is not None:
            yield self.shared
            return
        backend = open_backend(self.store_spec)
        try:
            yield backend
        finally:
            await backend.close()

    def agent(self, spec: str) -> str:
        """Return an agent as it is started here: in its script, too, `{{cwd}}` has a meaning."""
        if not spec.startswith("script:"):
            return spec
        path = Path(spec.removeprefix("script:"))
        folder = self.root / "model"
        folder.mkdir(exist_ok=True)
        for beside in path.parent.glob(f"{path.stem}.*json*"):
            text = beside.read_text(encoding="utf-8")
            (folder / beside.name).write_text(self._placed(text), encoding="utf-8")
        return f"script:{folder / path.name}"

    def _placed(self, text: str) -> str:
        return text.replace("{{cwd}}", str(self.cwd))

    async def put(self, name: str, offset: int = 0) -> str:
        """Put a stored log of the scenario's directory into the store and return its session id.

        The N of each `{{session.N}}` in it is `offset` higher, for one copy of several.

        In the text `{{cwd}}` stands for the working directory, `{{session.N}}` and `{{sessionId}}`
        for ids.

        Raises:
            ScenarioFault: The file is not there or is no log.
        """
        path = self._source / name
        if not path.is_file():
            raise ScenarioFault(path, 0, "this log is not there")
        text = self._placed(path.read_text(encoding="utf-8"))
        text = _SESSION_TOKEN.sub(lambda match: _GIVEN_ID.format(int(match[1] or 0) + offset), text)
        lines = text.splitlines(keepends=True)
        try:
            # The reader judges the version: a scenario may be about a log of another one.
            header = SessionHeader.from_json({**orjson.loads(lines[0]), "version": 0})
        except (IndexError, ValueError, SessionCoreError) as error:
            raise ScenarioFault(path, 1, f"is no session header: {error}") from error
        async with self.backend() as backend:
            place = backend.locate(header)
            if place is not None and place.kind == "jsonl":
                # As it is in the file: a torn tail is the point of some scenarios.
                target = anyio.Path(place.path)
                await target.parent.mkdir(parents=True, mode=0o700)
                await target.write_text(text, encoding="utf-8")
            else:
                writer = await backend.acquire_writer(header.id, header)
                await writer.append_batch(header, list(_read_log(path, lines[1:]).records()))
                await writer.release()
        return header.id

    async def stored(self) -> list[StoredSession]:
        """Return all stored sessions, oldest first, then by id."""
        async with self.backend() as backend:
            found: list[StoredSession] = []
            cursor: str | None = None
            while True:
                page = await backend.list_page(None, cursor, 50)
                found.extend([await _stored(backend, entry.header) for entry in page.entries])
                cursor = page.next_cursor
                if cursor is None:
                    break
        return sorted(found, key=lambda one: (one.header["createdAt"], one.header["id"]))

    async def stored_events(self, session_id: str) -> EventLog | None:
        """Return the complete events of a session, None if it is not stored or cannot be read."""
        async with self.backend() as backend:
            try:
                stored = await backend.load_stored(session_id)
            except PersistenceError:
                return None
        return None if stored is None else stored.log


async def _stored(backend: StorageBackend, header: SessionHeader) -> StoredSession:
    try:
        stored: StoredLog | None = await backend.load_stored(header.id)
    except PersistenceError as error:
        return StoredSession(header.to_json(), EventLogBuilder().build(), damage=str(error))
    if stored is None:
        return StoredSession(header.to_json(), EventLogBuilder().build(), damage="it is gone")
    place = backend.locate(header)
    records: tuple[dict[str, Any], ...] = ()
    if place is not None and place.kind == "jsonl":
        lines = (await anyio.Path(place.path).read_bytes()).splitlines()[1:]
        records = tuple(orjson.loads(line) for line in lines)
    return StoredSession(stored.header.to_json(), stored.log, records)


def _read_log(path: Path, lines: list[str]) -> EventLog:
    builder = EventLogBuilder()
    for number, line in enumerate(lines, 2):
        try:
            builder.add(decode_storage_run(orjson.loads(line)))
        except (ValueError, SessionCoreError) as error:
            raise ScenarioFault(path, number, f"is no record of a log: {error}") from error
    return builder.build()

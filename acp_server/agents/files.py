"""The workspace as a turn sees it: the editor's files where it offers them, else the disk's."""

from __future__ import annotations

import os.path
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from acp_server.agents.files_on_disk import (
    MAX_READ_BYTES,
    prepare_writing,
    read_file,
    require_readable,
    write_file,
)
from acp_server.turns.content import clean_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from acp_server.turns.ports import ClientPort


class TurnFiles:
    """Reads and writes text files, relative paths below the session's working directory.

    Args:
        client: Its editor's files are preferred.
        cwd: The session's working directory, absolute.
        require_open: Raises `TurnClosedError` once the turn has ended.
    """

    def __init__(
        self, client: ClientPort, cwd: str | None, require_open: Callable[[], None]
    ) -> None:
        self._client = client
        self._cwd = cwd
        self._require_open = require_open

    async def read(
        self,
        path: str,
        *,
        line: int | None = None,
        limit: int | None = None,
        max_bytes: int = MAX_READ_BYTES,
    ) -> str:
        """Return a file's text, unsaved changes of the editor included; line ends as they are.

        Args:
            path: Absolute, or relative to the session's working directory.
            line: First line to return, from 1 on; the first by default.
            limit: How many lines at most, from 1 on; all by default.
            max_bytes: The largest file that is read, whatever lines of it are asked for.

        Raises:
            FileNotFoundError: There is no such file, for the editor or on the disk.
            OSError: The file cannot be read, is too large or no regular file, or the editor does
                not answer.
            UnicodeDecodeError: It is not UTF-8.
            ValueError: `line` or `limit` is below 1.
        """
        self._require_open()
        for name, value in (("line", line), ("limit", limit)):
            if value is not None and value < 1:
                message = f"{name} counts from 1, not {value!r}"
                raise ValueError(message)
        target = self._resolve(path)
        if self._client.can_read_files:
            # What is not on this disk may be in the editor all the same.
            with suppress(FileNotFoundError, NotADirectoryError):
                await anyio.to_thread.run_sync(require_readable, target, max_bytes)
            return await self._client.read_text_file(target, line=line, limit=limit)
        text = (await anyio.to_thread.run_sync(read_file, target, max_bytes)).decode()
        return text if line is None and limit is None else _lines(text, line or 1, limit)

    async def write(self, path: str, content: str) -> None:
        """Replace a file's text, or create the file and the folders above it.

        Line ends are written as they are.

        Raises:
            OSError: The file cannot be written, is no regular file, or the editor does not answer.
        """
        self._require_open()
        target, content = self._resolve(path), clean_text(content)
        if not self._client.can_write_files:
            await anyio.to_thread.run_sync(write_file, target, content.encode())
            return
        # Not every editor makes folders. A session's folder that is not here is on another machine.
        if self._cwd is None or await anyio.Path(self._cwd).is_dir():
            await anyio.to_thread.run_sync(prepare_writing, target)
        await self._client.write_text_file(target, content)

    async def names(self, path: str = ".") -> list[str]:
        """Return the names in a directory of the disk, sorted; directories end in `/`.

        Raises:
            OSError: The directory cannot be read.
        """
        self._require_open()
        target = anyio.Path(self._resolve(path))
        return sorted(
            [
                f"{entry.name}/" if await entry.is_dir() else entry.name
                async for entry in target.iterdir()
            ]
        )

    def _resolve(self, path: str) -> str:
        """Return the absolute path, without `.` and `..`: the same for editor, disk and card."""
        path = clean_text(path)
        if self._cwd is None and not os.path.isabs(path):  # noqa: PTH117 - text, no file system
            message = f"the session has no working directory, so {path!r} must be absolute"
            raise FileNotFoundError(message)
        return os.path.normpath(os.path.join(self._cwd or "/", path))  # noqa: PTH118 - as above


def _lines(text: str, line: int, limit: int | None) -> str:
    """Return lines as an editor counts them: by LF alone, each with its end."""
    parts = text.split("\n")
    stop = None if limit is None else line - 1 + limit
    chosen = parts[line - 1 : stop]
    ends = "\n" if stop is not None and stop < len(parts) else ""
    return "\n".join(chosen) + ends

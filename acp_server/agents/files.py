"""The workspace as a turn sees it: the editor's files where it offers them, else the disk's."""

from __future__ import annotations

import os.path
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

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

    async def read(self, path: str, *, line: int | None = None, limit: int | None = None) -> str:
        """Return a file's text, unsaved changes of the editor included; line ends as they are.

        Args:
            path: Absolute, or relative to the session's working directory.
            line: First line to return, from 1 on; the first by default.
            limit: How many lines at most, from 1 on; all by default.

        Raises:
            OSError: The file cannot be read, or the editor does not answer.
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
            return await self._client.read_text_file(_normal(target), line=line, limit=limit)
        text = (await anyio.Path(target).read_bytes()).decode()
        return text if line is None and limit is None else _lines(text, line or 1, limit)

    async def write(self, path: str, content: str) -> None:
        """Replace a file's text, or create the file. Line ends are written as they are.

        Raises:
            OSError: The file cannot be written, or the editor does not answer.
        """
        self._require_open()
        target, content = self._resolve(path), clean_text(content)
        if self._client.can_write_files:
            await self._client.write_text_file(_normal(target), content)
        else:
            await anyio.Path(target).write_bytes(content.encode())

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

    def _resolve(self, path: str) -> Path:
        if self._cwd is None and not Path(path).is_absolute():
            message = f"the session has no working directory, so {path!r} must be absolute"
            raise FileNotFoundError(message)
        return Path(self._cwd or "/", path)


def _normal(path: Path) -> str:
    """Return a path for the editor, which wants it without `.` and `..` (B79)."""
    return clean_text(os.path.normpath(path))


def _lines(text: str, line: int, limit: int | None) -> str:
    """Return lines as an editor counts them: by LF alone, each with its end."""
    parts = text.split("\n")
    stop = None if limit is None else line - 1 + limit
    chosen = parts[line - 1 : stop]
    ends = "\n" if stop is not None and stop < len(parts) else ""
    return "\n".join(chosen) + ends

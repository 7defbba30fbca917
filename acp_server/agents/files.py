"""The workspace as a turn sees it: the editor's files where it offers them, else the disk's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from acp_server.agents.ports import ClientPort


class TurnFiles:
    """Reads and writes text files, relative paths below the session's working directory."""

    def __init__(self, client: ClientPort, cwd: str | None) -> None:
        self._client = client
        self._cwd = cwd

    async def read(self, path: str) -> str:
        """Return a file's text, unsaved changes of the editor included.

        Raises:
            OSError: The file cannot be read.
            UnicodeDecodeError: It is not UTF-8.
        """
        target = self._resolve(path)
        if self._client.can_read_files:
            return await self._client.read_text_file(str(target))
        return (await anyio.Path(target).read_bytes()).decode()

    async def write(self, path: str, content: str) -> None:
        """Replace a file's text, or create the file. Line ends are written as they are.

        Raises:
            OSError: The file cannot be written.
        """
        target = self._resolve(path)
        if self._client.can_write_files:
            await self._client.write_text_file(str(target), content)
        else:
            await anyio.Path(target).write_bytes(content.encode())

    async def names(self, path: str = ".") -> list[str]:
        """Return the names in a directory of the disk, sorted; directories end in `/`.

        Raises:
            OSError: The directory cannot be read.
        """
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

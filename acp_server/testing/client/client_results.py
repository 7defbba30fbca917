"""How the test client answers what the agent asks of it."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from inspect import isawaitable
from pathlib import Path
from typing import Any, TypeAlias

import anyio

from acp_server.testing.errors import AcpError

Params: TypeAlias = Mapping[str, Any]
Answer: TypeAlias = Callable[[Params], Any | Awaitable[Any]]
"""Takes the params of a request, returns its result, maybe as an awaitable; raises `AcpError`."""

_INVALID_PARAMS = -32602
_NOT_FOUND = -32002
CANCELLED_OUTCOME = {"outcome": {"outcome": "cancelled"}}


PERMISSION_KINDS = ("allow_once", "allow_always", "reject_once", "reject_always", "cancelled")
"""The kinds of options (https://agentclientprotocol.com/protocol/tool-calls#requesting-permission),
and `cancelled`, which chooses none."""


def check_permission_kind(kind: str) -> str:
    """Return a permission kind.

    Raises:
        ValueError: There is no such kind.
    """
    if kind not in PERMISSION_KINDS:
        message = f"there is no permission kind {kind!r}; there are {', '.join(PERMISSION_KINDS)}"
        raise ValueError(message)
    return kind


class PermissionQueue:
    """Answers permission requests by option kind, first in first out.

    When it is empty, and when the kind is not offered, the answer is `cancelled`; the latter is
    noted in `problems`, since the test expected another question.

    Raises:
        ValueError: There is no such kind.
    """

    def __init__(self, kinds: Iterable[str] = ()) -> None:
        self.kinds = [check_permission_kind(kind) for kind in kinds]
        self.problems: list[str] = []

    def __call__(self, params: Params) -> Any:
        """Choose an option."""
        if not self.kinds:
            return CANCELLED_OUTCOME
        kind = self.kinds.pop(0)
        if kind == "cancelled":
            return CANCELLED_OUTCOME
        for option in params["options"]:
            if option["kind"] == kind:
                return {"outcome": {"outcome": "selected", "optionId": option["optionId"]}}
        offered = ", ".join(option["kind"] for option in params["options"])
        self.problems.append(f"permission {kind!r} was not offered, only {offered}")
        return CANCELLED_OUTCOME


class DiskFiles:
    """Reads and writes real files, within the working directories of the client's sessions only."""

    def __init__(self) -> None:
        self.roots: dict[str, Path] = {}

    async def read(self, params: Params) -> dict[str, Any]:
        """Answer `fs/read_text_file`."""
        path = self._resolve(params)
        try:
            text = await anyio.Path(path).read_text(encoding="utf-8")
        except FileNotFoundError as error:
            raise AcpError(_NOT_FOUND, "Resource not found", {"uri": str(path)}) from error
        line, limit = params.get("line"), params.get("limit")
        if line is not None or limit is not None:
            start = max(0, (line or 1) - 1)
            lines = text.splitlines(keepends=True)[start:]
            text = "".join(lines if limit is None else lines[:limit])
        return {"content": text}

    async def write(self, params: Params) -> dict[str, Any]:
        """Answer `fs/write_text_file`."""
        path = anyio.Path(self._resolve(params))
        await path.parent.mkdir(parents=True, exist_ok=True)
        await path.write_text(params["content"], encoding="utf-8")
        return {}

    def _resolve(self, params: Params) -> Path:
        root = self.roots.get(params["sessionId"])
        path = Path(params["path"])
        if (
            root is None
            or not path.is_absolute()
            or not path.resolve().is_relative_to(root.resolve())
        ):
            raise AcpError(_INVALID_PARAMS, f"Invalid params: path {params['path']!r} is outside")
        return path


async def answer_with(answer: Answer, params: Params) -> Any:
    """Call `answer` and await what it returns, if that can be awaited."""
    result = answer(params)
    return await result if isawaitable(result) else result

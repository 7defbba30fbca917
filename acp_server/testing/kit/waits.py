"""What a step may wait for: an update, a file, the end of a turn in the store."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import anyio

from acp_server.testing.kit import steps
from acp_server.testing.kit.run import ScenarioRun, StepFailed

_POLL_S = 0.02  # between two looks at what another process writes: files wake nobody


async def wait_for_update(
    run: ScenarioRun,
    variant: str,
    *,
    text: str | None = None,
    status: str | None = None,
    title: str | None = None,
    count: int = 1,
) -> None:
    """Wait for the n-th update that fits, counted from the last prompt or load."""
    wanted = {"sessionUpdate": variant, "status": status, "title": title}
    left = count

    def fits(update: Mapping[str, Any]) -> bool:
        nonlocal left
        hit = all(update.get(key) == value for key, value in wanted.items() if value is not None)
        left -= hit and (text is None or text in _text_of(update))
        return left <= 0

    await run.client.wait_for_update(fits, after=run.seen)


async def wait_for_file(run: ScenarioRun, step: steps.FileWait) -> None:
    """Wait for a file below the working directory."""
    path = anyio.Path(path_of(run, step.path))
    await poll(path.exists, f"the file {step.path!r}", step.timeout_ms)


async def wait_for_turn_end(run: ScenarioRun, session_id: str, timeout_ms: int) -> None:
    """Wait until the last boundary of a stored log is a `turn/end`."""

    async def ended() -> bool:
        log = await run.workspace.stored_events(session_id)
        last = None if log is None else log.last_of(("turn/start", "turn/end"))
        return last is not None and last.type == "turn/end"

    await poll(ended, "the stored log to end with a turn/end", timeout_ms)


def path_of(run: ScenarioRun, name: str) -> Path:
    """Return a path that a step names."""
    return run.workspace.cwd / name


async def poll(condition: Callable[[], Awaitable[bool]], what: str, timeout_ms: int) -> None:
    """Look until something condition.

    Raises:
        StepFailed: It did not in time.
    """
    with anyio.move_on_after(timeout_ms / 1000):
        while not await condition():  # noqa: ASYNC110 - what is waited for happens in a file
            await anyio.sleep(_POLL_S)
        return
    message = f"waited {timeout_ms} ms for {what} in vain"
    raise StepFailed(message)


def _text_of(update: Mapping[str, Any]) -> str:
    content = update.get("content")
    return str(content.get("text", "")) if isinstance(content, dict) else ""

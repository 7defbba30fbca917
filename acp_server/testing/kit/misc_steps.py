"""Steps that wait, touch files, send anything at all, and end or start the server."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import anyio
import orjson

from acp_server.testing.client import AcpClient
from acp_server.testing.kit import steps
from acp_server.testing.kit.run import ScenarioRun, StepFailed
from acp_server.testing.kit.waits import (
    path_of,
    wait_for_file,
    wait_for_turn_end,
    wait_for_update,
)

_EXIT_CODES = MappingProxyType({"kill": -9, "terminate": 0, "interrupt": 130})


async def update(run: ScenarioRun, step: steps.WaitForUpdate) -> None:
    """Wait for an update."""
    await wait_for_update(
        run,
        step.update,
        text=step.text,
        status=step.status,
        title=step.title,
        count=step.count,
    )


async def agent_request(run: ScenarioRun, step: steps.WaitForRequest) -> None:
    """Wait for a request of the agent."""
    seen = 0

    def fits(frame: Mapping[str, Any]) -> bool:
        nonlocal seen
        seen += frame.get("method") == step.method and "id" in frame
        return seen >= step.count

    await run.client.wait_for_frame(fits)


async def turn_end(run: ScenarioRun, step: steps.WaitForTurnEnd) -> None:
    """Wait for the end of a turn in the store."""
    await wait_for_turn_end(run, await run.session(step.session), step.timeout_ms)


async def write_file(run: ScenarioRun, step: steps.WriteFile) -> None:
    """Write a file."""
    path = anyio.Path(path_of(run, step.path))
    await path.parent.mkdir(parents=True, exist_ok=True)
    await path.write_text(run.text(step.text), encoding="utf-8")


async def expect_file(run: ScenarioRun, step: steps.ExpectFile) -> None:
    """Compare a file."""
    path = anyio.Path(path_of(run, step.path))
    found = (await path.read_bytes()).decode(errors="replace") if await path.exists() else None
    expected = None if step.text is None else run.text(step.text)
    if found != expected:
        message = f"the file {step.path!r} has the text {found!r}, not {expected!r}"
        raise StepFailed(message)


async def restart(run: ScenarioRun, step: steps.Restart) -> None:
    """End the server and start one."""
    await run.end()
    await run.start(step.agent)


async def stop(run: ScenarioRun, step: steps.Stop) -> None:
    """End the server."""
    client = run.client
    if step.op == "closeInput":
        await run.end()
        return
    if step.op == "kill":
        client.kill()
        run.views.cut()
    elif step.op == "terminate":
        client.terminate()
    else:
        client.interrupt()
    code = await client.wait()
    await run.end()
    run.recording.killed = step.op == "kill"
    if code != _EXIT_CODES[step.op]:
        message = f"the server exited with code {code}, not {_EXIT_CODES[step.op]}"
        raise StepFailed(message)


async def request(run: ScenarioRun, step: steps.Request) -> None:
    """Send any request."""
    await run.outcome(step, run.client.request(step.method, run.fill(step.params)))


async def notify(run: ScenarioRun, step: steps.Notify) -> None:
    """Send any notification."""
    await run.client.notify(step.method, run.fill(step.params))


async def send_line(run: ScenarioRun, step: steps.SendLine) -> None:
    """Send any line."""
    client = run.client
    wanted = _responses(client) + step.answers
    await client.send_raw(run.text(step.line).encode() + b"\n")
    if step.answers:
        await client.wait_for_frame(lambda _frame: _responses(client) >= wanted)


MISC_STEPS: Mapping[type, Any] = MappingProxyType(
    {
        steps.WaitForUpdate: update,
        steps.WaitForRequest: agent_request,
        steps.WaitForTurnEnd: turn_end,
        steps.WaitForFile: wait_for_file,
        steps.WriteFile: write_file,
        steps.ExpectFile: expect_file,
        steps.Restart: restart,
        steps.Stop: stop,
        steps.Request: request,
        steps.Notify: notify,
        steps.SendLine: send_line,
    }
)


def _responses(client: AcpClient) -> int:
    lines = (frame.data for frame in client.frames if frame.sender == "agent")
    return sum("method" not in orjson.loads(line) for line in lines)

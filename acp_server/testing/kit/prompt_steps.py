"""Steps that send prompts, wait for the ends of their turns, and cancel them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from acp_server.testing.client import PromptHandle
from acp_server.testing.kit import steps
from acp_server.testing.kit.launchers import WAIT_S
from acp_server.testing.kit.run import ScenarioRun, StepFailed
from acp_server.testing.kit.waits import wait_for_file, wait_for_update


async def prompt(run: ScenarioRun, step: steps.Prompt) -> None:
    """Send a prompt and wait."""
    handle = await _send(run, step, awaited=True)
    await run.outcome(step, handle.result(WAIT_S))


async def prompt_and_wait_for_agent_message(
    run: ScenarioRun, step: steps.PromptAndWaitForAgentMessage
) -> None:
    """Send a prompt, wait, then wait for a message."""
    handle = await _send(run, step, awaited=True)
    await handle.result(WAIT_S)
    await wait_for_update(run, "agent_message_chunk", text=step.wait_for_text)


async def prompt_and_cancel(run: ScenarioRun, step: steps.PromptAndCancel) -> None:
    """Send a prompt, cancel it, wait."""
    handle = await _send(run, step, awaited=True)
    await wait_for_update(run, step.after_update)
    if step.wait_for_file is not None:
        await wait_for_file(run, step.wait_for_file)
    if step.wait_for_tool_call_update is not None:
        wanted = step.wait_for_tool_call_update
        await run.client.wait_for_update(
            lambda update: update.get("toolCallId") == wanted, after=run.seen
        )
    await run.client.cancel(handle.session_id)
    await handle.result(WAIT_S)


async def start_prompt(run: ScenarioRun, step: steps.StartPrompt) -> None:
    """Send a prompt."""
    await _send(run, step, awaited=False)


async def await_prompt(run: ScenarioRun, step: steps.AwaitPrompt) -> None:
    """Wait for the end of a turn."""
    positions = range(len(run.prompts))
    if step.prompt is None:
        position = next((at for at in positions if at not in run.awaited), -1)
    else:
        position = step.prompt - 1
    if position not in positions:
        message = "there is no such prompt to wait for"
        raise StepFailed(message)
    run.awaited.add(position)
    await run.outcome(step, run.prompts[position].result(WAIT_S))


async def cancel(run: ScenarioRun, step: steps.Cancel) -> None:
    """Send `session/cancel`."""
    await run.client.cancel(await run.session(step.session))


async def cancel_request(run: ScenarioRun, step: steps.CancelRequest) -> None:
    """Send `$/cancel_request`."""
    number = len(run.prompts) if step.prompt is None else step.prompt
    if not 0 < number <= len(run.prompts):
        message = "there is no such prompt to cancel"
        raise StepFailed(message)
    await run.client.cancel_request(run.prompts[number - 1].pending.request_id)


PROMPT_STEPS: Mapping[type, Any] = MappingProxyType(
    {
        steps.Prompt: prompt,
        steps.PromptAndWaitForAgentMessage: prompt_and_wait_for_agent_message,
        steps.PromptAndCancel: prompt_and_cancel,
        steps.StartPrompt: start_prompt,
        steps.AwaitPrompt: await_prompt,
        steps.Cancel: cancel,
        steps.CancelRequest: cancel_request,
    }
)


async def _send(run: ScenarioRun, step: steps.PromptRequest, *, awaited: bool) -> PromptHandle:
    session_id = await run.session(step.session)
    content = run.fill(step.blocks) if step.text is None else run.text(step.text)
    run.seen = len(run.client.updates)
    handle = await run.client.start_prompt(session_id, content, checked=not step.must_fail)
    if awaited:
        run.awaited.add(len(run.prompts))
    run.prompts.append(handle)
    return handle

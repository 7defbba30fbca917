"""Steps that send prompts, wait for the ends of their turns, and cancel them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from acp_server.testing.client import PromptHandle
from acp_server.testing.kit import steps
from acp_server.testing.kit.launchers import WAIT_S
from acp_server.testing.kit.run import StepFailed, Talk
from acp_server.testing.kit.waits import wait_for_file, wait_for_update


async def prompt(talk: Talk, step: steps.Prompt) -> None:
    """Send a prompt and wait."""
    handle = await _send(talk, step, awaited=True)
    await talk.ask(step, handle.result(WAIT_S))


async def prompt_and_wait_for_agent_message(
    talk: Talk, step: steps.PromptAndWaitForAgentMessage
) -> None:
    """Send a prompt, wait, then wait for a message."""
    handle = await _send(talk, step, awaited=True)
    await handle.result(WAIT_S)
    await wait_for_update(talk, "agent_message_chunk", text=step.wait_for_text)


async def prompt_and_cancel(talk: Talk, step: steps.PromptAndCancel) -> None:
    """Send a prompt, cancel it, wait."""
    handle = await _send(talk, step, awaited=True)
    await wait_for_update(talk, step.after_update)
    if step.wait_for_file is not None:
        await wait_for_file(talk, step.wait_for_file)
    if step.wait_for_tool_call_update is not None:
        wanted = step.wait_for_tool_call_update
        await talk.client.wait_for_update(
            lambda update: update.get("toolCallId") == wanted, after=talk.seen
        )
    await talk.client.cancel(handle.session_id)
    await handle.result(WAIT_S)


async def start_prompt(talk: Talk, step: steps.StartPrompt) -> None:
    """Send a prompt."""
    await _send(talk, step, awaited=False)


async def await_prompt(talk: Talk, step: steps.AwaitPrompt) -> None:
    """Wait for the end of a turn."""
    positions = range(len(talk.prompts))
    if step.prompt is None:
        position = next((at for at in positions if at not in talk.awaited), -1)
    else:
        position = step.prompt - 1
    if position not in positions:
        message = "there is no such prompt to wait for"
        raise StepFailed(message)
    talk.awaited.add(position)
    await talk.ask(step, talk.prompts[position].result(WAIT_S))


async def cancel(talk: Talk, step: steps.Cancel) -> None:
    """Send `session/cancel`."""
    await talk.client.cancel(await talk.session(step.session))


async def cancel_request(talk: Talk, step: steps.CancelRequest) -> None:
    """Send `$/cancel_request`."""
    number = len(talk.prompts) if step.prompt is None else step.prompt
    if not 0 < number <= len(talk.prompts):
        message = "there is no such prompt to cancel"
        raise StepFailed(message)
    await talk.client.cancel_request(talk.prompts[number - 1].pending.request_id)


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


async def _send(talk: Talk, step: steps.Asking, *, awaited: bool) -> PromptHandle:
    session_id = await talk.session(step.session)
    content = talk.fill(step.blocks) if step.text is None else talk.text(step.text)
    talk.seen = len(talk.client.updates)
    handle = await talk.client.start_prompt(session_id, content, checked=not step.must_fail)
    if awaited:
        talk.awaited.add(len(talk.prompts))
    talk.prompts.append(handle)
    return handle

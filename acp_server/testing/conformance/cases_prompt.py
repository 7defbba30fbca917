"""Cases of turns: prompts, their updates, cancels."""

import anyio

from acp_server.testing.conformance.case import Case
from acp_server.testing.conformance.harness import (
    LONG_PROMPT,
    SHORT_PROMPT,
    STOP_REASONS,
    Harness,
    Probe,
)
from acp_server.testing.conformance.outcome import CaseSkipped, require, skip_unless
from acp_server.testing.errors import AcpError

_QUIET_S = 1.0  # how long nothing may come behind a response


async def _single_turn(harness: Harness) -> None:
    async with harness.started() as probe:
        session_id = await probe.new_session()
        result = await probe.prompt(session_id)
        require(result.updates, "no update of the session came before the response")


async def _multi_turn(harness: Harness) -> None:
    async with harness.started() as probe:
        session_id = await probe.new_session()
        await probe.prompt(session_id)
        await probe.prompt(session_id)


async def _two_sessions(harness: Harness) -> None:
    async with harness.started() as probe:
        one, other = await probe.new_session(), await probe.new_session()
        require(one != other, "two sessions have the same id")
        before = len(probe.client.updates)
        await probe.prompt(one)
        turn = ("agent_message_chunk", "agent_thought_chunk", "tool_call", "plan")
        stray = [
            seen.update["sessionUpdate"]
            for seen in probe.client.updates[before:]
            if seen.session_id != one and seen.update["sessionUpdate"] in turn
        ]
        require(not stray, f"updates of the turn came under another session: {stray}")


async def _structured_blocks(harness: Harness) -> None:
    async with harness.started() as probe:
        session_id = await probe.new_session()
        link = {"type": "resource_link", "name": "a.txt", "uri": f"file://{probe.cwd}/a.txt"}
        await probe.prompt(session_id, [{"type": "text", "text": SHORT_PROMPT}, link])


async def _empty_prompt(harness: Harness) -> None:
    async with harness.started() as probe:
        session_id = await probe.new_session()
        params = {"sessionId": session_id, "prompt": []}
        try:
            result = await probe.client.request("session/prompt", params, probe.timeout_s)
        except AcpError:
            return
        require(result.get("stopReason") in STOP_REASONS, f"the result is {result!r:.200}")


async def _unrecognized(harness: Harness) -> None:
    async with harness.started() as probe:
        await probe.prompt(await probe.new_session(), "xyzzy 12345 qqq. " + SHORT_PROMPT)


async def _quiet_afterwards(harness: Harness) -> None:
    async with harness.started() as probe:
        session_id = await probe.new_session()
        before = len(probe.client.checker.violations)
        await probe.prompt(session_id)
        await anyio.sleep(_QUIET_S)
        late = [v for v in probe.client.checker.violations[before:] if v.rule == "idle"]
        require(not late, f"behind the response: {late[0].detail if late else ''}")


async def _cancel_in_flight(harness: Harness) -> None:
    async with harness.started() as probe:
        session_id = await probe.new_session()
        await _cancelled(probe, session_id)


async def _cancel_idle(harness: Harness) -> None:
    async with harness.started() as probe:
        session_id = await probe.new_session()
        await probe.client.cancel(session_id)
        result = await probe.prompt(session_id)
        require(result.stop_reason != "cancelled", "it has cancelled the prompt behind it")


async def _cancel_followup(harness: Harness) -> None:
    async with harness.started() as probe:
        session_id = await probe.new_session()
        await _cancelled(probe, session_id)
        result = await probe.prompt(session_id)
        require(result.stop_reason != "cancelled", "the prompt behind a cancel is cancelled, too")


async def _cancelled(probe: Probe, session_id: str) -> None:
    """Cancel a turn that runs.

    Raises:
        CaseSkipped: It had ended before the cancel came.
    """
    handle = await probe.client.start_prompt(session_id, LONG_PROMPT)
    with anyio.move_on_after(_QUIET_S):
        await probe.client.wait_for_update(
            lambda update: update["sessionUpdate"].endswith("_chunk"),
            after=len(probe.client.updates),
        )
    skip_unless(not handle.done, "the turn ended before it could be cancelled")
    await probe.client.cancel(session_id)
    result = await handle.result(probe.timeout_s)
    if result.stop_reason == "end_turn":
        reason = "the turn ended end_turn, perhaps before the cancel came"
        raise CaseSkipped(reason)
    require(result.stop_reason == "cancelled", f"the stop reason is {result.stop_reason!r}")


PROMPT_CASES = (
    Case(
        "prompt.single_turn",
        "a prompt is answered with a legal stop reason, behind at least one update",
        "prompt-turn",
        _single_turn,
    ),
    Case("prompt.multi_turn", "two prompts in a row are answered", "prompt-turn", _multi_turn),
    Case(
        "prompt.structured_blocks",
        "text and resource links are always accepted",
        "content",
        _structured_blocks,
    ),
    Case("prompt.echo_empty", "a prompt without content is answered", "prompt-turn", _empty_prompt),
    Case(
        "prompt.unrecognized",
        "a prompt that means nothing has a normal turn",
        "prompt-turn",
        _unrecognized,
    ),
    Case(
        "prompt.background_completion",
        "nothing of a turn comes behind its response",
        "prompt-turn#the-prompt-turn-lifecycle",
        _quiet_afterwards,
    ),
    Case(
        "update.session",
        "the updates of a turn carry the id of its session",
        "prompt-turn",
        _two_sessions,
    ),
    Case(
        "cancel.in_flight",
        "a cancel during a turn is answered with cancelled",
        "prompt-turn#cancellation",
        _cancel_in_flight,
    ),
    Case(
        "cancel.idle",
        "a cancel while nothing runs touches nothing",
        "prompt-turn#cancellation",
        _cancel_idle,
    ),
    Case(
        "cancel.followup_prompt",
        "the prompt behind a cancel has a turn of its own",
        "prompt-turn#cancellation",
        _cancel_followup,
    ),
)

"""Cases of turns: prompts, updates, cancels, permissions."""

from collections.abc import Callable, Mapping
from typing import Any

import anyio

from acp_server.testing.conformance.case import Case, CaseSkipped, require, skip_unless
from acp_server.testing.conformance.harness import (
    LONG_PROMPT,
    SHORT_PROMPT,
    STOP_REASONS,
    Harness,
    Probe,
)
from acp_server.testing.errors import AcpError, FrameViolation

_QUIET_S = 1.0  # how long nothing may come behind a response
_FILE = "acp-conformance.txt"
_WRITE = f"Write exactly the word hello into the file {_FILE} in the working directory. Only that."
_READ = f"Read the file {_FILE} in the working directory and repeat its content."
# What the specification asks of all frames; the checker's other rules are house rules.
_SCHEMA_RULES = ("envelope", "response", "shape", "method")
_ORDER_RULES = ("unknown-session", "idle", "tool-call")


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


async def _schema(harness: Harness) -> None:
    _judge((await _seen(harness)), _SCHEMA_RULES)


async def _json(harness: Harness) -> None:
    _judge((await _seen(harness)), ("json",))


async def _order(harness: Harness) -> None:
    _judge((await _seen(harness)), _ORDER_RULES)


async def _gate(harness: Harness) -> None:
    _judge((await _seen(harness)), ("gate",))


async def _seen(harness: Harness) -> list[FrameViolation]:
    tour = await harness.tour()
    skip_unless(tour.cut_short is None or tour.violations, f"cut short: {tour.cut_short}")
    return tour.violations


def _judge(violations: list[FrameViolation], rules: tuple[str, ...]) -> None:
    broken = [violation for violation in violations if violation.rule in rules]
    more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
    require(not broken, f"{broken[0] if broken else ''}{more}")


async def _write_approved(harness: Harness) -> None:
    async with harness.started(permissions=["allow_once"] * 9) as probe:
        await _asked(probe, _WRITE)
        _require_final(probe, "completed")
        skip_unless(_FILE in str(probe.asked), "the agent asked for something else")
        require(await _text(probe) is not None, f"it was allowed, and {_FILE} is not there")


async def _write_denied(harness: Harness) -> None:
    async with harness.started(permissions=["reject_once"] * 9) as probe:
        await _asked(probe, _WRITE)
        require(await _text(probe) is None, f"it was refused, and {_FILE} is there")


async def _read_approved(harness: Harness) -> None:
    async with harness.started(permissions=["allow_once"] * 9) as probe:
        await anyio.Path(probe.cwd, _FILE).write_text("hello", encoding="utf-8")
        await _asked(probe, _READ)
        _require_final(probe, "completed")


async def _read_denied(harness: Harness) -> None:
    async with harness.started(permissions=["reject_once"] * 9) as probe:
        await anyio.Path(probe.cwd, _FILE).write_text("hello", encoding="utf-8")
        await _asked(probe, _READ)
        _require_final(probe, "failed")


async def _permission_shape(harness: Harness) -> None:
    async with harness.started(permissions=["reject_once"] * 9) as probe:
        await _asked(probe, _WRITE)
        options = probe.asked[0]["options"]
        ids = [option["optionId"] for option in options]
        require(len(set(ids)) == len(ids) > 0, f"the option ids are {ids}")
        kinds = {"allow_once", "allow_always", "reject_once", "reject_always"}
        found = {option["kind"] for option in options}
        require(found <= kinds, f"the option kinds are {sorted(found)}")


async def _asked(probe: Probe, prompt: str) -> None:
    """Send a prompt that may make the agent ask.

    Raises:
        CaseSkipped: It did not ask.
    """
    await probe.prompt(await probe.new_session(), prompt)
    skip_unless(probe.asked, "the agent did not ask for a permission")


def _require_final(probe: Probe, status: str) -> None:
    session_id = probe.asked[0]["sessionId"]
    call_id = probe.asked[0]["toolCall"]["toolCallId"]
    found: Mapping[str, str] = {
        card.call_id: card.status for card in probe.client.transcript_of(session_id).cards
    }
    require(found.get(call_id) == status, f"the call ends {found.get(call_id)!r}, not {status!r}")


async def _text(probe: Probe) -> str | None:
    path = anyio.Path(probe.cwd, _FILE)
    return await path.read_text(encoding="utf-8") if await path.exists() else None


_Row = tuple[str, str, str, Callable[[Harness], Any]]
_ROWS: tuple[_Row, ...] = (
    (
        "prompt.single_turn",
        "a prompt is answered with a legal stop reason, behind at least one update",
        "prompt-turn",
        _single_turn,
    ),
    ("prompt.multi_turn", "two prompts in a row are answered", "prompt-turn", _multi_turn),
    (
        "prompt.structured_blocks",
        "text and resource links are always accepted",
        "content",
        _structured_blocks,
    ),
    ("prompt.echo_empty", "a prompt without content is answered", "prompt-turn", _empty_prompt),
    (
        "prompt.unrecognized",
        "a prompt that means nothing has a normal turn",
        "prompt-turn",
        _unrecognized,
    ),
    (
        "prompt.background_completion",
        "nothing of a turn comes behind its response",
        "prompt-turn#the-prompt-turn-lifecycle",
        _quiet_afterwards,
    ),
    (
        "update.termination",
        "updates belong to an open session and to a turn or load in flight",
        "prompt-turn",
        _order,
    ),
    (
        "update.session",
        "the updates of a turn carry the id of its session",
        "prompt-turn",
        _two_sessions,
    ),
    ("frames.json", "every line on stdout is one JSON object", "transports", _json),
    ("frames.schema", "every frame is valid by the schema", "schema", _schema),
    (
        "frames.capabilities",
        "the agent calls no method that the client did not offer",
        "initialization#client-capabilities",
        _gate,
    ),
    (
        "cancel.in_flight",
        "a cancel during a turn is answered with cancelled",
        "prompt-turn#cancellation",
        _cancel_in_flight,
    ),
    (
        "cancel.idle",
        "a cancel while nothing runs touches nothing",
        "prompt-turn#cancellation",
        _cancel_idle,
    ),
    (
        "cancel.followup_prompt",
        "the prompt behind a cancel has a turn of its own",
        "prompt-turn#cancellation",
        _cancel_followup,
    ),
    (
        "permissions.options",
        "a permission request has distinct options of the four kinds",
        "tool-calls#requesting-permission",
        _permission_shape,
    ),
    (
        "permissions.write.approved",
        "a write that is allowed is completed",
        "tool-calls#requesting-permission",
        _write_approved,
    ),
    (
        "errors.permission_denied.write",
        "a write that is refused leaves the file alone",
        "tool-calls#requesting-permission",
        _write_denied,
    ),
    (
        "permissions.read.approved",
        "a read that is allowed is completed",
        "tool-calls#requesting-permission",
        _read_approved,
    ),
    (
        "errors.permission_denied",
        "a read that is refused is a failed call",
        "tool-calls#requesting-permission",
        _read_denied,
    ),
)
PROMPT_CASES = tuple(Case(*row) for row in _ROWS)

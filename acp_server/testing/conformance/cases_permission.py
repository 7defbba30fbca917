"""Cases of permission requests: what they offer, and what an answer changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from acp_server.testing.conformance.case import Case
from acp_server.testing.conformance.outcome import require, skip_unless

if TYPE_CHECKING:
    from collections.abc import Mapping

    from acp_server.testing.conformance.harness import Harness, Probe

_FILE = "acp-conformance.txt"
_WRITE = f"Write exactly the word hello into the file {_FILE} in the working directory. Only that."
_READ = f"Read the file {_FILE} in the working directory and repeat its content."


async def _write_approved(harness: Harness) -> None:
    async with harness.started(permissions=["allow_once"] * 9) as probe:
        await _prompt_for_permission(probe, _WRITE)
        _require_final(probe, "completed")
        skip_unless(_FILE in str(probe.permission_requests), "the agent asked for something else")
        require(await _text(probe) is not None, f"it was allowed, and {_FILE} is not there")


async def _write_denied(harness: Harness) -> None:
    async with harness.started(permissions=["reject_once"] * 9) as probe:
        await _prompt_for_permission(probe, _WRITE)
        require(await _text(probe) is None, f"it was refused, and {_FILE} is there")


async def _read_approved(harness: Harness) -> None:
    async with harness.started(permissions=["allow_once"] * 9) as probe:
        await anyio.Path(probe.cwd, _FILE).write_text("hello", encoding="utf-8")
        await _prompt_for_permission(probe, _READ)
        _require_final(probe, "completed")


async def _read_denied(harness: Harness) -> None:
    async with harness.started(permissions=["reject_once"] * 9) as probe:
        await anyio.Path(probe.cwd, _FILE).write_text("hello", encoding="utf-8")
        await _prompt_for_permission(probe, _READ)
        _require_final(probe, "failed")


async def _permission_shape(harness: Harness) -> None:
    async with harness.started(permissions=["reject_once"] * 9) as probe:
        await _prompt_for_permission(probe, _WRITE)
        options = probe.permission_requests[0]["options"]
        ids = [option["optionId"] for option in options]
        require(len(set(ids)) == len(ids) > 0, f"the option ids are {ids}")
        kinds = {"allow_once", "allow_always", "reject_once", "reject_always"}
        found = {option["kind"] for option in options}
        require(found <= kinds, f"the option kinds are {sorted(found)}")


async def _prompt_for_permission(probe: Probe, prompt: str) -> None:
    """Send a prompt that may make the agent ask.

    Raises:
        CaseSkipped: It did not ask.
    """
    await probe.prompt(await probe.new_session(), prompt)
    skip_unless(probe.permission_requests, "the agent did not ask for a permission")


def _require_final(probe: Probe, status: str) -> None:
    session_id = probe.permission_requests[0]["sessionId"]
    call_id = probe.permission_requests[0]["toolCall"]["toolCallId"]
    found: Mapping[str, str] = {
        card.call_id: card.status for card in probe.client.transcript_of(session_id).cards
    }
    require(found.get(call_id) == status, f"the call ends {found.get(call_id)!r}, not {status!r}")


async def _text(probe: Probe) -> str | None:
    path = anyio.Path(probe.cwd, _FILE)
    return await path.read_text(encoding="utf-8") if await path.exists() else None


PERMISSION_CASES = (
    Case(
        "permissions.options",
        "a permission request has distinct options of the four kinds",
        "tool-calls#requesting-permission",
        _permission_shape,
    ),
    Case(
        "permissions.write.approved",
        "a write that is allowed is completed",
        "tool-calls#requesting-permission",
        _write_approved,
    ),
    Case(
        "errors.permission_denied.write",
        "a write that is refused leaves the file alone",
        "tool-calls#requesting-permission",
        _write_denied,
    ),
    Case(
        "permissions.read.approved",
        "a read that is allowed is completed",
        "tool-calls#requesting-permission",
        _read_approved,
    ),
    Case(
        "errors.permission_denied",
        "a read that is refused is a failed call",
        "tool-calls#requesting-permission",
        _read_denied,
    ),
)

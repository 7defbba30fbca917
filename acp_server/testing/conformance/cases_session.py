"""Cases of sessions that outlive a connection, and of their settings."""

from collections.abc import Mapping
from typing import Any

from acp_server.testing.conformance.case import Case
from acp_server.testing.conformance.harness import NO_SESSION, Harness, Probe
from acp_server.testing.conformance.outcome import require, skip_unless

_HISTORY = ("user_message_chunk", "agent_message_chunk", "agent_thought_chunk", "tool_call")


async def _new_basic(harness: Harness) -> None:
    async with harness.started() as probe:
        session_id = (await probe.opened())["sessionId"]
        require(session_id and isinstance(session_id, str), f"the sessionId is {session_id!r}")


async def _load_replays(harness: Harness) -> None:
    async with harness.started() as first:
        skip_unless(first.loads, "the agent does not advertise loadSession")
        session_id = await first.new_session()
        said = (await first.prompt(session_id)).text
        cwd = first.cwd
        first.client.terminate()
        await first.client.wait()
        # The directory must be there as long as the session is loaded in it.
        async with harness.started(cwd=cwd) as probe:
            await probe.client.load_session(session_id, cwd)
            replayed = probe.client.transcript_of(session_id)
            require(replayed.user_text, "the user's prompt is not replayed before the response")
            require(said.strip() in replayed.text, f"{said!r:.80} is not replayed")


async def _load_unknown(harness: Harness) -> None:
    async with harness.started() as probe:
        skip_unless(probe.loads, "the agent does not advertise loadSession")
        await probe.refused("session/load", _opening(probe, NO_SESSION))


async def _load_continues(harness: Harness) -> None:
    async with harness.started() as probe:
        skip_unless(probe.loads, "the agent does not advertise loadSession")
        session_id = await probe.new_session()
        await probe.prompt(session_id)
        await probe.client.load_session(session_id, probe.cwd)
        await probe.prompt(session_id)


async def _list(harness: Harness) -> None:
    async with harness.started() as probe:
        skip_unless(probe.serves("list"), "the agent does not advertise session/list")
        session_id = await probe.new_session()
        await probe.prompt(session_id)
        rows = (await probe.client.list_sessions(probe.cwd))["sessions"]
        found = {row["sessionId"]: row for row in rows}
        require(session_id in found, f"the session is not among the {len(rows)} that are listed")
        cwd = found[session_id]["cwd"]
        require(cwd == str(probe.cwd), f"its cwd is {cwd!r}, not {str(probe.cwd)!r}")


async def _list_bad_cursor(harness: Harness) -> None:
    async with harness.started() as probe:
        skip_unless(probe.serves("list"), "the agent does not advertise session/list")
        await probe.refused("session/list", {"cursor": "acp conformance: no cursor of yours"})


async def _resume(harness: Harness) -> None:
    async with harness.started() as probe:
        skip_unless(probe.serves("resume"), "the agent does not advertise session/resume")
        session_id = await probe.new_session()
        await probe.prompt(session_id)
        before = len(probe.client.updates)
        await probe.client.resume_session(session_id, probe.cwd)
        shown = [seen.update["sessionUpdate"] for seen in probe.client.updates[before:]]
        history = [variant for variant in shown if variant in _HISTORY]
        require(not history, f"it replays {history}, which is what session/load is for")
        await probe.prompt(session_id)


async def _resume_unknown(harness: Harness) -> None:
    async with harness.started() as probe:
        skip_unless(probe.serves("resume"), "the agent does not advertise session/resume")
        await probe.refused("session/resume", _opening(probe, NO_SESSION))


async def _close(harness: Harness) -> None:
    async with harness.started() as probe:
        skip_unless(probe.serves("close"), "the agent does not advertise session/close")
        session_id = await probe.new_session()
        await probe.client.close_session(session_id)
        prompt = [{"type": "text", "text": "hello"}]
        await probe.refused("session/prompt", {"sessionId": session_id, "prompt": prompt})


async def _delete(harness: Harness) -> None:
    async with harness.started() as probe:
        skip_unless(probe.serves("delete"), "the agent does not advertise session/delete")
        skip_unless(probe.serves("list"), "without session/list nothing can be told")
        session_id = await probe.new_session()
        await probe.prompt(session_id)
        await probe.client.delete_session(session_id)
        rows = (await probe.client.list_sessions(probe.cwd))["sessions"]
        require(session_id not in [row["sessionId"] for row in rows], "the session is listed still")


async def _set_mode(harness: Harness) -> None:
    async with harness.started() as probe:
        session_id, modes = await _modes(probe)
        others = [
            mode["id"] for mode in modes["availableModes"] if mode["id"] != modes["currentModeId"]
        ]
        skip_unless(others, "there is one mode only")
        await probe.client.set_mode(session_id, others[0])


async def _set_unknown_mode(harness: Harness) -> None:
    async with harness.started() as probe:
        session_id, _ = await _modes(probe)
        params = {"sessionId": session_id, "modeId": "acp-conformance-no-such-mode"}
        await probe.refused("session/set_mode", params)


async def _set_option(harness: Harness) -> None:
    async with harness.started() as probe:
        session_id, options = await _options(probe)
        option = next((one for one in options if one.get("type") == "select"), None)
        skip_unless(option, "there is no option to select")
        assert option is not None  # noqa: S101 - skipped above
        params = {
            "sessionId": session_id,
            "configId": option["id"],
            "value": option["currentValue"],
        }
        result = await probe.client.request("session/set_config_option", params)
        found = {one["id"] for one in result["configOptions"]}
        missing = {one["id"] for one in options} - found
        require(not missing, f"the answer lacks the options {sorted(missing)}")


async def _set_unknown_option(harness: Harness) -> None:
    async with harness.started() as probe:
        session_id, _ = await _options(probe)
        params = {"sessionId": session_id, "configId": "acp-conformance-no-such", "value": "x"}
        await probe.refused("session/set_config_option", params)


async def _modes(probe: Probe) -> tuple[str, Mapping[str, Any]]:
    opened = await probe.opened()
    skip_unless(opened.get("modes"), "the agent has no modes")
    return opened["sessionId"], opened["modes"]


async def _options(probe: Probe) -> tuple[str, list[Mapping[str, Any]]]:
    opened = await probe.opened()
    skip_unless(opened.get("configOptions"), "the agent has no config options")
    return opened["sessionId"], opened["configOptions"]


def _opening(probe: Probe, session_id: str) -> Mapping[str, Any]:
    return {"sessionId": session_id, "cwd": str(probe.cwd), "mcpServers": []}


SESSION_CASES = (
    Case(
        "session.new.basic",
        "session/new gives a session id",
        "session-setup#creating-a-session",
        _new_basic,
    ),
    Case(
        "session.load.replays",
        "a load in a new process replays prompt and answer before its response",
        "session-setup#loading-sessions",
        _load_replays,
    ),
    Case(
        "session.load.unknown",
        "a load of an unknown session is an error",
        "session-setup#loading-sessions",
        _load_unknown,
    ),
    Case(
        "session.load.continues",
        "a loaded session takes the next prompt",
        "session-setup#loading-sessions",
        _load_continues,
    ),
    Case(
        "session.list.basic", "a session with a turn is listed with its cwd", "session-list", _list
    ),
    Case(
        "session.list.bad_cursor",
        "a cursor that the agent did not give is an error",
        "session-list",
        _list_bad_cursor,
    ),
    Case(
        "session.resume.silent",
        "a resume replays nothing, and the session goes on",
        "session-setup#resuming-sessions",
        _resume,
    ),
    Case(
        "session.resume.unknown",
        "a resume of an unknown session is an error",
        "session-setup#resuming-sessions",
        _resume_unknown,
    ),
    Case(
        "session.close.basic",
        "a closed session takes no prompt",
        "session-setup#closing-active-sessions",
        _close,
    ),
    Case("session.delete.basic", "a deleted session is not listed", "session-delete", _delete),
    Case("session.set_mode.basic", "an offered mode can be set", "session-modes", _set_mode),
    Case(
        "session.set_mode.unknown",
        "a mode that is not offered is refused",
        "session-modes",
        _set_unknown_mode,
    ),
    Case(
        "session.set_config_option.basic",
        "the answer holds the complete options",
        "session-config-options",
        _set_option,
    ),
    Case(
        "session.set_config_option.unknown",
        "an option that is not offered is refused",
        "session-config-options",
        _set_unknown_option,
    ),
)

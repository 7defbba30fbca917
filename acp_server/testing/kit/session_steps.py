"""Steps that open sessions, list, close and set them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from acp_server.testing.client import FILE_CAPABILITIES
from acp_server.testing.kit import steps
from acp_server.testing.kit.run import ScenarioRun


async def initialize(run: ScenarioRun, step: steps.Initialize) -> None:
    """Send `initialize`."""
    capabilities = dict(step.capabilities)
    if step.fs:
        capabilities = {**FILE_CAPABILITIES, **capabilities}
    if step.terminal_output:
        capabilities["_meta"] = {"terminal_output": True, **capabilities.get("_meta", {})}
    if not step.must_fail:
        run.recording.capabilities = capabilities
    if step.protocol_version == 1:
        await run.outcome(step, run.client.initialize(capabilities))
        return
    params = {"protocolVersion": step.protocol_version, "clientCapabilities": capabilities}
    await run.outcome(step, run.client.request("initialize", params))


async def authenticate(run: ScenarioRun, step: steps.Authenticate) -> None:
    """Send `authenticate`."""
    await run.outcome(step, run.client.authenticate(step.method_id))


async def new_session(run: ScenarioRun, step: steps.NewSession) -> None:
    """Send `session/new`."""
    opening = run.client.new_session(run.text(step.cwd), **_further(run, step))
    session_id = await run.outcome(step, opening)
    if isinstance(session_id, str):
        run.sessions.append(session_id)
        run.views.created(session_id)


async def load_session(run: ScenarioRun, step: steps.LoadSession) -> None:
    """Send `session/load`."""
    session_id = await run.session(step.session)
    run.seen = len(run.client.updates)
    run.views.begin_load(session_id)
    loading = run.client.load_session(session_id, run.text(step.cwd), **_further(run, step))
    result = await run.outcome(step, loading)
    run.views.end_load(session_id, loaded=result is not None)
    _note(run, session_id, result)


async def resume_session(run: ScenarioRun, step: steps.ResumeSession) -> None:
    """Send `session/resume`."""
    session_id = await run.session(step.session)
    resuming = run.client.resume_session(session_id, run.text(step.cwd), **_further(run, step))
    _note(run, session_id, await run.outcome(step, resuming))


async def list_sessions(run: ScenarioRun, step: steps.ListSessions) -> None:
    """Send `session/list`."""
    cwd = None if step.cwd is None else run.text(step.cwd)
    cursor = None if step.cursor is None else step.cursor.replace("{{cursor}}", run.cursor)
    page = await run.outcome(step, run.client.list_sessions(cwd, cursor))
    if page is not None:
        run.cursor = page.get("nextCursor", "")


async def close_session(run: ScenarioRun, step: steps.CloseSession) -> None:
    """Send `session/close`."""
    await run.outcome(step, run.client.close_session(await run.session(step.session)))


async def delete_session(run: ScenarioRun, step: steps.DeleteSession) -> None:
    """Send `session/delete`."""
    await run.outcome(step, run.client.delete_session(await run.session(step.session)))


async def set_mode(run: ScenarioRun, step: steps.SetMode) -> None:
    """Send `session/set_mode`."""
    session_id = await run.session(step.session)
    await run.outcome(step, run.client.set_mode(session_id, step.mode_id))


async def set_config_option(run: ScenarioRun, step: steps.SetConfigOption) -> None:
    """Send `session/set_config_option`."""
    session_id = await run.session(step.session)
    setting = run.client.set_config_option(session_id, step.config_id, step.value)
    await run.outcome(step, setting)


SESSION_STEPS: Mapping[type, Any] = MappingProxyType(
    {
        steps.Initialize: initialize,
        steps.Authenticate: authenticate,
        steps.NewSession: new_session,
        steps.LoadSession: load_session,
        steps.ResumeSession: resume_session,
        steps.ListSessions: list_sessions,
        steps.CloseSession: close_session,
        steps.DeleteSession: delete_session,
        steps.SetMode: set_mode,
        steps.SetConfigOption: set_config_option,
    }
)


def _note(run: ScenarioRun, session_id: str, result: object) -> None:
    if result is not None and session_id not in run.sessions:
        run.sessions.append(session_id)


def _further(run: ScenarioRun, step: steps.Opening) -> dict[str, Any]:
    given = {
        "additionalDirectories": step.additional_directories,
        "mcpServers": step.mcp_servers,
    }
    return {name: run.fill(value) for name, value in given.items() if value is not None}

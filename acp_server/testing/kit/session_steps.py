"""Steps that open sessions, list, close and set them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from acp_server.testing.client import FILE_CAPABILITIES
from acp_server.testing.kit import steps
from acp_server.testing.kit.run import Talk


async def initialize(talk: Talk, step: steps.Initialize) -> None:
    """Send `initialize`."""
    capabilities = dict(step.capabilities)
    if step.fs:
        capabilities = {**FILE_CAPABILITIES, **capabilities}
    if step.terminal_output:
        capabilities["_meta"] = {"terminal_output": True, **capabilities.get("_meta", {})}
    if not step.must_fail:
        talk.recording.capabilities = capabilities
    if step.protocol_version == 1:
        await talk.ask(step, talk.client.initialize(capabilities))
        return
    params = {"protocolVersion": step.protocol_version, "clientCapabilities": capabilities}
    await talk.ask(step, talk.client.request("initialize", params))


async def authenticate(talk: Talk, step: steps.Authenticate) -> None:
    """Send `authenticate`."""
    await talk.ask(step, talk.client.authenticate(step.method_id))


async def new_session(talk: Talk, step: steps.NewSession) -> None:
    """Send `session/new`."""
    opening = talk.client.new_session(talk.text(step.cwd), **_further(talk, step))
    session_id = await talk.ask(step, opening)
    if isinstance(session_id, str):
        talk.sessions.append(session_id)
        talk.views.created(session_id)


async def load_session(talk: Talk, step: steps.LoadSession) -> None:
    """Send `session/load`."""
    session_id = await talk.session(step.session)
    talk.seen = len(talk.client.updates)
    talk.views.begin_load(session_id)
    loading = talk.client.load_session(session_id, talk.text(step.cwd), **_further(talk, step))
    result = await talk.ask(step, loading)
    talk.views.end_load(session_id, loaded=result is not None)
    _note(talk, session_id, result)


async def resume_session(talk: Talk, step: steps.ResumeSession) -> None:
    """Send `session/resume`."""
    session_id = await talk.session(step.session)
    resuming = talk.client.resume_session(session_id, talk.text(step.cwd), **_further(talk, step))
    _note(talk, session_id, await talk.ask(step, resuming))


async def list_sessions(talk: Talk, step: steps.ListSessions) -> None:
    """Send `session/list`."""
    cwd = None if step.cwd is None else talk.text(step.cwd)
    cursor = None if step.cursor is None else step.cursor.replace("{{cursor}}", talk.cursor)
    page = await talk.ask(step, talk.client.list_sessions(cwd, cursor))
    if page is not None:
        talk.cursor = page.get("nextCursor", "")


async def close_session(talk: Talk, step: steps.CloseSession) -> None:
    """Send `session/close`."""
    await talk.ask(step, talk.client.close_session(await talk.session(step.session)))


async def delete_session(talk: Talk, step: steps.DeleteSession) -> None:
    """Send `session/delete`."""
    await talk.ask(step, talk.client.delete_session(await talk.session(step.session)))


async def set_mode(talk: Talk, step: steps.SetMode) -> None:
    """Send `session/set_mode`."""
    session_id = await talk.session(step.session)
    await talk.ask(step, talk.client.set_mode(session_id, step.mode_id))


async def set_config_option(talk: Talk, step: steps.SetConfigOption) -> None:
    """Send `session/set_config_option`."""
    session_id = await talk.session(step.session)
    setting = talk.client.set_config_option(session_id, step.config_id, step.value)
    await talk.ask(step, setting)


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


def _note(talk: Talk, session_id: str, result: object) -> None:
    if result is not None and session_id not in talk.sessions:
        talk.sessions.append(session_id)


def _further(talk: Talk, step: steps.Opening) -> dict[str, Any]:
    given = {
        "additionalDirectories": step.additional_directories,
        "mcpServers": step.mcp_servers,
    }
    return {name: talk.fill(value) for name, value in given.items() if value is not None}

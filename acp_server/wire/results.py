"""Builders of the results of the client's requests. None leaves a key out; empty is `{}`."""

from collections.abc import Iterable, Sequence
from typing import Literal

from acp_server.wire.handshake import PROTOCOL_VERSION
from acp_server.wire.shapes import JsonMapping, JsonObject, StopReason, without_absent

SessionCapability = Literal["list", "delete", "resume", "close", "additionalDirectories"]


def initialize_result(
    *,
    agent_info: JsonMapping,
    agent_capabilities: JsonMapping,
    auth_methods: Iterable[JsonMapping] = (),
) -> JsonObject:
    """Build the result of `initialize`."""
    return {
        "protocolVersion": PROTOCOL_VERSION,
        "agentInfo": agent_info,
        "agentCapabilities": agent_capabilities,
        "authMethods": list(auth_methods),
    }


def implementation(name: str, version: str) -> JsonObject:
    """Build `agentInfo`."""
    return {"name": name, "version": version}


def agent_capabilities(
    *,
    load_session: bool = True,
    session: Sequence[SessionCapability] = (),
    image: bool = False,
    audio: bool = False,
    embedded_context: bool = False,
    logout: bool = False,
) -> JsonObject:
    """Build `agentCapabilities`.

    `promptCapabilities` is always complete, since a client crashes without it; a marker that is
    not served is left out, since a client takes every key that is there as support.
    """
    return without_absent(
        loadSession=load_session,
        promptCapabilities={"image": image, "audio": audio, "embeddedContext": embedded_context},
        mcpCapabilities={"http": False, "sse": False},
        sessionCapabilities={name: {} for name in session},
        auth={"logout": {}} if logout else None,
    )


def auth_method(method_id: str, name: str, description: str | None = None) -> JsonObject:
    """Build an auth method that the agent handles in `authenticate`."""
    return without_absent(id=method_id, name=name, description=description)


def open_session_result(
    *,
    modes: JsonMapping | None = None,
    config_options: Sequence[JsonMapping] | None = None,
    meta: JsonMapping | None = None,
) -> JsonObject:
    """Build the result of `session/load` and `session/resume`, and most of `session/new`'s."""
    return without_absent(
        modes=modes,
        configOptions=list(config_options) if config_options else None,
        _meta=meta,
    )


def mode_state(current_mode_id: str, modes: Iterable[JsonMapping]) -> JsonObject:
    """Build `modes`."""
    return {"currentModeId": current_mode_id, "availableModes": list(modes)}


def mode(mode_id: str, name: str, description: str | None = None) -> JsonObject:
    """Build one mode."""
    return without_absent(id=mode_id, name=name, description=description)


def config_option(
    option_id: str,
    name: str,
    current_value: str | bool,
    choices: Iterable[JsonMapping] | None = None,
    *,
    description: str | None = None,
    category: str | None = None,
) -> JsonObject:
    """Build a config option; without choices it is on or off, for clients that take such."""
    return without_absent(
        id=option_id,
        name=name,
        description=description,
        category=category,
        type="boolean" if choices is None else "select",
        currentValue=current_value,
        options=None if choices is None else list(choices),
    )


def choice(value: str, name: str, description: str | None = None) -> JsonObject:
    """Build one choice of a select option."""
    return without_absent(value=value, name=name, description=description)


def config_options_result(options: Iterable[JsonMapping]) -> JsonObject:
    """Build the result of `session/set_config_option`: always the complete list."""
    return {"configOptions": list(options)}


def session_info(
    session_id: str,
    cwd: str,
    *,
    title: str | None = None,
    updated_at: str | None = None,
) -> JsonObject:
    """Build one row of `session/list`; `updated_at` is ISO 8601."""
    return without_absent(sessionId=session_id, cwd=cwd, title=title, updatedAt=updated_at)


def list_sessions_result(
    sessions: Iterable[JsonMapping], next_cursor: str | None = None
) -> JsonObject:
    """Build a page of `session/list`; no cursor on the last one."""
    return without_absent(sessions=list(sessions), nextCursor=next_cursor)


def prompt_result(stop_reason: StopReason) -> JsonObject:
    """Build the result of `session/prompt`."""
    return {"stopReason": stop_reason}

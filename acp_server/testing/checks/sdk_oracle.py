"""The official SDK as judge of a frame's shape (frames-fit-the-schema).

A frame passes if the SDK's model of it, dumped again, equals the frame: nothing lost, nothing
salvaged, nothing defaulted. The SDK is imported on the first use only: it takes half a second and
is a development dependency. `notice`, which the SDK does not know yet, has its own check.
"""

import importlib.util
from collections.abc import Mapping
from typing import Any, Literal

from acp_server.testing.checks.frame_values import difference

Part = Literal["client params", "agent result", "agent params", "client result"]

_CLIENT_REQUESTS = {
    "initialize": "Initialize",
    "authenticate": "Authenticate",
    "logout": "Logout",
    "session/new": "NewSession",
    "session/load": "LoadSession",
    "session/resume": "ResumeSession",
    "session/list": "ListSessions",
    "session/delete": "DeleteSession",
    "session/close": "CloseSession",
    "session/set_mode": "SetSessionMode",
    "session/set_config_option": "SetSessionConfigOption",
    "session/prompt": "Prompt",
}
_AGENT_REQUESTS = {
    "session/request_permission": "RequestPermission",
    "fs/read_text_file": "ReadTextFile",
    "fs/write_text_file": "WriteTextFile",
    "terminal/create": "CreateTerminal",
    "terminal/output": "TerminalOutput",
    "terminal/wait_for_exit": "WaitForTerminalExit",
    "terminal/kill": "KillTerminal",
    "terminal/release": "ReleaseTerminal",
    "elicitation/create": "CreateElicitation",
}
_CANCEL_REQUEST = {"$/cancel_request": "CancelRequestNotification"}
_CLIENT_NOTIFICATIONS = {"session/cancel": "CancelNotification", **_CANCEL_REQUEST}
_AGENT_NOTIFICATIONS = {
    "session/update": "SessionNotification",
    "elicitation/complete": "CompleteElicitationNotification",
    **_CANCEL_REQUEST,
}
_UPDATES = {
    "user_message_chunk": "UserMessageChunk",
    "agent_message_chunk": "AgentMessageChunk",
    "agent_thought_chunk": "AgentThoughtChunk",
    "tool_call": "ToolCallStart",
    "tool_call_update": "ToolCallProgress",
    "plan": "AgentPlanUpdate",
    "available_commands_update": "AvailableCommandsUpdate",
    "current_mode_update": "CurrentModeUpdate",
    "config_option_update": "ConfigOptionUpdate",
    "session_info_update": "SessionInfoUpdate",
    "usage_update": "UsageUpdate",
}
AGENT_METHODS = frozenset(_AGENT_REQUESTS)
AGENT_NOTIFICATIONS = frozenset(_AGENT_NOTIFICATIONS)
UPDATE_VARIANTS = frozenset({*_UPDATES, "notice"})


def sdk_is_installed() -> bool:
    """Tell whether the official SDK can be imported, without importing it."""
    return importlib.util.find_spec("acp") is not None


class SdkOracle:
    """Judges params and results by the SDK's models. Constructing it imports the SDK."""

    def __init__(self) -> None:
        # Late on purpose: a development dependency of half a second.
        from acp import schema  # noqa: PLC0415

        self._schema = schema

    def fault(self, part: Part, method: str, payload: Mapping[str, Any]) -> str | None:
        """Say what is wrong with the params or the result of `method`; None if nothing is.

        A method the SDK does not know (an extension) is not judged.
        """
        if method == "session/update":
            return self._update_fault(payload)
        name = _model_name(part, method, payload)
        if name == "InitializeRequest":
            payload = _without_newer_capabilities(payload)
        return None if name is None else self._round_trip_fault(name, payload)

    def error_fault(self, error: Mapping[str, Any]) -> str | None:
        """Say what is wrong with a JSON-RPC error object."""
        return self._round_trip_fault("Error", error)

    def _update_fault(self, params: Mapping[str, Any]) -> str | None:
        update = params.get("update")
        if not isinstance(update, dict):
            return "update is no object"
        variant = update.get("sessionUpdate")
        if variant == "notice":
            return _notice_fault(update)
        name = _UPDATES.get(variant) if isinstance(variant, str) else None
        if name is None:
            return f"unknown update {variant!r}"
        fault = self._round_trip_fault(name, update)
        if fault is None and set(params) - {"_meta"} != {"sessionId", "update"}:
            return f"params have the keys {sorted(params)}"
        return fault

    def _round_trip_fault(self, name: str, payload: Mapping[str, Any]) -> str | None:
        model = getattr(self._schema, name)
        try:
            parsed = model.model_validate(payload)
        except ValueError as error:
            return f"{name}: {error}"
        # The SDK's own unions can warn while dumping; only the result counts here.
        dump = parsed.model_dump(mode="json", by_alias=True, exclude_unset=True, warnings=False)
        if isinstance(payload.get("url"), str):
            # pydantic writes a bare host with a slash behind it.
            dump["url"] = dump["url"].rstrip("/") + "/" * payload["url"].endswith("/")
        found = difference(dict(payload), dump)
        return None if found is None else f"{name}: {found}"


def _model_name(part: Part, method: str, payload: Mapping[str, Any]) -> str | None:
    if part == "client params" and method in _CLIENT_NOTIFICATIONS:
        return _CLIENT_NOTIFICATIONS[method]
    if part == "agent params" and method in _AGENT_NOTIFICATIONS:
        return _AGENT_NOTIFICATIONS[method]
    table = _CLIENT_REQUESTS if part in ("client params", "agent result") else _AGENT_REQUESTS
    stem = table.get(method)
    if stem is None:
        return None
    if part in ("agent result", "client result"):
        return _elicitation_answer(payload) if stem == "CreateElicitation" else f"{stem}Response"
    if stem == "SetSessionConfigOption":
        stem += "Boolean" if payload.get("type") == "boolean" else "Select"
    if stem == "CreateElicitation":
        mode = "Url" if payload.get("mode") == "url" else "Form"
        scope = "Request" if "requestId" in payload else "Session"
        stem = f"Create{mode}{scope}Elicitation"
    return f"{stem}Request"


def _without_newer_capabilities(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Take out `session.notices`, which the SDK does not know either."""
    capabilities = params.get("clientCapabilities")
    if not isinstance(capabilities, dict) or not isinstance(capabilities.get("session"), dict):
        return params
    session = capabilities["session"]
    session = {name: value for name, value in session.items() if name != "notices"}
    return {**params, "clientCapabilities": {**capabilities, "session": session}}


def _elicitation_answer(payload: Mapping[str, Any]) -> str:
    names = {"accept": "Accept", "decline": "Decline", "cancel": "Cancel"}
    return f"{names.get(str(payload.get('action')), 'Other')}ElicitationResponse"


def _notice_fault(update: Mapping[str, Any]) -> str | None:
    """Check `notice` by the v1 schema: severity is open, the title must not be empty."""
    unknown = set(update) - {"sessionUpdate", "severity", "title", "description", "_meta"}
    if unknown:
        return f"notice: unknown keys {sorted(unknown)}"
    texts = [update.get("severity"), update.get("title"), update.get("description", "")]
    if not all(isinstance(text, str) for text in texts) or not update["title"]:
        return "notice: severity, title and description must be strings, the title not empty"
    return None

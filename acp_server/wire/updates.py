"""Builders of `session/update`: one function per variant of ACP v1 that we send.

Plain dicts, no pydantic: a streamed token passes here. An argument of None leaves its key out.
"""

from collections.abc import Iterable

from acp_server.wire.shapes import (
    JsonMapping,
    JsonObject,
    NoticeSeverity,
    PlanPriority,
    PlanStatus,
    without_absent,
)


def session_update(session_id: str, update: JsonMapping) -> JsonObject:
    """Build the params of the notification `session/update`."""
    return {"sessionId": session_id, "update": update}


def user_message_chunk(content: JsonMapping, message_id: str | None = None) -> JsonObject:
    """Build a replayed block of a user message."""
    return _chunk("user_message_chunk", content, message_id)


def agent_message_chunk(content: JsonMapping, message_id: str | None = None) -> JsonObject:
    """Build a piece of an agent message."""
    return _chunk("agent_message_chunk", content, message_id)


def agent_thought_chunk(content: JsonMapping, message_id: str | None = None) -> JsonObject:
    """Build a piece of the agent's reasoning."""
    return _chunk("agent_thought_chunk", content, message_id)


def _chunk(variant: str, content: JsonMapping, message_id: str | None) -> JsonObject:
    if message_id is None:
        return {"sessionUpdate": variant, "content": content}
    return {"sessionUpdate": variant, "content": content, "messageId": message_id}


def tool_call(call_id: str, fields: JsonMapping) -> JsonObject:
    """Build the announcement of a tool call; `fields` are its other members, with a title."""
    return {"sessionUpdate": "tool_call", "toolCallId": call_id, **fields}


def tool_call_update(call_id: str, fields: JsonMapping) -> JsonObject:
    """Build a change of a tool call; `content` and `locations` replace the whole list."""
    return {"sessionUpdate": "tool_call_update", "toolCallId": call_id, **fields}


def plan(entries: Iterable[JsonMapping]) -> JsonObject:
    """Build the complete plan; an empty list clears it."""
    return {"sessionUpdate": "plan", "entries": list(entries)}


def plan_entry(content: str, status: PlanStatus, priority: PlanPriority = "medium") -> JsonObject:
    """Build one plan entry."""
    return {"content": content, "priority": priority, "status": status}


def available_commands_update(commands: Iterable[JsonMapping]) -> JsonObject:
    """Build the complete list of slash commands."""
    return {"sessionUpdate": "available_commands_update", "availableCommands": list(commands)}


def available_command(name: str, description: str, hint: str | None = None) -> JsonObject:
    """Build one slash command; `hint` says what to type behind it."""
    return without_absent(
        name=name, description=description, input=None if hint is None else {"hint": hint}
    )


def current_mode_update(mode_id: str) -> JsonObject:
    """Build a change of mode. The key is `currentModeId`; the ACP modes page is wrong there."""
    return {"sessionUpdate": "current_mode_update", "currentModeId": mode_id}


def config_option_update(options: Iterable[JsonMapping]) -> JsonObject:
    """Build the complete list of config options."""
    return {"sessionUpdate": "config_option_update", "configOptions": list(options)}


def session_info_update(*, title: str | None = None, updated_at: str | None = None) -> JsonObject:
    """Build a change of the session's title; `updated_at` is ISO 8601."""
    return without_absent(sessionUpdate="session_info_update", title=title, updatedAt=updated_at)


def usage_update(used: int, size: int) -> JsonObject:
    """Build the state of the context window, in tokens."""
    return {"sessionUpdate": "usage_update", "used": used, "size": size}


def notice(severity: NoticeSeverity, title: str, description: str | None = None) -> JsonObject:
    """Build a notice; only for clients with the capability `session.notices`."""
    return without_absent(
        sessionUpdate="notice", severity=severity, title=title, description=description
    )

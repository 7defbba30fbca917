"""Builders of the params of what we ask of the client, and of our notifications to it.

None of these may be sent to a client that did not advertise the method (`handshake`).
"""

from collections.abc import Iterable, Mapping, Sequence

from acp_server.wire.shapes import JsonMapping, JsonObject, PermissionKind, without_absent


def request_permission_params(
    session_id: str, tool_call: JsonMapping, options: Iterable[JsonMapping]
) -> JsonObject:
    """Build params of `session/request_permission`; `tool_call` has an id and a title."""
    return {"sessionId": session_id, "toolCall": tool_call, "options": list(options)}


def permission_option(option_id: str, name: str, kind: PermissionKind) -> JsonObject:
    """Build one option the user can choose."""
    return {"optionId": option_id, "name": name, "kind": kind}


def read_text_file_params(
    session_id: str, path: str, *, line: int | None = None, limit: int | None = None
) -> JsonObject:
    """Build params of `fs/read_text_file`; `line` counts from 1."""
    return without_absent(sessionId=session_id, path=path, line=line, limit=limit)


def write_text_file_params(session_id: str, path: str, content: str) -> JsonObject:
    """Build params of `fs/write_text_file`."""
    return {"sessionId": session_id, "path": path, "content": content}


def create_terminal_params(
    session_id: str,
    command: str,
    *,
    args: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    output_byte_limit: int | None = None,
) -> JsonObject:
    """Build params of `terminal/create`."""
    variables = [{"name": name, "value": value} for name, value in (env or {}).items()]
    return without_absent(
        sessionId=session_id,
        command=command,
        args=list(args) or None,
        env=variables or None,
        cwd=cwd,
        outputByteLimit=output_byte_limit,
    )


def terminal_params(session_id: str, terminal_id: str) -> JsonObject:
    """Build params of `terminal/output`, `wait_for_exit`, `kill` and `release`."""
    return {"sessionId": session_id, "terminalId": terminal_id}


def elicitation_form_params(
    session_id: str, message: str, requested_schema: JsonMapping
) -> JsonObject:
    """Build params of `elicitation/create` of mode `form`; the schema is one flat object."""
    params = {"sessionId": session_id, "mode": "form", "message": message}
    return {**params, "requestedSchema": requested_schema}


def elicitation_url_params(
    session_id: str, message: str, url: str, elicitation_id: str
) -> JsonObject:
    """Build params of `elicitation/create` of mode `url`."""
    params = {"sessionId": session_id, "mode": "url", "message": message}
    return {**params, "elicitationId": elicitation_id, "url": url}


def elicitation_complete_params(elicitation_id: str) -> JsonObject:
    """Build params of the notification `elicitation/complete`."""
    return {"elicitationId": elicitation_id}

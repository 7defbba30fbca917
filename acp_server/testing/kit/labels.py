"""What a normalized line means: its name in a report, and the event that a frame goes back to."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import orjson

Json: TypeAlias = dict[str, Any]

_SEQ_KEYS = frozenset({"seq", "seq0", "sourceEventSeqs", "messageSeqs", "start", "end"})
_MESSAGE_ID = re.compile(r"[autm]\d+")
_STATUS_EVENTS = {
    "pending": "tool/card",
    "in_progress": "tool/call",
    "completed": "tool/result",
    "failed": "tool/result",
}


def label_of(line: Json) -> str:
    """Return kind and identity of a frame or a log record, as a report names it."""
    if "jsonrpc" in line:
        return _frame_label(line)
    if "process" in line:
        return f"start of process {line['process']}"
    if line.get("type") == "session":
        return f"header of {line.get('id')}"
    seq = line.get("seq", line.get("seq0"))
    return f"event {seq} {line.get('type')}"


def kind_of(line: Json) -> str:
    """Return the label without what only counts: lines of one kind are compared with each other."""
    if "jsonrpc" not in line:
        return str(line.get("type", "process"))
    return _MESSAGE_ID.sub("", _frame_label(line))


def shape_of(line: Json) -> bytes:
    """Return a line as bytes without the numbers of events, which shift when one is added."""
    return orjson.dumps(_unnumbered(line), option=orjson.OPT_SORT_KEYS)


def exact_bytes(line: Json) -> bytes:
    """Return a line as bytes that are equal if and only if the lines mean the same."""
    return orjson.dumps(line, option=orjson.OPT_SORT_KEYS)


def changed_fields(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield path, old and new value of everything in which two values differ.

    What one side lacks is `...`, Python's Ellipsis.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            inner = f"{path}.{key}" if path else key
            yield from changed_fields(old.get(key, ...), new.get(key, ...), inner)
    elif isinstance(old, list) and isinstance(new, list):
        for position in range(max(len(old), len(new))):
            one, other = (side[position] if position < len(side) else ... for side in (old, new))
            yield from changed_fields(one, other, f"{path}[{position}]")
    elif old is ... or new is ... or exact_bytes({"": old}) != exact_bytes({"": new}):
        yield path, old, new


def event_behind(frame: Json, logs: Sequence[Sequence[Json]]) -> Json | None:
    """Return the event that an update shows, None if none can be told.

    Args:
        frame: A normalized frame of the agent.
        logs: The normalized logs of the run, header first.
    """
    params = frame.get("params")
    update = params.get("update") if isinstance(params, dict) else None
    if not isinstance(params, dict) or not isinstance(update, dict):
        return None
    log = next((log for log in logs if log[0].get("id") == params.get("sessionId")), ())
    events = [line for line in log if "seq" in line]
    return next((event for event in events if _shows(update, event)), None)


def _shows(update: Json, event: Json) -> bool:
    data = event["data"]
    message_id = update.get("messageId")
    if isinstance(message_id, str) and _MESSAGE_ID.fullmatch(message_id):
        seq: int = event["seq"]
        return seq == int(message_id[1:])
    match update.get("sessionUpdate"):
        case "tool_call" | "tool_call_update":
            wanted = _STATUS_EVENTS.get(update.get("status", ""), "tool/card")
            same: bool = data.get("callId") == update.get("toolCallId")
            return same and bool(event["type"] == wanted)
        case "plan":
            shown = [entry["content"] for entry in update["entries"]]
            todos = data.get("todos", ()) if event["type"] == "todo/write" else ()
            return event["type"] == "todo/write" and [todo["content"] for todo in todos] == shown
        case "session_info_update":
            return (event["type"], data.get("title")) == ("session/title", update.get("title"))
        case _:
            return False


def _frame_label(frame: Json) -> str:
    if "method" not in frame:
        outcome = "error" if "error" in frame else "result"
        return f"{outcome} of request {frame.get('id')}"
    params = frame.get("params")
    update = params.get("update") if isinstance(params, dict) else None
    if not isinstance(update, dict):
        return f"{frame['method']} {frame['id']}" if "id" in frame else str(frame["method"])
    name = update.get("messageId", update.get("toolCallId", ""))
    return f"{update.get('sessionUpdate')} {name}".rstrip()


def _unnumbered(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: None if key in _SEQ_KEYS else _unnumbered(_without_message_id(key, item))
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_unnumbered(item) for item in value]
    return value


def _without_message_id(key: str, item: Any) -> Any:
    if key == "messageId" and isinstance(item, str) and _MESSAGE_ID.fullmatch(item):
        return item[0]
    return item

"""Reads model scripts: hand-written ones, and recorded logs as scripts (script-forms-are-fixed).

A script is a list of responses, one for each model request, in order. The forms of a response:

    {"thought"?: str, "text"?: str, "calls"?: [{"name", "arguments", "id"?}], "finish"?: str}
                                         a text in pieces is a list of strings
    {"chunks": [...]}                    the stream chunks (stream-chunks-have-fixed-shapes), as a
                                         model sends them
    {"kind": "chunks", "chunks": [...]}  the same
    {"kind": "throw", "chunks"?: [...], "message": str, "code": str, "retryAfterMs"?: int}
                                         chunks, then the failure; with a time, a passing one
    {"error": {"message", "code"}}       beside any of the short members: they, then the failure
    {"kind": "hang"}                     begins to answer (`partial`) and never goes on
    {"hang": true}                       beside any of the short members: they, then silence

A file holds one list, which all sessions share in the order of their requests, or
`{"sessions": [list, ...]}`, one list for each session in the order of their first requests. A
file `NAME.jsonl` is a recorded log, packed or not: the chunks of each step are one response, those
of a fork's seed are left out. `NAME.1.jsonl`, `NAME.2.jsonl`, … beside it are further sessions,
and the list in `NAME.override.json` replaces what the first log gives.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from acp_server.turns.errors import AgentsError, ModelError
from session_core import SessionCoreError, decode_storage_record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from acp_server.models.model import StreamChunk

Response = dict[str, Any]

_KEYS = {"kind", "chunks", "thought", "text", "calls", "finish", "hang", "error"}
_KINDS: Mapping[str, frozenset[str]] = {
    "chunks": frozenset({"kind", "chunks"}),
    "throw": frozenset({"kind", "chunks", "message", "code", "retryAfterMs"}),
    "hang": frozenset({"kind"}),
}


class ScriptError(AgentsError):
    """A script file that cannot be played, or that has run out of responses."""

    def __init__(self, source: str, reason: str) -> None:
        self.source = source
        super().__init__(f"script {source!r}: {reason}")


@dataclass(frozen=True, slots=True)
class Script:
    """What a model plays.

    Attributes:
        source: The file, named in errors.
        name: The file's own name, which is the same on every machine: the model's name.
        sessions: Lists of responses.
        shared: All sessions share the first list; otherwise each list is one session's.
    """

    source: str
    name: str
    sessions: tuple[tuple[Response, ...], ...]
    shared: bool

    @property
    def length(self) -> int:
        """How many model requests it answers."""
        return sum(map(len, self.sessions))


def read_script(path: Path) -> Script:
    """Read a script file.

    Raises:
        ScriptError: It cannot be read or is not a script.
    """
    return _recorded(path) if path.suffix == ".jsonl" else _written(path)


def chunks_of(response: Response, position: int) -> Iterator[StreamChunk]:
    """Yield the chunks of a response, before it hangs or fails if it does.

    Args:
        response: One response, checked.
        position: Its place in the script, from 0, which names its calls.
    """
    if response.get("kind") == "hang":
        yield {"type": "block-start", "index": 0, "blockType": "text"}
        yield {"type": "text-delta", "index": 0, "text": "partial"}
        return
    if "kind" in response or "chunks" in response:
        yield from response.get("chunks", ())
        return
    yield from _short_form(response, position)


def hangs(response: Response) -> bool:
    """Say whether the response never ends."""
    return response.get("kind") == "hang" or bool(response.get("hang"))


def failure_of(response: Response) -> ModelError | None:
    """Return the failure that ends the response, None if it comes to its end."""
    failure = response if response.get("kind") == "throw" else response.get("error")
    if failure is None:
        return None
    wait_ms = failure.get("retryAfterMs")
    return ModelError(
        failure["message"],
        code=failure["code"],
        retryable=wait_ms is not None,
        retry_after_ms=wait_ms,
    )


# -- hand-written files ---------------------------------------------------------------------


def _written(path: Path) -> Script:
    value = _json(path)
    lists = value.get("sessions") if isinstance(value, dict) else [value]
    if not isinstance(lists, list) or (isinstance(value, dict) and set(value) != {"sessions"}):
        reason = 'must be a JSON list of responses, or {"sessions": [list, ...]}'
        raise ScriptError(str(path), reason)
    sessions = tuple(_checked(item, str(path)) for item in lists)
    return Script(str(path), path.name, sessions, shared=isinstance(value, list))


def _checked(value: object, source: str) -> tuple[Response, ...]:
    if not isinstance(value, list):
        raise ScriptError(source, "must be a JSON list of responses")
    for number, response in enumerate(value):
        _check(response, number, source)
    return tuple(value)


def _check(response: object, number: int, source: str) -> None:
    if not isinstance(response, dict):
        raise ScriptError(source, f"response {number} must be an object")
    kind = response.get("kind")
    if "kind" in response and kind not in _KINDS:
        raise ScriptError(source, f"response {number} has an unknown kind {kind!r}")
    known = _KEYS if kind is None else _KINDS[kind]
    unknown = sorted(set(response) - known)
    if unknown:
        raise ScriptError(source, f"response {number} has an unknown key {unknown[0]!r}")
    needed = {"chunks": {"chunks"}, "throw": {"message", "code"}}.get(str(kind), set())
    missing = sorted(needed - set(response))
    if missing:
        raise ScriptError(source, f"response {number} has no {missing[0]!r}")


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ScriptError(str(path), f"cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ScriptError(str(path), f"is not JSON: {error}") from error


# -- recorded logs --------------------------------------------------------------------------


def _recorded(path: Path) -> Script:
    override = path.with_name(f"{path.stem}.override.json")
    first = _checked(_json(override), str(override)) if override.exists() else _from_log(path)
    sessions = [first]
    while (child := path.with_name(f"{path.stem}.{len(sessions)}.jsonl")).exists():
        sessions.append(_from_log(child))
    return Script(str(path), path.name, tuple(sessions), shared=False)


def _from_log(path: Path) -> tuple[Response, ...]:
    """Return one response for each step of a log that has chunks."""
    source = str(path)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        start = _seed_length(json.loads(lines[0]))
        groups: dict[tuple[int, int], list[StreamChunk]] = {}
        for line in lines[1:]:
            for event in decode_storage_record(json.loads(line)):
                if event.type == "assistant/chunk" and event.seq >= start:
                    place = event.data["turn"], event.data["step"]
                    groups.setdefault(place, []).append(event.data["chunk"])
    except OSError as error:
        raise ScriptError(source, f"cannot be read: {error.strerror}") from error
    except (ValueError, IndexError, KeyError, SessionCoreError) as error:
        raise ScriptError(source, f"is not a recorded log: {error}") from error
    for (turn, step), chunks in groups.items():
        if chunks[-1]["type"] != "finish":
            reason = f"turn {turn} step {step} has no `finish`: it cannot be replayed as it is"
            raise ScriptError(source, reason)
    return tuple({"kind": "chunks", "chunks": chunks} for chunks in groups.values())


def _seed_length(header: Mapping[str, Any]) -> int:
    """Return how many events the session inherited; an expected log has no other real member."""
    if header["type"] != "session":
        reason = "the first line is not a session header"
        raise ValueError(reason)
    return int(header.get("seedLength", 0))


# -- the short form -------------------------------------------------------------------------


def _short_form(response: Response, position: int) -> Iterator[StreamChunk]:
    index = 0
    for key, kind in (("thought", "reasoning"), ("text", "text")):
        if key in response:
            yield from _text_chunks(response[key], index, kind)
            index += 1
    calls = response.get("calls", [])
    for number, call in enumerate(calls):
        call_id = call.get("id", f"call_{position + 1}_{number + 1}")
        yield from _call_chunks(call, index + number, call_id)
    if not response.get("hang") and "error" not in response:
        kind = response.get("finish", "tool-calls" if calls else "stop")
        yield {"type": "finish", "reason": {"kind": kind}}


def _text_chunks(text: str | list[str], index: int, kind: str) -> Iterator[StreamChunk]:
    """Yield a block of text, which a list gives in pieces."""
    pieces = [text] if isinstance(text, str) else text
    yield {"type": "block-start", "index": index, "blockType": kind}
    for piece in pieces:
        yield {"type": f"{kind}-delta", "index": index, "text": piece}
    yield {"type": "block-end", "index": index, "block": {"type": kind, "text": "".join(pieces)}}


def _call_chunks(call: Mapping[str, Any], index: int, call_id: str) -> Iterator[StreamChunk]:
    name = call["name"]
    arguments = call["arguments"]
    raw = arguments if isinstance(arguments, str) else json.dumps(arguments)
    yield {"type": "block-start", "index": index, "blockType": "tool-call"}
    yield {
        "type": "tool-call-delta",
        "index": index,
        "id": call_id,
        "name": name,
        "argumentsDelta": raw,
    }
    block = {"type": "tool-call", "id": call_id, "name": name, "arguments": raw}
    yield {"type": "block-end", "index": index, "block": block}

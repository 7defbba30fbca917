"""Makes two runs of one scenario comparable (normalizing-is-idempotent). Pure, and idempotent.

Clock and ids are injected (clock-and-ids-are-injected), so this does little: JSON-RPC ids are
numbered in the order in which the agent used them, session ids, call ids and UUIDs become
placeholders that keep identity, paths lose what differs from machine to machine, times become 0,
the agent's version goes. The numbers of events (`seq`) stay: they are what the log is about.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from acp_server.testing.checks.frame_values import read_strict
from acp_server.testing.client import RecordedFrame

Json: TypeAlias = dict[str, Any]

_UUID = re.compile(
    r"(?<![0-9a-zA-Z])[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(?![0-9a-zA-Z])"
)
_PLACEHOLDER = re.compile(r"\{\{(session|call|uuid)\.(\d+)\}\}")
_UPDATED_AT = "{{updatedAt}}"
_VERSION = "{{version}}"
_ID_KEYS = {
    "sessionId": "session",
    "parentSession": "session",
    "toolCallId": "call",
    "callId": "call",
}
_TOOL_CALL = "tool-call"


class ImpureOutputError(Exception):
    """The agent wrote a line that is no JSON object.

    Attributes:
        line: The line.
    """

    def __init__(self, line: bytes) -> None:
        super().__init__(f"the agent wrote a line that is no JSON object: {line[:200]!r}")
        self.line = line


@dataclass(frozen=True, slots=True)
class Places:
    """Paths of one run, and the placeholders that stand for them."""

    cwd: Path
    root: Path

    def pairs(self) -> list[tuple[str, str]]:
        """Return what to replace by what, longest paths first; macOS adds `/private`."""
        named = [(str(self.cwd), "{{cwd}}"), (str(self.root), "{{root}}")]
        return [(prefix + path, token) for path, token in named for prefix in ("/private", "")]


@dataclass(slots=True)
class Identities:
    """Numbers for identities in the order of their first appearance.

    One table serves the frames and the logs of a run, so that a name means the same in both.
    """

    places: Places | None = None
    _names: dict[str, str] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)

    def learn(self, value: object) -> None:
        """Name the ids of sessions and calls in a value, in its order."""
        if isinstance(value, dict):
            for key, item in value.items():
                kind = _ID_KEYS.get(key)
                if kind is not None and isinstance(item, str):
                    self._name(item, kind)
                self.learn(item)
            if value.get("type") in (_TOOL_CALL, "tool-call-delta"):
                self._learn_id(value, "call")
            elif value.get("type") == "session":
                self._learn_id(value, "session")
        elif isinstance(value, list):
            for item in value:
                self.learn(item)

    def scrub(self, value: Any) -> Any:
        """Return a value with placeholders for paths and identities, keys included."""
        if isinstance(value, str):
            return self._scrub_text(value)
        if isinstance(value, dict):
            return {self._scrub_text(key): self.scrub(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.scrub(item) for item in value]
        return value

    def _learn_id(self, holder: Mapping[str, Any], kind: str) -> None:
        if isinstance(holder.get("id"), str):
            self._name(holder["id"], kind)

    def _name(self, text: str, kind: str) -> str:
        known = self._names.get(text)
        if known is not None:
            return known
        placeholder = _PLACEHOLDER.fullmatch(text)
        if placeholder is not None:
            # Normalized already: it keeps its number, and later ones go on behind it.
            kind, number = placeholder[1], int(placeholder[2])
        elif not text:
            return text
        else:
            number = self._counts.get(kind, 0) + 1
        self._counts[kind] = max(number, self._counts.get(kind, 0))
        self._names[text] = f"{{{{{kind}.{number}}}}}"
        return self._names[text]

    def _scrub_text(self, text: str) -> str:
        if text in self._names:
            return self._names[text]
        for path, token in [] if self.places is None else self.places.pairs():
            if path in text:
                text = text.replace(path, token)
        for known, name in self._names.items():
            if known in text and known != name:
                text = re.sub(rf"(?<![\w-]){re.escape(known)}(?![\w-])", name, text)
        return _UUID.sub(lambda match: self._name(match[0], "uuid"), text)


def normalize_frames(
    conversations: Iterable[Iterable[RecordedFrame]], identities: Identities
) -> list[Json]:
    """Return what the agent wrote, process by process, as comparable JSON.

    Before the frames of the second and every later process stands `{"process": n}`.

    Raises:
        ImpureOutputError: A line is no JSON object.
    """
    frames: list[Json] = []
    ids: dict[tuple[int, str, str, object], int] = {}
    for process, conversation in enumerate(conversations, 1):
        if process > 1:
            frames.append({"process": process})
        frames.extend(
            _numbered(_read(recorded.data), process, ids)
            for recorded in conversation
            if recorded.sender == "agent" and recorded.data.strip()
        )
    for frame in frames:
        identities.learn(frame)
    return [_without_moments(identities.scrub(frame)) for frame in frames]


def normalize_frame_lines(lines: Iterable[bytes], identities: Identities) -> list[Json]:
    """Return frames of a file, as `normalize_frames` does; normalized ones do not change."""
    parts: list[list[RecordedFrame]] = [[]]
    for line in lines:
        if line.strip() and "process" in _read(line):
            parts.append([])
        else:
            parts[-1].append(RecordedFrame("agent", line))
    return normalize_frames(parts, identities)


def normalize_log(
    header: Mapping[str, Any],
    records: Iterable[Mapping[str, Any]],
    identities: Identities,
    *,
    keep_request_headers: bool = False,
) -> list[Json]:
    """Return a stored session as comparable JSON: its header, then its events or packed rows.

    Args:
        header: The session's header.
        records: Events or storage rows, as JSON.
        identities: Names ids; the frames of the run come first.
        keep_request_headers: Leave system prompt, tools and message prefix as they are.
    """
    # A store may leave out the tag and a depth of 0.
    head = {"type": "session", **header}
    head.setdefault("delegationDepth", 0)
    lines = [head, *(dict(record) for record in records)]
    for line in lines:
        identities.learn(line)
    first, *rest = (identities.scrub(line) for line in lines)
    if "createdAt" in first:
        first["createdAt"] = 0
    return [first, *(_event_without_times(line, keep_header=keep_request_headers) for line in rest)]


def request_header_texts(events: Iterable[Mapping[str, Any]]) -> list[Json]:
    """Return system prompt, tools and message prefix of each request header of a log."""
    names = ("system", "tools", "messagePrefix")
    headers = (event["data"]["header"] for event in events if event["type"] == "request/header")
    return [{name: header[name] for name in names if name in header} for header in headers]


def _read(line: bytes) -> Json:
    try:
        frame = read_strict(line)
    except ValueError as error:
        raise ImpureOutputError(line) from error
    if not isinstance(frame, dict):
        raise ImpureOutputError(line)
    return frame


def _numbered(frame: Json, process: int, ids: dict[tuple[int, str, str, object], int]) -> Json:
    def number(asker: str, request_id: object) -> object:
        if request_id is None:
            return None
        # 1 and "1" are two ids.
        key = (process, asker, type(request_id).__name__, request_id)
        return ids.setdefault(key, len(ids) + 1)

    params = frame.get("params")
    if "id" in frame:
        asker = "agent" if "method" in frame else "client"
        frame = {**frame, "id": number(asker, frame["id"])}
    if frame.get("method") == "$/cancel_request" and isinstance(params, dict):
        params = {**params, "requestId": number("agent", params.get("requestId"))}
        frame = {**frame, "params": params}
    return frame


def _without_moments(frame: Json) -> Json:
    """Return the frame with placeholders for the times and the version of the agent."""
    params, result = frame.get("params"), frame.get("result")
    update = params.get("update") if isinstance(params, dict) else None
    if isinstance(update, dict) and "updatedAt" in update:
        update["updatedAt"] = _UPDATED_AT
    info = result.get("agentInfo") if isinstance(result, dict) else None
    if isinstance(info, dict) and "version" in info:
        info["version"] = _VERSION
    sessions = result.get("sessions") if isinstance(result, dict) else None
    for session in sessions if isinstance(sessions, list) else ():
        if isinstance(session, dict) and "updatedAt" in session:
            session["updatedAt"] = _UPDATED_AT
    return frame


def _event_without_times(record: Json, *, keep_header: bool) -> Json:
    """Return an event or a packed row with its times at 0; `record` is a copy already."""
    for name in ("time", "time0"):
        if name in record:
            record[name] = 0
    data = record.get("data")
    if not isinstance(data, dict):
        return record
    if "dt" in data and isinstance(data["dt"], list):
        data["dt"] = [0] * len(data["dt"])
    if record.get("type") == "hook/result" and "durationMs" in data:
        data["durationMs"] = 0
    if record.get("type") == "request/header" and not keep_header:
        _scrub_header(data.get("header"))
    return record


def _scrub_header(header: object) -> None:
    if not isinstance(header, dict):
        return
    for name in ("system", "tools"):
        if name in header:
            header[name] = f"{{{{{name}}}}}"
    if isinstance(header.get("messagePrefix"), list):
        header["messagePrefix"] = ["{{messagePrefix}}"] * len(header["messagePrefix"])

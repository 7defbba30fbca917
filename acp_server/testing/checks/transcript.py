"""What a client has seen: `session/update`s folded into a transcript.

Written from ACP v1 and one rule alone (updates-are-what-was-stored), and apart from the server's
projection, so that it can hold the property "folding the live updates equals folding the replayed
ones". Entries stand in the order of their first appearance. Left out: user chunks (kept aside),
modes, config options, usage, commands, notices, and the marker of an interrupted turn, which only a
replay shows.
"""

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

# (markers-have-exact-texts)
_INTERRUPTED = "\n\n[Interrupted: the server stopped before this turn ended]\n\n"

Update: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    """Text under one message id, joined.

    Chunks without an id belong together as long as nothing else comes between them.
    """

    kind: Literal["text", "reasoning"]
    message_id: str | None
    text: str
    blocks: tuple[Update, ...] = ()


@dataclass(frozen=True, slots=True)
class Card:
    """A tool call in its last state."""

    call_id: str
    title: str
    kind: str
    status: str
    locations: tuple[Update, ...]
    raw_input: Any
    content: tuple[Update, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """One whole plan; every one that was sent is an entry."""

    entries: tuple[Update, ...]


@dataclass(frozen=True, slots=True)
class Title:
    """A title of the session; every one that was sent is an entry."""

    title: str | None


Entry: TypeAlias = Message | Card | Plan | Title


@dataclass(frozen=True, slots=True)
class Transcript:
    """A folded conversation. Equality compares `entries`, not what the user said.

    Attributes:
        entries: What the agent showed, by first appearance.
        user: The user's blocks of a replay, in order.
    """

    entries: tuple[Entry, ...] = ()
    user: tuple[Update, ...] = field(default=(), compare=False)

    @property
    def text(self) -> str:
        """All agent text, joined."""
        return "".join(entry.text for entry in self.messages if entry.kind == "text")

    @property
    def reasoning(self) -> str:
        """All reasoning, joined."""
        return "".join(entry.text for entry in self.messages if entry.kind == "reasoning")

    @property
    def user_text(self) -> str:
        """The text blocks of the user, joined."""
        return "".join(str(block.get("text", "")) for block in self.user)

    @property
    def messages(self) -> tuple[Message, ...]:
        """Text and reasoning messages."""
        return tuple(entry for entry in self.entries if isinstance(entry, Message))

    @property
    def cards(self) -> tuple[Card, ...]:
        """Tool calls."""
        return tuple(entry for entry in self.entries if isinstance(entry, Card))

    @property
    def plans(self) -> tuple[Plan, ...]:
        """Plans, the last one being the valid one."""
        return tuple(entry for entry in self.entries if isinstance(entry, Plan))

    @property
    def titles(self) -> tuple[str | None, ...]:
        """Titles, the last one being the valid one."""
        return tuple(entry.title for entry in self.entries if isinstance(entry, Title))

    def difference(self, other: "Transcript") -> str:
        """Return a readable diff from this transcript to `other`; empty if they are equal."""
        if self == other:
            return ""
        return "\n".join(difflib.unified_diff(_lines(self), _lines(other), lineterm="", n=2))


def fold_transcript(updates: Iterable[Update]) -> Transcript:
    """Fold the `update` objects of one session's `session/update` notifications, in order."""
    fold = TranscriptFold()
    for update in updates:
        fold.add(update)
    return fold.transcript()


class TranscriptFold:
    """Folds updates one by one, in time proportional to their size."""

    def __init__(self) -> None:
        self._entries: list[_Text | dict[str, Any] | Plan | Title] = []
        self._texts: dict[tuple[str, str], _Text] = {}
        self._open_text: _Text | None = None  # the one a chunk without id continues
        self._calls: dict[str, dict[str, Any]] = {}
        self._user: list[Update] = []

    def add(self, update: Update) -> None:
        """Fold one update; a variant that is not part of a transcript changes nothing."""
        variant = update.get("sessionUpdate")
        if variant == "agent_message_chunk":
            self._add_chunk("text", update)
        elif variant == "agent_thought_chunk":
            self._add_chunk("reasoning", update)
        elif variant == "user_message_chunk":
            self._open_text = None
            self._user.append(update["content"])
        elif variant in ("tool_call", "tool_call_update"):
            self._add_call(update)
        elif variant == "plan":
            self._append(Plan(tuple(update["entries"])))
        elif variant == "session_info_update" and "title" in update:
            self._append(Title(update["title"]))

    def transcript(self) -> Transcript:
        """Return what has been folded so far."""
        entries = (_entry_from(state) for state in self._entries)
        return Transcript(
            entries=tuple(entry for entry in entries if not _is_interruption(entry)),
            user=tuple(self._user),
        )

    def _append(self, state: "_Text | dict[str, Any] | Plan | Title") -> None:
        self._entries.append(state)
        self._open_text = state if isinstance(state, _Text) else None

    def _add_chunk(self, kind: Literal["text", "reasoning"], update: Update) -> None:
        message_id = update.get("messageId")
        state = self._find_text(kind, message_id)
        if state is None:
            state = _Text(kind, message_id)
            if message_id is not None:
                self._texts[kind, message_id] = state
            self._append(state)
        state.add(update["content"])

    def _find_text(self, kind: str, message_id: str | None) -> "_Text | None":
        if message_id is not None:
            return self._texts.get((kind, message_id))
        last = self._open_text
        return last if last and last.kind == kind and last.message_id is None else None

    def _add_call(self, update: Update) -> None:
        call_id = update["toolCallId"]
        fields = self._calls.get(call_id)
        if fields is None:
            fields = self._calls[call_id] = {}
            self._append(fields)
        if update["sessionUpdate"] == "tool_call":
            # A second announcement puts the call in a new state; its place stays.
            fields.clear()
        fields.update(update)


class _Text:
    def __init__(self, kind: Literal["text", "reasoning"], message_id: str | None) -> None:
        self.kind = kind
        self.message_id = message_id
        self.parts: list[str] = []
        self.blocks: list[Update] = []

    def add(self, content: Update) -> None:
        if content.get("type") == "text":
            self.parts.append(content["text"])
        else:
            self.blocks.append(content)


def _entry_from(state: "_Text | dict[str, Any] | Plan | Title") -> Entry:
    if isinstance(state, _Text):
        return Message(state.kind, state.message_id, "".join(state.parts), tuple(state.blocks))
    if isinstance(state, dict):
        return Card(
            call_id=state["toolCallId"],
            title=state.get("title", ""),
            kind=state.get("kind", "other"),
            status=state.get("status", "pending"),
            locations=tuple(state.get("locations", ())),
            raw_input=state.get("rawInput"),
            content=tuple(state.get("content", ())),
        )
    return state


def _is_interruption(entry: Entry) -> bool:
    return isinstance(entry, Message) and entry.text == _INTERRUPTED


def _lines(transcript: Transcript) -> list[str]:
    lines: list[str] = []
    for entry in transcript.entries:
        fields = {name: getattr(entry, name) for name in entry.__slots__}
        text = json.dumps({"entry": type(entry).__name__, **fields}, indent=1, ensure_ascii=False)
        lines.extend(text.splitlines())
    return lines

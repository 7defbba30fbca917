"""What a log leaves open at its end: what a repair would have to close (open-turn-gets-closers)."""

from dataclasses import dataclass, field, replace

from session_core.events import Event
from session_core.json_value import FrozenList


@dataclass(slots=True)
class OpenTail:
    """What is open at the end of a log."""

    turn: int | None = None
    step: int | None = None
    # Call id -> step of the message that asked for it, and seq of its tool/call, if it has one.
    pending: dict[str, tuple[int, int | None]] = field(default_factory=dict)

    def copy(self) -> "OpenTail":
        """Return a tail that goes its own way from here."""
        return replace(self, pending=dict(self.pending))

    def follow(self, event: Event) -> None:
        """Take the next event of the log into account."""
        data = event.data
        match event.type:
            case "turn/start":
                self.turn, self.step = data["turn"], None
                self.pending.clear()
            case "turn/end":
                self.turn = self.step = None
                self.pending.clear()
            case "step/start":
                self.step = data["step"]
            case "step/end":
                self.step = None
                self.pending.clear()
            case "assistant/message":
                self._register(data["step"], data["content"])
            case "tool/call" if data["callId"] in self.pending:
                step, _ = self.pending[data["callId"]]
                self.pending[data["callId"]] = (step, event.seq)
            case "tool/result":
                self.pending.pop(data["callId"], None)

    def _register(self, step: int, content: FrozenList) -> None:
        for block in content:
            if block["type"] == "tool-call":
                # An id that comes again keeps its place and waits anew.
                self.pending[block["id"]] = (step, None)

"""What the fixture `acp` returns: the end of a turn with what was shown in it, and a replay."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from acp_server.testing.checks import Card, Plan, Transcript

Update: TypeAlias = Mapping[str, Any]


class Tools(Sequence[Card]):
    """The tool calls of a turn, in order; `tools["Read a.txt"]` finds one by its title."""

    def __init__(self, cards: Sequence[Card]) -> None:
        self._cards = tuple(cards)

    def __getitem__(self, key: Any) -> Any:
        """Return a card by position or title, or cards by slice.

        Raises:
            KeyError: No card has this title, or several do.
        """
        if not isinstance(key, str):
            return self._cards[key]
        found = [card for card in self._cards if card.title == key]
        if len(found) != 1:
            titles = [card.title for card in self._cards]
            raise KeyError(f"{len(found)} tools have the title {key!r}; there are {titles}")
        return found[0]

    def __len__(self) -> int:
        return len(self._cards)

    def __repr__(self) -> str:
        return f"Tools({[(card.title, card.status) for card in self._cards]})"


class TurnResult(NamedTuple):
    """The end of a turn and what was shown in it.

    Attributes:
        stop_reason: As the agent said.
        transcript: The updates of the turn, folded.
        updates: The updates themselves.
    """

    stop_reason: str
    transcript: Transcript
    updates: tuple[Update, ...]

    @property
    def text(self) -> str:
        """The agent's text, joined."""
        return self.transcript.text

    @property
    def tools(self) -> Tools:
        """The tool calls, each in its last state."""
        return Tools(self.transcript.cards)

    @property
    def plan(self) -> list[tuple[str, str]]:
        """Content and status of each entry of the last plan; empty if there was none."""
        plans: Sequence[Plan] = self.transcript.plans
        return [(entry["content"], entry["status"]) for entry in plans[-1].entries] if plans else []


class LoadedSession(NamedTuple):
    """What a load replayed.

    Attributes:
        transcript: The replay, folded: equal to what was seen live.
        result: The result of `session/load`.
    """

    transcript: Transcript
    result: Mapping[str, Any]

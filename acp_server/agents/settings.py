"""What is set in one session: the permission preset and the agent's options (Z11).

The log is the truth: what is set is folded from `permission/preset` and `config/set`, and a change
is an event before it is anything else. Only before a session's first turn, when there is no log
yet, changes are held here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from acp_server.agents.options import MODE_OPTION_ID
from session_core import Event, last_turn_number, open_turn

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from acp_server.agents.agent import Agent
    from acp_server.agents.options import ConfigOption
    from session_core import Session, SurfaceIntent

PermissionRule = Literal["ask", "allow", "refuse"]
"""What is to be done about a call that wants permission, before grants are looked at."""

CONFIG_TRIGGER: Final = {"kind": "config"}
_COMPLETED: Final = {"kind": "completed"}
_READ: Final = frozenset({"permission/preset", "config/set", "user/message", "context/message"})
_SOURCE: Final = {"kind": "plugin", "plugin": "permissions"}

_MEANING: Final = {
    "ask": "each change of the user's files or system is put before the user first",
    "auto-edit": "edits of files need no permission any more, everything else does",
    "read-only": "whatever needs the user's permission is refused",
    "full-access": "nothing needs the user's permission any more",
}


class LogEntry(NamedTuple):
    """An event that is to be appended."""

    type: str
    data: Mapping[str, Any]
    intent: SurfaceIntent | None = None


class SettingError(Exception):
    """A setting that the agent has not declared, or a value that it does not take."""


class SessionSettings:
    """The settings of a session, and how they change.

    Args:
        session: The live session.
        agent: Declares what can be set.

    Attributes:
        additional_directories: Absolute directories that the client named for this opening.
    """

    def __init__(self, session: Session, agent: Agent) -> None:
        self.additional_directories: tuple[str, ...] = ()
        self._session = session
        self._modes = agent.modes
        self._options: dict[str, ConfigOption] = {option.id: option for option in agent.options}
        self._preset: str | None = agent.modes[0] if agent.modes else None
        self._told: str | None = None
        self._values: dict[str, Any] = {option.id: option.initial for option in agent.options}
        self._initial = {**self._values, MODE_OPTION_ID: self._preset}
        self._held: dict[str, str | bool] = {}
        self._fold()

    # -- what is set ------------------------------------------------------------------------

    @property
    def mode(self) -> str | None:
        """The permission preset; None for an agent without modes."""
        return self._preset

    def option(self, option_id: str) -> Any:
        """Return the value of an option of the agent: a text, or true or false.

        Raises:
            KeyError: The agent has declared no such option.
        """
        return self._preset if option_id == MODE_OPTION_ID else self._values[option_id]

    def permission_rule(self, kind: str) -> PermissionRule:
        """Return what the preset says of a call of an ACP tool kind that wants permission (Z3)."""
        match self._preset:
            case "full-access":
                return "allow"
            case "read-only":
                return "refuse"
            case "auto-edit" if kind == "edit":
                return "allow"
        return "ask"

    # -- changes ----------------------------------------------------------------------------

    def change(self, option_id: str, value: str | bool) -> bool:
        """Set an option, or the preset as the option `mode`; it is in the log on return.

        Nothing is flushed. In an open turn the event is the turn's; else it gets a turn of its own.
        Before the first turn it is held until `take_held`.

        Returns:
            Whether anything changed.

        Raises:
            SettingError: There is no such option, or it does not take this value.
        """
        self.check(option_id, value)
        if self.option(option_id) == value:
            return False
        self._hold_or_append(option_id, value)
        self._apply(option_id, value)
        return True

    def take_held(self) -> list[LogEntry]:
        """Return what was set before the first turn, to be appended right behind its start."""
        entries = [_entry_of(option_id, value) for option_id, value in self._held.items()]
        self._held.clear()
        return entries

    def take_notice(self) -> dict[str, Any] | None:
        """Return the `context/message` owed to the model if it does not know the preset (Z15)."""
        before, self._told = self._told, self._preset
        if before is None or self._preset is None or before == self._preset:
            return None
        text = f"The permission preset is now {self._preset!r}: {_MEANING[self._preset]}."
        return {"content": [{"type": "text", "text": text}], "source": _SOURCE}

    def refold(self) -> bool:
        """Take over what the log says, which has grown elsewhere; return whether that changed."""
        before = (self._preset, dict(self._values))
        self._preset, self._told = self._initial[MODE_OPTION_ID], None
        self._values = {option_id: self._initial[option_id] for option_id in self._options}
        self._fold()
        return before != (self._preset, self._values)

    def check(self, option_id: str, value: object) -> None:
        """Return if an option, or the preset as the option `mode`, takes a value.

        Raises:
            SettingError: There is no such option, or it does not take this value.
        """
        if option_id == MODE_OPTION_ID and self._modes:
            if value in self._modes:
                return
        elif option_id not in self._options:
            message = f"there is no option {option_id!r}"
            raise SettingError(message)
        elif self._options[option_id].takes(value):
            return
        message = f"option {option_id!r} does not take {value!r}"
        raise SettingError(message)

    # -- inside -----------------------------------------------------------------------------

    def _hold_or_append(self, option_id: str, value: str | bool) -> None:
        if not self._session.seq:
            self._held[option_id] = value
            if value == self._initial[option_id]:
                del self._held[option_id]
            return
        entry = _entry_of(option_id, value)
        if open_turn(self._session.events) is None:
            append_in_own_turn(self._session, CONFIG_TRIGGER, [entry])
        else:
            self._session.append(entry.type, entry.data)

    def _apply(self, option_id: str, value: str | bool) -> None:
        if option_id == MODE_OPTION_ID:
            self._preset = str(value)
        else:
            self._values[option_id] = value

    def _fold(self) -> None:
        """Take over what a stored log says, as far as it is still declared (Z11)."""
        inherited = self._session.header.seed_length or 0
        logged = self._preset
        for record in self._session.events.records():
            # A long log is passed in a load, and most of it is of no interest here.
            if type(record) is not Event or record.type not in _READ:
                continue
            data = record.data
            if record.type == "permission/preset":
                logged = data["preset"]
                # A fork starts asking, whatever its parent did (Z28).
                if logged != "full-access" or record.seq >= inherited:
                    self._preset = self._known_preset(logged)
            elif record.type == "config/set":
                self._fold_option(data["configId"], data["value"])
            elif _tells_preset(record):
                self._told = logged

    def _known_preset(self, preset: str | None) -> str | None:
        return preset if preset in self._modes else self._initial[MODE_OPTION_ID]

    def _fold_option(self, option_id: str, value: object) -> None:
        option = self._options.get(option_id)
        if option is not None:
            self._values[option_id] = value if option.takes(value) else option.initial


def _tells_preset(event: Event) -> bool:
    """Tell whether the model has known the preset since then; a prompt brings the news first."""
    if event.type == "user/message":
        return bool(event.data["source"]["kind"] == "user")
    return event.type == "context/message" and event.data["source"] == _SOURCE


def append_in_own_turn(
    session: Session, trigger: Mapping[str, Any], entries: Iterable[LogEntry]
) -> None:
    """Append events between turns, in a turn of their own; the caller flushes."""
    turn = last_turn_number(session.events) + 1
    session.append("turn/start", {"turn": turn, "trigger": trigger})
    try:
        for entry in entries:
            session.append(entry.type, entry.data, entry.intent)
    finally:
        session.append("turn/end", {"turn": turn, "reason": _COMPLETED})


def _entry_of(option_id: str, value: str | bool) -> LogEntry:
    if option_id == MODE_OPTION_ID:
        return LogEntry("permission/preset", {"preset": value})
    return LogEntry("config/set", {"configId": option_id, "value": value})

"""What is set in one session: the permission preset and the agent's options.

Rule: settings-are-logged-at-once.

The log is the truth: what is set is folded from `permission/preset` and `config/set`, and a change
is an event before it is anything else. Only before a session's first turn, when there is no log
yet, changes are kept here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from acp_server.turns.pending_event import PendingEvent
from acp_server.turns.presets import MODE_OPTION_ID, TOLD_TO_MODEL, permission_rule
from session_core import APPEND, is_turn_open, own_turn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acp_server.turns.pending_event import AppendEvent
    from acp_server.turns.presets import PermissionRule, Preset
    from session_core import Event, EventView, Session

_TRIGGER: Final = {"kind": "config"}
_SETTINGS: Final = ("permission/preset", "config/set")
_MESSAGES: Final = ("user/message", "context/message")
_SOURCE: Final = {"kind": "plugin", "plugin": "permissions"}


class OptionDeclaration(Protocol):
    """A config option that an agent has declared."""

    @property
    def id(self) -> str:
        """Its name, unique in the agent."""

    @property
    def initial(self) -> Any:
        """Its value until one is set."""

    def takes(self, value: object) -> bool:
        """Tell whether the option can have this value."""


class SettingDeclarations(Protocol):
    """Presets and options of an agent."""

    @property
    def modes(self) -> Sequence[Preset]:
        """Permission presets to choose from, the default first; empty for an agent without."""

    @property
    def options(self) -> Sequence[OptionDeclaration]:
        """Further config options."""


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

    def __init__(self, session: Session, agent: SettingDeclarations) -> None:
        self.additional_directories: tuple[str, ...] = ()
        self._session = session
        self._modes = agent.modes
        self._options: dict[str, OptionDeclaration] = {
            option.id: option for option in agent.options
        }
        self._preset: str | None = agent.modes[0] if agent.modes else None
        self._told: str | None = None
        self._values: dict[str, Any] = {option.id: option.initial for option in agent.options}
        self._initial = {**self._values, MODE_OPTION_ID: self._preset}
        self._unstored: dict[str, str | bool] = {}
        self._fold()

    # -- what is set ------------------------------------------------------------------------

    @property
    def mode(self) -> str | None:
        """The permission preset; None for an agent without modes."""
        return self._preset

    @property
    def roots(self) -> tuple[str, ...]:
        """The session's folders, absolute: its working directory and the additional ones."""
        cwd = self._session.header.cwd
        return self.additional_directories if cwd is None else (cwd, *self.additional_directories)

    def option(self, option_id: str) -> Any:
        """Return the value of an option of the agent: a text, or true or false.

        Raises:
            KeyError: The agent has declared no such option.
        """
        return self._preset if option_id == MODE_OPTION_ID else self._values[option_id]

    def permission_rule(self, kind: str, *, outside: bool) -> PermissionRule:
        """Return what the preset says of a call that wants permission, see `presets`."""
        return permission_rule(self._preset, kind, outside=outside)

    # -- changes ----------------------------------------------------------------------------

    def change(self, option_id: str, value: str | bool) -> bool:
        """Set an option, or the preset as the option `mode`; it is in the log on return.

        Nothing is flushed. In an open turn the event is the turn's; else it gets a turn of its own.
        Before the first turn it is kept until `append_unstored`.

        Returns:
            Whether anything changed.

        Raises:
            SettingError: There is no such option, or it does not take this value.
        """
        self.check(option_id, value)
        if self.option(option_id) == value:
            return False
        self._append_or_keep(option_id, value)
        self._apply(option_id, value)
        return True

    def append_unstored(self, append: AppendEvent) -> None:
        """Append what was set before the first turn, right behind the turn's start."""
        for option_id, value in list(self._unstored.items()):
            append(_event_of(option_id, value))
            del self._unstored[option_id]

    def append_news(self, append: AppendEvent) -> None:
        """Tell the model of the preset, if it knows another one (model-hears-of-new-preset)."""
        preset = self._preset
        if self._told is not None and preset is not None and self._told != preset:
            text = f"The permission preset is now {preset!r}: {TOLD_TO_MODEL[preset]}."
            data = {"content": [{"type": "text", "text": text}], "source": _SOURCE}
            append(PendingEvent("context/message", data, APPEND))
        self._told = preset

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

    def _append_or_keep(self, option_id: str, value: str | bool) -> None:
        session = self._session
        event = _event_of(option_id, value)
        if is_turn_open(session.events):
            session.append(event.type, event.data)
        elif session.seq:
            with own_turn(session, _TRIGGER):
                session.append(event.type, event.data)
        elif value == self._initial[option_id]:
            self._unstored.pop(option_id, None)
        else:
            self._unstored[option_id] = value

    def _apply(self, option_id: str, value: str | bool) -> None:
        if option_id == MODE_OPTION_ID:
            self._preset = str(value)
        else:
            self._values[option_id] = value

    def _fold(self) -> None:
        """Take over what a stored log says, as far as it is still declared.

        Rule: settings-are-logged-at-once.
        """
        inherited = self._session.header.seed_length or 0
        events = self._session.events
        told_at = _last_telling(events)
        if told_at is not None:
            self._told = self._preset
        for event in events.of_types(_SETTINGS):
            data = event.data
            if event.type == "config/set":
                self._fold_option(data["configId"], data["value"])
                continue
            # A fork starts asking, whatever its parent did (fork-starts-without-grants).
            if data["preset"] != "full-access" or event.seq >= inherited:
                self._preset = self._known_preset(data["preset"])
            if told_at is not None and event.seq < told_at:
                self._told = data["preset"]

    def _known_preset(self, preset: str | None) -> str | None:
        return preset if preset in self._modes else self._initial[MODE_OPTION_ID]

    def _fold_option(self, option_id: str, value: object) -> None:
        option = self._options.get(option_id)
        if option is not None:
            self._values[option_id] = value if option.takes(value) else option.initial


def _last_telling(events: EventView) -> int | None:
    """Return the seq since which the model has known the preset; a prompt brings the news first."""
    event = events.last_of(_MESSAGES)
    while event is not None and not _tells_preset(event):
        event = events.last_of(_MESSAGES, event.seq)
    return None if event is None else event.seq


def _tells_preset(event: Event) -> bool:
    if event.type == "user/message":
        return bool(event.data["source"]["kind"] == "user")
    return bool(event.data["source"] == _SOURCE)


def _event_of(option_id: str, value: str | bool) -> PendingEvent:
    if option_id == MODE_OPTION_ID:
        return PendingEvent("permission/preset", {"preset": value})
    return PendingEvent("config/set", {"configId": option_id, "value": value})

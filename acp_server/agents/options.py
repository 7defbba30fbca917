"""What an agent lets its users set: permission presets and options of its own (mode-has-two-views).

Declarations only; what is set in a session is known to `turns.settings`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Choice:
    """One choice of a `SelectOption`.

    Attributes:
        value: What `turn.option` returns.
        name: What the user reads; the value by default.
        description: One line more.
    """

    value: str
    name: str | None = None
    description: str | None = None


@dataclass(frozen=True, slots=True)
class SelectOption:
    """A config option with a list of choices.

    Attributes:
        id: Its name in `turn.option`.
        name: What the user reads.
        choices: At least one; a text stands for a choice of that value and name.
        default: Value until one is set; the first choice's by default.
        description: One line more.
        category: `model`, `model_config`, `thought_level`, or a name of your own that begins
            with `_`: clients show known ones in their place.
    """

    id: str
    name: str
    choices: tuple[Choice | str, ...]
    default: str | None = None
    description: str | None = None
    category: str | None = None

    def __post_init__(self) -> None:
        if self.initial not in self.values:
            message = f"option {self.id!r} has no choice {self.initial!r}"
            raise ValueError(message)

    @property
    def values(self) -> tuple[str, ...]:
        """The values to choose from."""
        return tuple(item if isinstance(item, str) else item.value for item in self.choices)

    @property
    def initial(self) -> str | None:
        """The value until one is set."""
        return self.default or next(iter(self.values), None)

    def takes(self, value: object) -> bool:
        """Tell whether `value` is one of the choices."""
        return isinstance(value, str) and value in self.values


@dataclass(frozen=True, slots=True)
class BooleanOption:
    """A config option that is on or off. Only clients that can show it are told of it.

    Attributes:
        id: Its name in `turn.option`.
        name: What the user reads.
        default: Value until one is set.
        description: One line more.
        category: See `SelectOption`.
    """

    id: str
    name: str
    default: bool = False
    description: str | None = None
    category: str | None = None

    @property
    def initial(self) -> bool:
        """The value until one is set."""
        return self.default

    def takes(self, value: object) -> bool:
        """Tell whether `value` is true or false."""
        return isinstance(value, bool)


ConfigOption = SelectOption | BooleanOption

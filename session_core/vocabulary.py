"""The vocabulary of a session log: which event types are known, and what their payloads must be.

Owns the checks at `append` and on load, the removed forms (removed-forms-are-refused), and the ways
a plugin adds words of its own. Unknown types are legal everywhere and log-only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from session_core import core_events
from session_core.errors import (
    LegacyVocabularyError,
    LoadedFieldError,
    PayloadError,
    SeedError,
    VocabularyError,
)
from session_core.events import SURFACE_TYPES, Event
from session_core.json_value import FrozenDict
from session_core.shapes import Check, Problem, anything

_LIFECYCLE_TYPES: Final = frozenset(
    {"turn/start", "turn/end", "step/start", "step/end", "request/header"}
)


def _frozen(table: Mapping[str, Check]) -> Mapping[str, Check]:
    return MappingProxyType(dict(table))


@dataclass(frozen=True, slots=True, repr=False)
class Vocabulary:
    """An immutable set of known event types, turn triggers and turn end reasons.

    The `register*` methods return a larger vocabulary and leave this one as it is.
    """

    append_checks: Mapping[str, Check] = field(
        default_factory=lambda: _frozen(core_events.APPEND_CHECKS)
    )
    load_checks: Mapping[str, Check] = field(
        default_factory=lambda: _frozen(core_events.LOAD_CHECKS)
    )
    triggers: Mapping[str, Check] = field(default_factory=lambda: _frozen(core_events.TRIGGERS))
    end_reasons: Mapping[str, Check] = field(
        default_factory=lambda: _frozen(core_events.END_REASONS)
    )
    out_of_band: frozenset[str] = core_events.OUT_OF_BAND

    def register(
        self,
        event_type: str,
        check: Check = anything,
        *,
        load_check: Check | None = None,
        out_of_band: bool = False,
    ) -> "Vocabulary":
        """Return this vocabulary with a log-only event type more.

        Args:
            event_type: `family/name`, not yet known.
            check: Held against the payload at `append`.
            load_check: Held against the payload when a stored log is read; `None` for none.
            out_of_band: Whether the event may be appended between turns
                (out-of-band-append-makes-own-turn).

        Raises:
            VocabularyError: The type is known already, or was removed from the format.
        """
        if self.knows(event_type):
            raise VocabularyError(event_type, "the event type is taken")
        return replace(
            self,
            append_checks=_frozen({**self.append_checks, event_type: check}),
            load_checks=_frozen({**self.load_checks, event_type: load_check or anything}),
            out_of_band=self.out_of_band | {event_type} if out_of_band else self.out_of_band,
        )

    def register_trigger(self, kind: str, check: Check = anything) -> "Vocabulary":
        """Return this vocabulary with a checked kind of turn trigger more.

        Raises:
            VocabularyError: The kind is known already.
        """
        if kind in self.triggers:
            raise VocabularyError(kind, "the trigger kind is taken")
        return replace(self, triggers=_frozen({**self.triggers, kind: check}))

    def register_end_reason(self, kind: str, check: Check = anything) -> "Vocabulary":
        """Return this vocabulary with a checked kind of turn end reason more.

        Raises:
            VocabularyError: The kind is known already.
        """
        if kind in self.end_reasons:
            raise VocabularyError(kind, "the end reason is taken")
        return replace(self, end_reasons=_frozen({**self.end_reasons, kind: check}))

    def knows(self, event_type: str) -> bool:
        """Return whether the type is known, or was removed from the format."""
        return event_type in self.append_checks or event_type in _REMOVED_TYPES

    def is_out_of_band(self, event_type: str) -> bool:
        """Return whether the type's owner made it eligible for an out-of-band append."""
        return (
            event_type in self.out_of_band
            and event_type not in SURFACE_TYPES
            and event_type not in _LIFECYCLE_TYPES
        )

    def check_append(self, event_type: str, data: Any) -> None:
        """Hold a payload that is about to be appended against the shape of its type.

        Raises:
            PayloadError: The type is known and the payload has another shape.
        """
        check = self.append_checks.get(event_type)
        if check is None:
            return
        problem = check(data) if type(data) is FrozenDict else Problem("data", "an object")
        problem = problem or self._boundary_problem(event_type, data)
        if problem:
            raise PayloadError(event_type, problem.field, problem.expected)

    def _boundary_problem(self, event_type: str, data: FrozenDict) -> Problem | None:
        """Check the open sums of turn boundaries, whose kinds are registered separately."""
        if event_type == "turn/start":
            key, kinds = "trigger", self.triggers
        elif event_type == "turn/end":
            key, kinds = "reason", self.end_reasons
        else:
            return None
        check = kinds.get(data[key]["kind"])
        problem = check(data[key]) if check else None
        return problem.inside(key) if problem else None

    def check_loaded(self, event: Event) -> None:
        """Hold a stored event against what reading the log needs.

        Rules: seed-is-checked-like-appends, stored-payloads-are-checked-for-use.

        Raises:
            LegacyVocabularyError: The event has a form that was removed from the format.
            LoadedFieldError: A field that projection or derivation reads is missing or wrong.
            SeedError: Provider or model is missing, or an aborted end carries a reason.
        """
        event_type, data = event.type, event.data
        if event_type not in self.load_checks:
            refuse_legacy(event_type, data)
            return
        if type(data) is not FrozenDict:
            raise LoadedFieldError(event.seq, event_type, "data", "an object")
        if problem := _provenance_problem(event_type, data):
            raise LoadedFieldError(event.seq, event_type, problem.field, problem.expected)
        if event_type == "turn/end" and _is_aborted_with_reason(data.get("reason")):
            raise SeedError(event.seq, "turn/end: an aborted end carries nothing but its kind")
        refuse_legacy(event_type, data)
        if problem := self.load_checks[event_type](data):
            raise LoadedFieldError(event.seq, event_type, problem.field, problem.expected)


_REMOVED_TYPES: Final = frozenset({"request/header-delta", "mode/set"})


def refuse_legacy(event_type: str, data: Any) -> None:
    """Refuse the request-header forms that were removed from the format.

    Raises:
        LegacyVocabularyError: It is one of them.
    """
    if event_type == "request/header-delta":
        raise LegacyVocabularyError(event_type, "the delta form of the request header")
    if event_type != "request/header" or type(data) is not FrozenDict:
        return
    if data.get("reason") == "fallback":
        raise LegacyVocabularyError(event_type, "the reason 'fallback'")


def refuse_stored_legacy(event_type: str, data: Any) -> None:
    """Refuse every form that a store must neither write nor read (removed-forms-are-refused).

    Raises:
        LegacyVocabularyError: It is one of them.
    """
    if event_type == "mode/set":
        raise LegacyVocabularyError(event_type, "the event type")
    refuse_legacy(event_type, data)


def _provenance_problem(event_type: str, data: FrozenDict) -> Problem | None:
    if event_type == "request/header":
        return core_events.LOADED_HEADER(data)
    if event_type == "assistant/message":
        return core_events.LOADED_PROVENANCE(data)
    return None


def _is_aborted_with_reason(reason: Any) -> bool:
    return type(reason) is FrozenDict and reason.get("kind") == "aborted" and len(reason) > 1


CORE_VOCABULARY: Final = Vocabulary()
"""The vocabulary (event-types-have-fixed-payloads) and of this project's own events."""

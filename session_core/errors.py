"""Every error the session core raises, all of one base."""

from typing import Literal

ForkErrorCode = Literal[
    "SESSION_ALREADY_EXISTS",
    "SESSION_NOT_FOUND",
    "SESSION_NOT_LIVE",
    "INVALID_BOUNDARY",
    "OPEN_TURN",
]


class SessionCoreError(Exception):
    """Base of all errors of this package."""


class NotJsonError(SessionCoreError):
    """A value is outside the lossless JSON domain (json-values-are-lossless)."""

    def __init__(self, what: str, reason: str) -> None:
        self.what = what
        self.reason = reason
        super().__init__(f"{what} is not lossless JSON: {reason}")


class PayloadError(SessionCoreError):
    """The payload of a known event type has the wrong shape."""

    def __init__(self, event_type: str, field: str, expected: str) -> None:
        self.event_type = event_type
        self.field = field
        self.expected = expected
        super().__init__(f"{event_type}: field {field!r} must be {expected}")


class LegacyVocabularyError(SessionCoreError):
    """The event uses a form that was removed from the format (removed-forms-are-refused)."""

    def __init__(self, event_type: str, form: str) -> None:
        self.event_type = event_type
        self.form = form
        super().__init__(f"{event_type}: {form} is no longer part of the format")


class SurfaceError(SessionCoreError):
    """Surface placement or provenance is wrong (placement-follows-event-type)."""

    def __init__(self, event_type: str, reason: str) -> None:
        self.event_type = event_type
        self.reason = reason
        super().__init__(f"{event_type}: {reason}")


class ReentrantAppendError(SessionCoreError):
    """An append was made while another append on the same session is being published."""

    def __init__(self, session_id: str, event_type: str) -> None:
        self.session_id = session_id
        self.event_type = event_type
        super().__init__(
            f"{event_type} was appended to session {session_id!r} while it publishes an event"
        )


class InvariantViolationError(SessionCoreError):
    """An event breaks the order of turns, steps and tool calls (turns-and-steps-nest)."""

    def __init__(self, event_type: str, seq: int, rule: str) -> None:
        self.event_type = event_type
        self.seq = seq
        self.rule = rule
        super().__init__(f"{event_type} at seq {seq}: {rule}")


class EnvelopeError(SessionCoreError):
    """A value is no event: its envelope has wrong, missing or extra keys.

    Rule: event-has-fixed-envelope.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"invalid envelope: {reason}")


class SeedError(SessionCoreError):
    """One event of a seed or stored log is refused; `index` is its place in the log."""

    def __init__(self, index: int, reason: str) -> None:
        self.index = index
        self.reason = reason
        super().__init__(f"event at index {index}: {reason}")


class LoadedFieldError(SeedError):
    """A stored event of a known type lacks a field that projection or derivation reads.

    Rule: stored-payloads-are-checked-for-use.
    """

    def __init__(self, seq: int, event_type: str, field: str, expected: str) -> None:
        self.seq = seq
        self.event_type = event_type
        self.field = field
        super().__init__(seq, f"{event_type}: field {field!r} must be {expected}")


class SessionHeaderError(SessionCoreError):
    """A session header is not valid (header-is-immutable-record)."""

    def __init__(self, field: str, expected: str) -> None:
        self.field = field
        super().__init__(f"session header: {field!r} must be {expected}")


class MalformedRowError(SessionCoreError):
    """A stored value has the tag of a packed chunk row but not its shape (malformed-rows-raise)."""

    def __init__(self, tag: str, reason: str) -> None:
        self.tag = tag
        self.reason = reason
        super().__init__(f"malformed {tag} storage row: {reason}")


class StreamOrderError(SessionCoreError):
    """A stream chunk came out of order (stream-chunks-have-fixed-shapes)."""

    def __init__(self, chunk_type: str, reason: str) -> None:
        self.chunk_type = chunk_type
        super().__init__(f"chunk {chunk_type!r} {reason}")


class VocabularyError(SessionCoreError):
    """A registration clashes with the vocabulary."""

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        super().__init__(f"cannot register {name!r}: {reason}")


class CardError(SessionCoreError):
    """A card view has the wrong shape."""

    def __init__(self, field: str, expected: str) -> None:
        self.field = field
        super().__init__(f"card view: field {field!r} must be {expected}")


class StoreError(SessionCoreError):
    """Base of the errors about which sessions are live in a store."""


class SessionExistsError(StoreError):
    """The id is taken by a live session, or the object is already in a store."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(f"session {session_id!r} is already live")


class SessionNotLiveError(StoreError):
    """The session object is not the live one of its id in this store."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(f"session {session_id!r} is not live in this store")


class AnnounceError(StoreError):
    """A session may be announced once only."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(f"session {session_id!r} was already announced")


class OutOfBandError(StoreError):
    """An out-of-band append is refused before anything is written.

    Rule: out-of-band-append-makes-own-turn.
    """

    def __init__(self, session_id: str, event_type: str, reason: str) -> None:
        self.session_id = session_id
        self.event_type = event_type
        super().__init__(f"out-of-band {event_type} on session {session_id!r}: {reason}")


class ForkError(StoreError):
    """A fork is refused; `code` is the typed reason (fork-refusals-have-typed-codes)."""

    def __init__(self, code: ForkErrorCode, detail: str) -> None:
        self.code = code
        super().__init__(f"{code}: {detail}")


class TurnNumberError(SessionCoreError):
    """The log names the highest turn number there is: it can be read, and not be continued."""

    def __init__(self, session_id: str, last: int) -> None:
        self.session_id = session_id
        super().__init__(
            f"session {session_id!r} cannot be continued: no number is left behind turn {last}"
        )


class CompactionError(SessionCoreError):
    """Base of the refusals of the compaction producer."""

    def __init__(self, session_id: str, reason: str) -> None:
        self.session_id = session_id
        super().__init__(f"session {session_id!r} cannot be compacted: {reason}")


class PartedCallError(CompactionError):
    """The range would part the call `call_id` from its result."""

    def __init__(self, session_id: str, call_id: str) -> None:
        self.call_id = call_id
        super().__init__(session_id, f"the range parts tool call {call_id!r} from its result")


class TurnRunningError(CompactionError):
    """A turn is open; compaction takes a turn of its own."""

    def __init__(self, session_id: str, turn: int) -> None:
        self.turn = turn
        super().__init__(session_id, f"turn {turn} is running")

"""What a session is: events, append rules, surface, derived history, repair, invariants. No I/O."""

from session_core.assembler import StreamAssembler, assembled_stream
from session_core.cards import check_view, is_call_view
from session_core.chunk_rows import decode_storage_record, decode_storage_run, pack_records
from session_core.chunks import ChunkRun, DeltaKey, DeltaKind
from session_core.clock import Clock, system_clock
from session_core.compaction import Summarize, Summary, compact_range, prune_tool_result
from session_core.errors import (
    AnnounceError,
    CardError,
    CompactionError,
    EnvelopeError,
    ForkError,
    InvariantViolationError,
    LegacyVocabularyError,
    LoadedFieldError,
    MalformedRowError,
    NotJsonError,
    OutOfBandError,
    PartedCallError,
    PayloadError,
    ReentrantAppendError,
    SeedError,
    SessionCoreError,
    SessionExistsError,
    SessionHeaderError,
    SessionNotLiveError,
    StoreError,
    StreamOrderError,
    SurfaceError,
    TurnNumberError,
    TurnRunningError,
    VocabularyError,
)
from session_core.events import (
    APPEND,
    MAX_DATA_DEPTH,
    SURFACE_TYPES,
    CallId,
    Event,
    Message,
    Replace,
    SessionId,
    SurfaceIntent,
    SurfaceOp,
    event_from_json,
)
from session_core.folds import (
    GrantKey,
    current_grants,
    current_title,
    find_last_message_turn_end,
    is_turn_open,
    last_event_of,
    last_turn_number,
    open_turn,
)
from session_core.header import SESSION_FORMAT_VERSION, SessionHeader
from session_core.invariants import InvariantTrace, Violation, trace_of
from session_core.json_value import (
    INVALID,
    MAX_SAFE_INT,
    FrozenDict,
    FrozenList,
    JsonValue,
    clean_json,
    clean_text,
    is_json_value,
    is_safe_int,
    is_same_json,
    is_seq_int,
    snapshot_json_value,
)
from session_core.listener import StoreListener
from session_core.log import EventLog, Events, EventView, Record, events_of, records_of
from session_core.log_builder import EventLogBuilder
from session_core.log_state import LogState, state_of
from session_core.own_turn import own_turn
from session_core.projection import derive_event_message, display_prompt_content, frame
from session_core.repair import NOT_STARTED_TEXT, OUTCOME_UNKNOWN_TEXT, compute_closers
from session_core.request_header import (
    HeaderReason,
    RequestHeaderRecorder,
    canonical_header,
    fold_request_header,
    header_equals,
)
from session_core.session import Session
from session_core.shapes import Check, Problem
from session_core.store import SessionStore
from session_core.surface import (
    Replacement,
    Surface,
    SurfaceFold,
    fold_surface,
    is_surface_eligible_type,
    is_surface_event,
)
from session_core.vocabulary import CORE_VOCABULARY, Vocabulary, refuse_stored_legacy

__all__ = [
    # JSON
    "INVALID",
    "MAX_SAFE_INT",
    "FrozenDict",
    "FrozenList",
    "JsonValue",
    "clean_json",
    "clean_text",
    "is_json_value",
    "is_safe_int",
    "is_same_json",
    "is_seq_int",
    "snapshot_json_value",
    # Events
    "APPEND",
    "MAX_DATA_DEPTH",
    "SURFACE_TYPES",
    "CallId",
    "Event",
    "Message",
    "Replace",
    "SessionId",
    "SurfaceIntent",
    "SurfaceOp",
    "event_from_json",
    # Vocabulary
    "CORE_VOCABULARY",
    "Check",
    "Problem",
    "Vocabulary",
    "refuse_stored_legacy",
    # Log
    "ChunkRun",
    "DeltaKey",
    "DeltaKind",
    "EventLog",
    "EventLogBuilder",
    "LogState",
    "state_of",
    "EventView",
    "Events",
    "Record",
    "events_of",
    "records_of",
    # Session
    "Clock",
    "SESSION_FORMAT_VERSION",
    "Session",
    "SessionHeader",
    "system_clock",
    # Store
    "SessionStore",
    "StoreListener",
    # Surface and projections
    "Replacement",
    "Surface",
    "SurfaceFold",
    "derive_event_message",
    "display_prompt_content",
    "fold_surface",
    "frame",
    "is_surface_eligible_type",
    "is_surface_event",
    # Request header
    "HeaderReason",
    "RequestHeaderRecorder",
    "canonical_header",
    "fold_request_header",
    "header_equals",
    # Folds
    "GrantKey",
    "current_grants",
    "current_title",
    "find_last_message_turn_end",
    "is_turn_open",
    "last_event_of",
    "last_turn_number",
    "open_turn",
    # Invariants
    "InvariantTrace",
    "Violation",
    "trace_of",
    # Repair
    "NOT_STARTED_TEXT",
    "OUTCOME_UNKNOWN_TEXT",
    "compute_closers",
    # Storage codec
    "decode_storage_record",
    "decode_storage_run",
    "pack_records",
    # Streams and cards
    "StreamAssembler",
    "assembled_stream",
    "check_view",
    "is_call_view",
    # Compaction
    "Summarize",
    "Summary",
    "compact_range",
    "own_turn",
    "prune_tool_result",
    # Errors
    "AnnounceError",
    "CardError",
    "CompactionError",
    "EnvelopeError",
    "ForkError",
    "SessionHeaderError",
    "InvariantViolationError",
    "LegacyVocabularyError",
    "LoadedFieldError",
    "MalformedRowError",
    "NotJsonError",
    "OutOfBandError",
    "PartedCallError",
    "PayloadError",
    "ReentrantAppendError",
    "SeedError",
    "SessionCoreError",
    "SessionExistsError",
    "SessionNotLiveError",
    "StoreError",
    "StreamOrderError",
    "SurfaceError",
    "TurnNumberError",
    "TurnRunningError",
    "VocabularyError",
]

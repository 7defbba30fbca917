"""Every statement of the backend, and the shape of its tables (database-has-fixed-shape).

Constants only; values are bound by whoever executes them. `user_version` is `SCHEMA_VERSION`, and
what a released version has created must load for ever.
"""

# Column lists are put together from constants; every value is bound.
# ruff: noqa: S608

from __future__ import annotations

from typing import Final

APPLICATION_ID: Final = 0x41435053  # "ACPS"
SCHEMA_VERSION: Final = 1

# A text that a checkpoint could not yet move stays in the -wal file; this bounds what is kept of
# that file once a reader that held it up is gone.
_MAX_IDLE_WAL_BYTES: Final = 4 << 20

CREATE: Final = (
    """
    CREATE TABLE persistence_state (
        singleton INTEGER NOT NULL PRIMARY KEY CHECK (singleton = 1),
        store_id TEXT NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE sessions (
        id TEXT NOT NULL PRIMARY KEY,
        version INTEGER NOT NULL,
        created_at INTEGER NOT NULL,
        cwd TEXT,
        parent_session TEXT,
        seed_length INTEGER,
        delegation_depth INTEGER,
        extra TEXT,
        incarnation TEXT NOT NULL,
        revision INTEGER NOT NULL,
        title TEXT,
        first_prompt TEXT,
        updated_at INTEGER NOT NULL,
        event_count INTEGER NOT NULL,
        turn_count INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE INDEX sessions_by_update ON sessions (updated_at DESC, id)",
    # A directory never changes, so no append has to touch this one.
    "CREATE INDEX sessions_by_cwd ON sessions (cwd)",
    """
    CREATE TABLE events (
        session_id TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
        seq INTEGER NOT NULL,
        last_seq INTEGER NOT NULL,
        type TEXT NOT NULL,
        time INTEGER NOT NULL,
        data TEXT NOT NULL,
        source_event_seqs TEXT,
        surface_op TEXT,
        crc INTEGER,
        PRIMARY KEY (session_id, seq)
    ) STRICT, WITHOUT ROWID
    """,
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)
CREATE_STATE: Final = "INSERT INTO persistence_state (singleton, store_id) VALUES (1, ?)"

# Settings of a connection. Nothing that stands in a database file is trusted to be ours.
SETTINGS: Final = (
    "PRAGMA trusted_schema = OFF",
    "PRAGMA cell_size_check = ON",
    "PRAGMA foreign_keys = ON",
)
WRITER_SETTINGS: Final = (
    "PRAGMA synchronous = FULL",
    "PRAGMA secure_delete = ON",
    f"PRAGMA journal_size_limit = {_MAX_IDLE_WAL_BYTES}",
)
READER_SETTINGS: Final = ("PRAGMA query_only = ON",)
# fsync on macOS stops at the drive's cache (database-is-durable-and-private).
MACOS_SETTINGS: Final = ("PRAGMA fullfsync = ON", "PRAGMA checkpoint_fullfsync = ON")

# PRAGMA takes no bound values; the number comes from our own clock.
BUSY_TIMEOUT: Final = "PRAGMA busy_timeout = %d"
JOURNAL_MODE: Final = "PRAGMA journal_mode"
USE_WAL: Final = "PRAGMA journal_mode = WAL"
USE_MEMORY_JOURNAL: Final = "PRAGMA journal_mode = MEMORY"
# Else a first page that names more pages than the file has is an error before it can be read.
TOLERATE_A_WRONG_SIZE: Final = "PRAGMA writable_schema = ON"
READ_APPLICATION_ID: Final = "PRAGMA application_id"
READ_SCHEMA_VERSION: Final = "PRAGMA user_version"
FOREIGN_KEYS_OFF: Final = "PRAGMA foreign_keys = OFF"
FOREIGN_KEYS_ON: Final = "PRAGMA foreign_keys = ON"
RESTART_WAL: Final = "PRAGMA wal_checkpoint(RESTART)"
TRUNCATE_WAL: Final = "PRAGMA wal_checkpoint(TRUNCATE)"

BEGIN: Final = "BEGIN"
BEGIN_IMMEDIATE: Final = "BEGIN IMMEDIATE"
COMMIT: Final = "COMMIT"
ROLLBACK: Final = "ROLLBACK"

READ_STORE_ID: Final = "SELECT store_id FROM persistence_state WHERE singleton = 1"

_HEADER: Final = (
    "version, id, created_at, cwd, parent_session, seed_length, delegation_depth, extra"
)
_SUMMARY: Final = "title, first_prompt, updated_at, event_count, turn_count"
_SESSION: Final = f"{_HEADER}, incarnation, revision, {_SUMMARY}"
_EVENT: Final = "seq, last_seq, type, time, data, source_event_seqs, surface_op, crc"

# Each of these fails on a database that has not our tables.
PROBES: Final = (
    f"SELECT {_SESSION} FROM sessions LIMIT 0",
    f"SELECT session_id, {_EVENT} FROM events LIMIT 0",
)

# Events whose session is gone are damage, and nobody may write over them.
HAS_EVENTS: Final = "SELECT 1 FROM events WHERE session_id = ?1"
HAS_SESSION: Final = f"SELECT 1 FROM sessions WHERE id = ?1 UNION ALL {HAS_EVENTS} LIMIT 1"
READ_SESSION: Final = f"SELECT {_SESSION} FROM sessions WHERE id = ?"
READ_GUARD: Final = "SELECT incarnation, revision FROM sessions WHERE id = ?"
READ_EVENTS: Final = f"SELECT {_EVENT} FROM events WHERE session_id = ? ORDER BY seq"
READ_LAST_SEQ: Final = "SELECT last_seq FROM events WHERE session_id = ? ORDER BY seq DESC LIMIT 1"

INSERT_SESSION: Final = (
    f"INSERT INTO sessions ({_SESSION}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
INSERT_EVENT: Final = (
    f"INSERT INTO events (session_id, {_EVENT}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
UPDATE_SESSION: Final = """
    UPDATE sessions
    SET revision = revision + 1,
        title = ?, first_prompt = ?, updated_at = ?, event_count = ?, turn_count = ?
    WHERE id = ?
"""
DELETE_EVENTS_FROM: Final = "DELETE FROM events WHERE session_id = ? AND seq >= ?"
DELETE_LAST_EVENTS: Final = """
    DELETE FROM events WHERE session_id = ?1 AND seq IN (
        SELECT seq FROM events WHERE session_id = ?1 ORDER BY seq DESC LIMIT ?2
    )
"""
DELETE_SESSION: Final = "DELETE FROM sessions WHERE id = ?"

# Keyset pages by the index; the first condition is what lets the index be entered at the key.
_AFTER: Final = "updated_at <= ?1 AND (updated_at < ?1 OR id > CAST(?2 AS TEXT))"
_PAGE_ORDER: Final = "ORDER BY updated_at DESC, id LIMIT ?3"
FIRST_KEY: Final = ((1 << 63) - 1, b"")
# A row whose key a flipped bit has changed has no place in this order, and pages would never end.
_HAS_KEY: Final = "typeof(updated_at) = 'integer' AND typeof(id) = 'text'"
READ_KEYLESS: Final = f"SELECT id FROM sessions WHERE NOT ({_HAS_KEY})"
READ_PAGE: Final = f"SELECT {_SESSION} FROM sessions WHERE {_AFTER} AND {_HAS_KEY} {_PAGE_ORDER}"
READ_PAGE_OF_CWDS: Final = f"""
    SELECT {_SESSION} FROM sessions
    WHERE cwd IN (SELECT value FROM json_each(?4)) AND {_AFTER} AND {_HAS_KEY} {_PAGE_ORDER}
"""
READ_CWDS: Final = "SELECT DISTINCT cwd FROM sessions WHERE typeof(cwd) = 'text'"

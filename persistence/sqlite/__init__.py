"""Sessions in one SQLite database (database-has-fixed-shape, database-never-blocks-loop)."""

from persistence.sqlite.backend import SqliteBackend

__all__ = ["SqliteBackend"]

"""Sessions in one SQLite database (contract 5.10, Z24)."""

from persistence.sqlite.backend import SqliteBackend

__all__ = ["SqliteBackend"]

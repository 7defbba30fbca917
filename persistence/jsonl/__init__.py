"""Session logs in JSONL files, one directory a session."""

from persistence.jsonl.backend import JsonlBackend

__all__ = ["JsonlBackend"]

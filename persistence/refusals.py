"""Records that were written well and are refused all the same.

A crash leaves half a record, never a whole one of the wrong kind. So what is refused for what it
says is no torn tail, wherever it stands: it must not be cut off and forgotten (contract 5.3, Z17).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from session_core import LegacyVocabularyError, LoadedFieldError

if TYPE_CHECKING:
    from persistence.records import BadRecordError


def is_refusal(error: BadRecordError) -> bool:
    """Tell whether a record is of removed vocabulary, or lacks a field that loading needs."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, LegacyVocabularyError | LoadedFieldError):
            return True
        cause = cause.__cause__
    return False

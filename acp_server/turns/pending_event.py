"""An event that is yet to be appended."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from session_core import SurfaceIntent


class PendingEvent(NamedTuple):
    """An event that is to be appended; see `Session.append` for its parts."""

    type: str
    data: Mapping[str, Any]
    intent: SurfaceIntent | None = None


AppendEvent = Callable[[PendingEvent], object]
"""Appends an event, or raises and leaves the log as it was."""

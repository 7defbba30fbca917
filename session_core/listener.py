"""What a store tells those who follow its sessions: a mirror, a persistence, a client bridge."""

from session_core.events import Event
from session_core.session import Session


class StoreListener:
    """Base of store listeners: override what you want to hear, the rest costs nothing.

    All but `on_write` and `on_flush` are synchronous and must not block.
    """

    def before_append(self, session: Session, event: Event) -> None:
        """Look at a candidate before it is committed; raising vetoes it."""

    def on_created(self, session: Session) -> None:
        """Hear of a new live session, with all the events it has; raising takes it back."""

    def on_event(self, session: Session, event: Event) -> None:
        """Hear of a committed event, in log order. What this raises is logged and contained."""

    async def on_write(self, session: Session) -> None:
        """Get ready for events that no turn runner appends.

        What this raises reaches the caller, and nothing is appended.
        """

    async def on_flush(self, session: Session) -> None:
        """Make durable what was appended before the call. What this raises reaches the flusher."""

    def on_disposed(self, session: Session) -> None:
        """Hear that an announced session is live no more. What this raises is logged."""


def overrides(listener: StoreListener, method: str) -> bool:
    """Return whether `listener` has a `method` of its own."""
    return getattr(type(listener), method) is not getattr(StoreListener, method)

"""What a backend's author provides for the checks, and the helpers that they are written with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import anyio
import anyio.lowlevel

from persistence.errors import StoreWriteError
from session_core import APPEND, Event, SessionHeader, SessionId, SurfaceIntent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from persistence.storage import (
        EntryPage,
        Location,
        SessionSummary,
        StorageBackend,
        StoredLog,
        Writer,
    )
    from session_core import Record, Session

CWD = "/work/project"

FnT = TypeVar("FnT", bound=Callable[..., Any])
ErrorT = TypeVar("ErrorT", bound=BaseException)


class BackendHarness(Protocol):
    """One place of storage, and ways to change it behind the backend's back.

    A harness starts empty. Its methods are called between the backend's calls, never during one;
    `tear`, `damage` and `grow` only for sessions that are stored.
    """

    def open(self) -> StorageBackend:
        """Open the storage anew, as another process would; waits for locks are short."""
        ...

    def tear(self, session_id: str) -> None:
        """Leave half a record at the end of a log, as a crash does."""
        ...

    def plant(self, session_id: str, *records: bytes) -> None:
        """Put records behind a log as they are, with no checksum that covers them.

        Args:
            session_id: The session.
            records: Storage records, or what a crash left of them. Each but the last one ends
                with its LF; a store without lines keeps what stands before it.
        """
        ...

    def damage(self, session_id: str) -> None:
        """Make a record in the middle of a log unreadable."""
        ...

    def grow(self, session_id: str) -> None:
        """Append to a log as a writer that ignores the lock would."""
        ...

    def contents(self, session_id: str) -> object:
        """Return all that is stored of a log, for comparison with `==`; None if nothing is."""
        ...


Check: TypeAlias = Callable[[BackendHarness], Awaitable[None]]


class _Marks:
    """What a check may be marked with. Not pytest's marks: a strict one knows only its own."""

    def rule(self, *ids: str) -> Callable[[FnT], FnT]:
        """Name the rules of docs/spec that a check holds."""
        return self._with("rules", ids)

    def case(self, *ids: str) -> Callable[[FnT], FnT]:
        """Name the field cases of docs/spec/field-cases.md that a check holds."""
        return self._with("cases", ids)

    def _with(self, name: str, ids: tuple[str, ...]) -> Callable[[FnT], FnT]:
        def mark(check: FnT) -> FnT:
            setattr(check, name, ids)  # for whoever wants to know
            return check

        return mark


mark = _Marks()


def check_name(check: Check) -> str:
    """Return a check's sentence, for the test's id."""
    return getattr(check, "__name__", "check")


def expect(found: object, wanted: object) -> None:
    """Raise unless both are equal."""
    if found != wanted:
        msg = f"found {found!r}, wanted {wanted!r}"
        raise AssertionError(msg)


class Raised:
    """What a `refusing` block caught."""

    error: Any = None


@contextmanager
def refusing(error_type: type[BaseException]) -> Iterator[Raised]:
    """Raise unless the block raises `error_type`; what was raised is kept in `error`."""
    raised = Raised()
    try:
        yield raised
    except error_type as error:
        raised.error = error
    else:
        msg = f"{error_type.__name__} was not raised"
        raise AssertionError(msg)


def header(session_id: str, cwd: str | None = CWD, created_at: int = 1000) -> SessionHeader:
    """Return a session's header."""
    return SessionHeader(SessionId(session_id), created_at, cwd)


def turn_events(turn: int, start: int, *, text: str = "hello", time: int = 2000) -> list[Event]:
    """Return a small closed turn, `start` being the seq of its first event."""
    trigger = {"kind": "message", "source": {"kind": "user"}}
    prompt = {"content": [{"type": "text", "text": text}], "source": {"kind": "user"}}
    bodies: list[tuple[str, dict[str, Any], Any]] = [
        ("turn/start", {"turn": turn, "trigger": trigger}, None),
        ("user/message", prompt, "append"),
        ("turn/end", {"turn": turn, "reason": {"kind": "completed"}}, None),
    ]
    return [
        Event(event_type, start + offset, time + offset, data, None, op)  # type: ignore[arg-type]
        for offset, (event_type, data, op) in enumerate(bodies)
    ]


def begin_turn(session: Session, text: str = "hello") -> int:
    """Append the beginning of a turn, with its prompt; return its number."""
    turn = 1 + sum(1 for event in session.events if event.type == "turn/start")
    trigger = {"kind": "message", "source": {"kind": "user"}}
    session.append("turn/start", {"turn": turn, "trigger": trigger})
    prompt = {"content": [{"type": "text", "text": text}], "source": {"kind": "user"}}
    session.append("user/message", prompt, APPEND)
    return turn


def write_turn(session: Session, text: str = "hello", *, deltas: int = 5) -> None:
    """Append a whole turn with a streamed answer."""
    turn = begin_turn(session, text)
    session.append("step/start", {"turn": turn, "step": 1})
    first = session.seq
    for k in range(deltas):
        session.append_delta(turn, 1, "text-delta", 0, f"token {k} ")
    answer = {
        "turn": turn,
        "step": 1,
        "content": [{"type": "text", "text": "".join(f"token {k} " for k in range(deltas))}],
        "provenance": {"provider": "agent", "model": "test"},
    }
    intent = SurfaceIntent("append", range(first, session.seq))
    session.append("assistant/message", answer, intent)
    session.append("step/end", {"turn": turn, "step": 1})
    end_turn(session, turn)


def end_turn(session: Session, turn: int) -> None:
    """Append the end of a turn."""
    session.append("turn/end", {"turn": turn, "reason": {"kind": "completed"}})


class FailingBackend:
    """A backend whose appends fail while `failing` is set, with nothing written.

    Attributes:
        failing: Whether appends fail.
        appends: How many batches were asked for, failed ones included.
        attempted: Set by the first of them.
    """

    def __init__(self, inner: StorageBackend) -> None:
        self._inner = inner
        self.failing = False
        self.appends = 0
        self.attempted = anyio.Event()

    def locate(self, header: SessionHeader) -> Location | None:
        """See `StorageBackend.locate`."""
        return self._inner.locate(header)

    async def load_stored(self, session_id: str) -> StoredLog | None:
        """See `StorageBackend.load_stored`."""
        return await self._inner.load_stored(session_id)

    async def list_page(self, cwd: str | None, cursor: str | None, limit: int) -> EntryPage:
        """See `StorageBackend.list_page`."""
        return await self._inner.list_page(cwd, cursor, limit)

    async def acquire_writer(
        self, session_id: str, header: SessionHeader | None = None, *, wait: bool = True
    ) -> Writer:
        """See `StorageBackend.acquire_writer`."""
        return _FailingWriter(self, await self._inner.acquire_writer(session_id, header, wait=wait))

    async def close(self) -> None:
        """See `StorageBackend.close`."""
        await self._inner.close()


class _FailingWriter:
    def __init__(self, backend: FailingBackend, inner: Writer) -> None:
        self._backend = backend
        self._inner = inner

    @property
    def materialized(self) -> bool:
        return self._inner.materialized

    @property
    def position(self) -> object | None:
        return self._inner.position

    @property
    def former_pid(self) -> int | None:
        return self._inner.former_pid

    async def append_batch(
        self,
        header: SessionHeader,
        records: Sequence[Record],
        summary: SessionSummary | None = None,
    ) -> None:
        self._backend.appends += 1
        self._backend.attempted.set()
        if self._backend.failing:
            raise StoreWriteError(header.id, "disk full", "No space left on device")
        await self._inner.append_batch(header, records, summary)
        # Where a cancel would strike: the batch is written, and nobody knows it yet. Twice, since
        # a cancel that comes during one checkpoint is delivered at the next.
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()

    async def commit_repair(self, stored: StoredLog, closers: Sequence[Event]) -> None:
        await self._inner.commit_repair(stored, closers)

    async def continue_from(self, position: object) -> None:
        await self._inner.continue_from(position)

    async def delete(self) -> None:
        await self._inner.delete()

    async def release(self) -> None:
        await self._inner.release()

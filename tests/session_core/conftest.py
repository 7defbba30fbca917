"""Sessions to test with, and a short notation to fill them."""

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from session_core import (
    APPEND,
    Clock,
    Event,
    Session,
    SessionStore,
    SurfaceIntent,
    last_event_of,
    last_turn_number,
)

Write = Callable[..., list[Event]]


@pytest.fixture
def clock() -> Clock:
    """A clock that goes on by one millisecond each time it is asked, from 1000 on."""
    return count(1000).__next__


@pytest.fixture
def session(clock: Clock) -> Session:
    """A bare session, in no store."""
    return Session("bare", clock=clock)


@pytest.fixture
def store(clock: Clock) -> SessionStore:
    return SessionStore(clock)


@pytest.fixture
def live(store: SessionStore) -> Session:
    """A session in the store."""
    return store.create("live", cwd="/work")


@pytest.fixture
def write() -> Write:
    """Append events in a short notation: `write(session, "turn", "user hello", "/turn")`.

    turn [TRIGGER] · user TEXT · plugin TEXT · context TEXT · steer TEXT · blocked TEXT · step ·
    delta TEXT · say TEXT · ask ID… · call ID · result ID · todo TEXT · /step · /turn [REASON]
    """

    def write(session: Session, *words: str) -> list[Event]:
        return [_write_one(session, *word.split(" ", 1)) for word in words]

    return write


def _write_one(session: Session, verb: str, rest: str = "") -> Event:
    event_type, data, intent = _NOTATION[verb](session, rest)
    return session.append(event_type, data, intent)


_Spec = tuple[str, dict[str, Any], SurfaceIntent | None]


def _here(session: Session) -> dict[str, int]:
    step = last_event_of(session.events, ("step/start", "turn/start"))
    assert step is not None
    return {"turn": last_turn_number(session.events), "step": step.data.get("step", 1)}


def _text(rest: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": rest}]


def _turn(session: Session, rest: str) -> _Spec:
    trigger = {"kind": rest or "message", "source": {"kind": "user"}}
    return "turn/start", {"turn": last_turn_number(session.events) + 1, "trigger": trigger}, None


def _end_turn(session: Session, rest: str) -> _Spec:
    extra: dict[str, Any] = {}
    if rest == "rejected":
        extra = {"reason": "policy"}
    elif rest == "error":
        extra = {"step": 1, "message": "it broke"}
    reason = {"kind": rest or "completed", **extra}
    return "turn/end", {"turn": last_turn_number(session.events), "reason": reason}, None


def _step(session: Session, _rest: str) -> _Spec:
    last = last_event_of(session.events, ("step/end", "turn/start"))
    assert last is not None
    turn = last_turn_number(session.events)
    return "step/start", {"turn": turn, "step": last.data.get("step", 0) + 1}, None


def _end_step(session: Session, _rest: str) -> _Spec:
    return "step/end", _here(session), None


def _user(_session: Session, rest: str) -> _Spec:
    return "user/message", {"content": _text(rest), "source": {"kind": "user"}}, APPEND


def _plugin(_session: Session, rest: str) -> _Spec:
    source = {"kind": "plugin", "plugin": "watch"}
    return "user/message", {"content": _text(rest), "source": source}, APPEND


def _context(_session: Session, rest: str) -> _Spec:
    source = {"kind": "plugin", "plugin": "watch"}
    return "context/message", {"content": _text(rest), "source": source}, APPEND


def _steer(session: Session, rest: str) -> _Spec:
    data = {
        "turn": max(last_turn_number(session.events), 1),
        "content": _text(rest),
        "source": {"kind": "user"},
    }
    return "steering/message", data, APPEND


def _blocked(_session: Session, rest: str) -> _Spec:
    data = {"content": _text(rest), "source": {"kind": "user"}, "reason": "policy"}
    return "prompt/blocked", data, None


def _delta(session: Session, rest: str) -> _Spec:
    chunk = {"type": "text-delta", "index": 0, "text": rest}
    return "assistant/chunk", {**_here(session), "chunk": chunk}, None


def _assistant(session: Session, content: list[dict[str, str]]) -> _Spec:
    provenance = {"provider": "acme", "model": "m1"}
    data = {**_here(session), "content": content, "provenance": provenance}
    return "assistant/message", data, APPEND


def _say(session: Session, rest: str) -> _Spec:
    return _assistant(session, _text(rest) if rest else [])


def _ask(session: Session, rest: str) -> _Spec:
    calls = [
        {"type": "tool-call", "id": call_id, "name": "read", "arguments": "{}"}
        for call_id in rest.split()
    ]
    return _assistant(session, calls)


def _call(session: Session, rest: str) -> _Spec:
    data = {**_here(session), "callId": rest, "name": "read", "arguments": "{}"}
    return "tool/call", data, None


def _result(session: Session, rest: str) -> _Spec:
    data = {**_here(session), "callId": rest, "content": _text("done"), "isError": False}
    return "tool/result", data, APPEND


def _todo(_session: Session, rest: str) -> _Spec:
    return "todo/write", {"todos": [{"content": rest, "status": "pending"}]}, None


_NOTATION: dict[str, Callable[[Session, str], _Spec]] = {
    "turn": _turn,
    "/turn": _end_turn,
    "step": _step,
    "/step": _end_step,
    "user": _user,
    "plugin": _plugin,
    "context": _context,
    "steer": _steer,
    "blocked": _blocked,
    "delta": _delta,
    "say": _say,
    "ask": _ask,
    "call": _call,
    "result": _result,
    "todo": _todo,
}

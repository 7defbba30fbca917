"""Order rules of ACP v1 within sessions: what may be sent when.

Fed with the requests, responses and updates of one connection in their order; reports what breaks
a rule. Shapes are not judged here: a field that is missing or of another type is passed over.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Report: TypeAlias = Callable[[str, str], None]
"""Called with the name of the broken rule and one sentence."""

RequestKey: TypeAlias = tuple[str, object]
Params: TypeAlias = Mapping[str, Any]

_FINAL = ("completed", "failed")
_STATUS_ORDER = {"pending": 0, "in_progress": 1, "completed": 2, "failed": 2}
_CHUNKS = ("user_message_chunk", "agent_message_chunk", "agent_thought_chunk")
_TURN_UPDATES = (*_CHUNKS, "tool_call", "tool_call_update", "plan")
# A session that went on elsewhere may catch up while one of these is under way.
_CATCHING_UP = ("session/set_mode", "session/set_config_option")
_PAST = -1  # the turn of what came by a replay


@dataclass
class _Call:
    status: str
    replayed: bool = False  # announced by the replay that is going on
    elsewhere: bool = False  # its turn runs in another process


@dataclass
class _Session:
    is_open: bool = False
    loads: int = 0  # requests that replay and have not been answered
    catching_up: int = 0  # requests that may bring news and have not been answered
    is_elsewhere: bool = False  # another process had a turn open when it was loaded
    prompts: list[RequestKey] = field(default_factory=list)  # not answered, oldest first
    turn: int = 0  # counts answered prompts
    calls: dict[str, _Call] = field(default_factory=dict)
    messages: dict[str, tuple[str, int]] = field(default_factory=dict)  # id -> variant, turn

    @property
    def is_busy(self) -> bool:
        return bool(self.loads or self.catching_up or self.prompts)


class SessionRules:
    """Follows all sessions of one connection."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._sessions: dict[str, _Session] = {}

    def client_request(self, key: RequestKey, method: str, params: Params) -> None:
        """Note a request of the client."""
        if method == "session/load":
            session = self._session(params)
            session.loads += 1
            if session.loads == 1:
                _begin_replay(session)
        elif method in _CATCHING_UP:
            self._session(params).catching_up += 1
        elif method == "session/prompt":
            self._session(params).prompts.append(key)

    def agent_response(
        self, key: RequestKey, method: str, params: Params, result: Params | None
    ) -> None:
        """Note the answer to a request of the client; `result` is None if it is an error."""
        if method == "session/new" and result is not None:
            self._session(result).is_open = True
        elif method == "session/load":
            self._end_load(params, result)
        elif method in _CATCHING_UP:
            self._session(params).catching_up -= 1
        elif method == "session/resume" and result is not None:
            self._session(params).is_open = True
        elif method in ("session/close", "session/delete") and result is not None:
            self._session(params).is_open = False
        elif method == "session/prompt":
            self._end_prompt(key, params)

    def agent_request(self, method: str, params: Params) -> None:
        """Check a request of the agent."""
        if "sessionId" not in params:
            return
        session = self._session(params)
        if not (session.is_open or session.loads):
            self._report("unknown-session", f"{method} for a session that is not open")
        if method == "session/request_permission":
            self._check_permission(session, params)

    def update(self, params: Params) -> None:
        """Check a `session/update`."""
        update = params.get("update")
        if not isinstance(update, dict) or "sessionId" not in params:
            return
        session = self._session(params)
        variant = str(update.get("sessionUpdate"))
        if not (session.is_open or session.loads):
            self._report("unknown-session", f"{variant} for a session that is not open")
        if variant in _TURN_UPDATES and not session.is_busy:
            self._report("idle", f"{variant} while no prompt and no load is in flight")
        if variant in _CHUNKS:
            self._check_message(session, variant, update)
        elif variant == "tool_call":
            self._check_announcement(session, update)
        elif variant == "tool_call_update":
            self._check_change(session, update)

    def _session(self, holder: Params) -> _Session:
        return self._sessions.setdefault(str(holder.get("sessionId")), _Session())

    def _end_load(self, params: Params, result: Params | None) -> None:
        session = self._session(params)
        session.loads -= 1
        session.is_open = session.is_open or result is not None
        session.is_elsewhere = _is_in_use(result)
        for call in session.calls.values():
            call.elsewhere = session.is_elsewhere and call.status not in _FINAL
        if result is not None and not session.prompts:
            self._require_final(session, "session/load")
        _begin_replay(session)

    def _end_prompt(self, key: RequestKey, params: Params) -> None:
        session = self._session(params)
        if key not in session.prompts:
            return
        # Only the oldest prompt has the turn; a queued one may be answered before it
        # (cancel-covers-queued-prompts).
        has_turn = session.prompts[0] == key
        session.prompts.remove(key)
        if has_turn:
            session.turn += 1
            if not session.loads:
                self._require_final(session, "session/prompt")

    def _require_final(self, session: _Session, method: str) -> None:
        for call_id, call in session.calls.items():
            if call.status not in _FINAL and not call.elsewhere:
                detail = f"call {call_id!r} is still {call.status} at the response to {method}"
                self._report("final-status", detail)
                call.status = "failed"  # one report is enough

    def _check_message(self, session: _Session, variant: str, update: Params) -> None:
        message_id = update.get("messageId")
        if not isinstance(message_id, str) or not session.is_busy:
            return
        turn = session.turn if session.prompts else _PAST
        known_variant, known_turn = session.messages.setdefault(message_id, (variant, turn))
        if known_variant != variant:
            self._report("message-id", f"{message_id!r} was a {known_variant}, now {variant}")
        elif session.is_elsewhere and known_turn == _PAST:
            return  # it goes on where the load has left it
        elif not session.loads and known_turn != turn:
            self._report("message-id", f"{message_id!r} names a message of an earlier turn")

    def _check_announcement(self, session: _Session, update: Params) -> None:
        call_id = str(update.get("toolCallId"))
        known = session.calls.get(call_id)
        # A load while a turn runs shows a call both live and replayed.
        again = session.loads and (session.prompts or not (known and known.replayed))
        if known is not None and not again:
            self._report("tool-call", f"{call_id!r} was announced before")
        status = str(update.get("status", "pending"))
        session.calls[call_id] = _Call(status, replayed=bool(session.loads))

    def _check_change(self, session: _Session, update: Params) -> None:
        call_id = str(update.get("toolCallId"))
        call = session.calls.get(call_id)
        if call is None:
            self._report("tool-call", f"{call_id!r} changes and was not announced")
            return
        if call.status in _FINAL and not (session.loads and session.prompts):
            self._report("final-status", f"{call_id!r} changes and was {call.status} already")
        status = str(update.get("status", call.status))
        if _STATUS_ORDER.get(status, 0) < _STATUS_ORDER.get(call.status, 0) < 2:
            self._report("final-status", f"{call_id!r} goes back from {call.status} to {status}")
        call.status = status

    def _check_permission(self, session: _Session, params: Params) -> None:
        tool_call = params.get("toolCall")
        if not isinstance(tool_call, dict):
            return
        call = session.calls.get(str(tool_call.get("toolCallId")))
        if call is None or call.status in _FINAL:
            state = "not announced" if call is None else f"{call.status} already"
            self._report(
                "permission", f"asked for {tool_call.get('toolCallId')!r}, which is {state}"
            )
        if "sessionUpdate" in tool_call:
            self._report("permission", "toolCall carries sessionUpdate")
        if not session.prompts:
            self._report("permission", "asked while no prompt is in flight")
        options = [option for option in params.get("options", ()) if isinstance(option, dict)]
        ids = [option.get("optionId") for option in options]
        if not ids or len(set(map(str, ids))) != len(ids):
            self._report("permission", f"the option ids {ids} are not distinct or none")


def _begin_replay(session: _Session) -> None:
    for call in session.calls.values():
        call.replayed = False


def _is_in_use(result: Params | None) -> bool:
    """Tell whether a load's result says that another process has the session."""
    return result is not None and '"session-in-use"' in json.dumps(result.get("_meta"))

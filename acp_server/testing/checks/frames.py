"""Checks a conversation, frame by frame, in both directions.

Rules, by the names that violations carry:

    json             every line is one strict UTF-8 JSON object (stdout-has-frames-only); blank
                     lines are none
    envelope         `jsonrpc` is "2.0"; a request, a notification or a response, no other keys
    response         each request id gets exactly one response, with the same id and type
                     (each-request-gets-one-response)
    shape            the official SDK's model, dumped again, equals the frame
                     (frames-fit-the-schema)
    method           the agent calls ACP methods, or extensions that begin with `_`
    gate             the agent uses what the client advertised, and nothing else
    null             no null but in ids and `oldText`; rawInput, rawOutput and _meta are free
                     (frames-hold-no-null)
    size             no update above 1 MiB, user chunks aside (load-replays-before-response)
    unknown-session  nothing for a session before the response that creates it, or after its close
    idle             nothing of a turn while neither a prompt nor a load is in flight
                     (session-updates-follow-introduction)
    tool-call        one `tool_call` for an id, updates only behind it (call-ends-exactly-once)
    final-status     one final status, the last word on a call and before the response
                     (call-ends-exactly-once)
    permission       only for an announced, unfinished call, with distinct options (B34)
    message-id       one id, one message: same kind, same turn

The agent is judged on all of them. Frames of the client are judged on `shape` only, and only where
the caller says they are meant to be right: tests send wrong ones on purpose.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from acp_server.testing.checks.frame_values import find_null, read_strict
from acp_server.testing.checks.gates import CapabilityGate
from acp_server.testing.checks.sdk_oracle import (
    AGENT_METHODS,
    AGENT_NOTIFICATIONS,
    UPDATE_VARIANTS,
    Part,
    SdkOracle,
    sdk_is_installed,
)
from acp_server.testing.checks.session_rules import RequestKey, SessionRules
from acp_server.testing.errors import FrameViolation, FrameViolationError, Sender

_SHOWN_BYTES = 400  # of a frame, in a violation
_MAX_UPDATE_BYTES = 1 << 20  # (load-replays-before-response)
_BAD_INPUT_CODES = (-32700, -32600)
_ROOT_KEYS = frozenset({"jsonrpc", "id", "method", "params", "result", "error"})
_BOM = b"\xef\xbb\xbf"


class FrameChecker:
    """Checks one connection; feed it the bytes of both directions in the order of their sending.

    Args:
        sdk: Judge shapes by the official SDK; None does so if it is installed.
        collect: Keep violations in `violations`; otherwise the first is raised at once.
    """

    def __init__(self, *, sdk: bool | None = None, collect: bool = True) -> None:
        self.violations: list[FrameViolation] = []
        self._collect = collect
        self._uses_sdk = sdk_is_installed() if sdk is None else sdk
        self._oracle: SdkOracle | None = None
        self._number = 0
        self._sender: Sender = "client"
        self._frame = b""
        self._rest: dict[Sender, bytes] = {"client": b"", "agent": b""}
        self._client_requests: dict[RequestKey, list[tuple[str, Mapping[str, Any]]]] = {}
        self._agent_requests: dict[RequestKey, str] = {}
        self._bad_input: Counter[RequestKey] = Counter()
        self._rules = SessionRules(self._report)
        self._gate = CapabilityGate(self._report)

    def from_client(self, data: bytes, *, checked: bool = True) -> None:
        """Take bytes of the client; `checked` is False for what may be wrong on purpose."""
        for line in self._lines("client", data):
            self._take_client(line.removeprefix(_BOM), checked=checked)

    def from_agent(self, data: bytes) -> None:
        """Take bytes of the agent."""
        for line in self._lines("agent", data):
            self._take_agent(line)

    def finish(self, *, complete: bool = True) -> None:
        """End the conversation.

        Args:
            complete: The agent ended by itself: its last line must be whole and every request
                answered. False after a kill.
        """
        self._number, self._sender, self._frame = 0, "agent", b""
        if not complete:
            return
        if self._rest["agent"]:
            self._report("json", "the last line has no LF")
        for key, requests in self._client_requests.items():
            for method, _ in requests:
                self._report("response", f"{method} with id {key[1]!r} was never answered")

    def raise_violations(self) -> None:
        """Raise what was collected so far, if there is any.

        Raises:
            FrameViolationError: With all violations.
        """
        if self.violations:
            raise FrameViolationError(self.violations)

    def _lines(self, sender: Sender, data: bytes) -> list[bytes]:
        *lines, self._rest[sender] = (self._rest[sender] + data).split(b"\n")
        return lines

    def _begin(self, sender: Sender, frame: bytes) -> None:
        self._number += 1
        self._sender = sender
        self._frame = frame

    def _report(self, rule: str, detail: str) -> None:
        shown = self._frame[:_SHOWN_BYTES].decode(errors="replace")
        violation = FrameViolation(self._number, self._sender, rule, detail, shown)
        if not self._collect:
            raise FrameViolationError([violation])
        self.violations.append(violation)

    # The client's side: remembered, and judged where it is meant to be right.

    def _take_client(self, line: bytes, *, checked: bool) -> None:
        if not line.strip():
            return
        self._begin("client", line)
        try:
            frame = read_strict(line)
        except ValueError:
            frame = None
        if not isinstance(frame, dict) or frame.get("jsonrpc") != "2.0":
            self._expect_refusal(frame)
        elif isinstance(frame.get("method"), str):
            self._take_client_call(frame, checked=checked)
        elif "result" in frame or "error" in frame:
            self._take_client_response(frame, checked=checked)
        else:
            self._expect_refusal(frame)

    def _expect_refusal(self, frame: object) -> None:
        """Allow one error for what is no message: with a null id, or with the one it carries."""
        self._bad_input[_key(None)] += 1
        if isinstance(frame, dict) and _is_id(frame.get("id")):
            self._bad_input[_key(frame["id"])] += 1

    def _take_client_call(self, frame: dict[str, Any], *, checked: bool) -> None:
        method, params = frame["method"], _params(frame)
        if "id" in frame and not _is_id(frame["id"]) and frame["id"] is not None:
            self._expect_refusal(frame)
            return
        if checked:
            self._check_shape("client params", method, params)
        if "id" in frame:
            key = _key(frame["id"])
            # A second request under an open id may be refused as such; both get a response.
            self._client_requests.setdefault(key, []).append((method, params))
            self._rules.client_request(key, method, params)

    def _take_client_response(self, frame: dict[str, Any], *, checked: bool) -> None:
        method = self._agent_requests.pop(_key(frame.get("id")), None)
        result = frame.get("result")
        if checked and method is not None and isinstance(result, dict):
            self._check_shape("client result", method, result)

    # The agent's side: judged on everything.

    def _take_agent(self, line: bytes) -> None:
        self._begin("agent", line)
        try:
            frame = read_strict(line)
        except ValueError as error:
            self._report("json", f"the line is not JSON: {error}")
            return
        if not isinstance(frame, dict):
            self._report("json", "the line is JSON, but no object")
            return
        self._check_envelope(frame)
        null = find_null(frame)
        if null is not None:
            self._report("null", f"{null} is null")
        if isinstance(frame.get("method"), str):
            self._take_agent_call(frame)
        elif "id" in frame:
            self._take_agent_response(frame)

    def _check_envelope(self, frame: dict[str, Any]) -> None:
        if frame.get("jsonrpc") != "2.0":
            self._report("envelope", f"jsonrpc is {frame.get('jsonrpc')!r}")
        if frame.keys() - _ROOT_KEYS:
            self._report("envelope", f"unknown keys {sorted(frame.keys() - _ROOT_KEYS)}")
        kinds = [kind for kind in ("method", "result", "error") if kind in frame]
        if len(kinds) != 1:
            self._report("envelope", f"has {' and '.join(kinds) or 'no method, result or error'}")
        elif kinds != ["method"] and ("id" not in frame or "params" in frame):
            self._report("envelope", "a response has an id and no params")
        for name, expected in (("method", str), ("params", dict), ("result", dict)):
            # A null has a rule of its own.
            if frame.get(name) is not None and not isinstance(frame[name], expected):
                self._report("envelope", f"{name} is of type {type(frame[name]).__name__}")

    def _take_agent_call(self, frame: dict[str, Any]) -> None:
        method, params = frame["method"], _params(frame)
        known = AGENT_METHODS if "id" in frame else AGENT_NOTIFICATIONS
        if method not in known and not method.startswith("_"):
            self._report("method", f"{method} is not a method of the client")
            return
        self._check_shape("agent params", method, params)
        self._gate.agent_call(method, params)
        if "id" in frame:
            self._take_agent_request(frame["id"], method, params)
        elif method == "session/update":
            self._check_size(params)
            self._rules.update(params)

    def _take_agent_request(self, request_id: object, method: str, params: dict[str, Any]) -> None:
        key = _key(request_id)
        if not _is_id(request_id):
            self._report("envelope", f"the request id {request_id!r} is no string or integer")
        if key in self._agent_requests:
            self._report("response", f"the id {request_id!r} is in use by an open request")
        self._agent_requests[key] = method
        self._rules.agent_request(method, params)

    def _check_size(self, params: dict[str, Any]) -> None:
        update = params.get("update")
        variant = update.get("sessionUpdate") if isinstance(update, dict) else None
        if len(self._frame) > _MAX_UPDATE_BYTES and variant != "user_message_chunk":
            self._report("size", f"{variant} of {len(self._frame)} bytes")

    def _take_agent_response(self, frame: dict[str, Any]) -> None:
        key = _key(frame["id"])
        error = frame.get("error")
        if isinstance(error, dict):
            self._check_error(error)
        open_requests = self._client_requests.get(key)
        if not open_requests:
            self._check_refusal(key, error)
            return
        method, params = open_requests.pop(0)
        if not open_requests:
            del self._client_requests[key]
        result = frame.get("result")
        result = result if isinstance(result, dict) else None
        if result is not None:
            self._check_shape("agent result", method, result)
            self._gate.agent_result(method, params, result)
        self._rules.agent_response(key, method, params, result)

    def _check_refusal(self, key: RequestKey, error: object) -> None:
        code = error.get("code") if isinstance(error, dict) else None
        if code in _BAD_INPUT_CODES and self._bad_input[key]:
            self._bad_input[key] -= 1
        else:
            self._report("response", f"no request with the id {key[1]!r} is open")

    def _check_error(self, error: dict[str, Any]) -> None:
        code, message = error.get("code"), error.get("message")
        if not isinstance(code, int) or isinstance(code, bool) or not isinstance(message, str):
            self._report("envelope", "an error has an integer code and a message")
        elif error.keys() - {"code", "message", "data"}:
            self._report("envelope", f"the error has the keys {sorted(error)}")

    def _check_shape(self, part: Part, method: str, payload: Mapping[str, Any]) -> None:
        if self._uses_sdk:
            self._oracle = self._oracle or SdkOracle()
            fault = self._oracle.fault(part, method, payload)
        else:
            fault = _plain_fault(method, payload)
        if fault is not None:
            self._report("shape", fault)


def _plain_fault(method: str, payload: Mapping[str, Any]) -> str | None:
    """Check without the SDK what the other rules rest on."""
    if method != "session/update":
        return None
    update = payload.get("update")
    if not isinstance(payload.get("sessionId"), str) or not isinstance(update, dict):
        return "params are no sessionId and update"
    variant = update.get("sessionUpdate")
    return None if variant in UPDATE_VARIANTS else f"unknown update {variant!r}"


def _params(frame: dict[str, Any]) -> dict[str, Any]:
    params = frame.get("params")
    return params if isinstance(params, dict) else {}


def _is_id(value: object) -> bool:
    return isinstance(value, int | str) and not isinstance(value, bool)


def _key(value: object) -> RequestKey:
    """Tell 1 from "1" and from 1.0."""
    return type(value).__name__, value if isinstance(value, int | str | float) else None

"""Tell what one incoming frame is, by the rules of JSON-RPC 2.0 and ACP v1.

`read_envelope` is total: any bytes are a request, a notification, a response or invalid, and the
caller needs no error handling. Nothing of a bad frame but its id is ever said back.
"""

from typing import Any, Final, NamedTuple

from acp_server.rpc.codec import (
    ParseError,
    encode_value,
    has_unsafe_number,
    is_beyond_doubles,
    parse_frame,
)
from acp_server.rpc.errors import INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR, RpcError
from acp_server.rpc.scan import has_more_values, outer_members
from acp_server.rpc.table import Params, RequestId

CANCEL_REQUEST: Final = "$/cancel_request"
"""ACP v1 cancellation: either side may ask the other to give up a request."""

MAX_VALUES: Final = 1_000_000
"""Most JSON values in one frame, those inside of others included: 0.1 GB when they are parsed."""

BATCH_REFUSED: Final = RpcError.invalid_request("JSON-RPC batches are not supported").message


class Request(NamedTuple):
    """A call that gets exactly one response."""

    id: RequestId
    method: str
    params: Params


class Notification(NamedTuple):
    """A call that is never answered."""

    method: str
    params: Params


class Response(NamedTuple):
    """An answer to a request of ours, or what looks like one. Never answered.

    Attributes:
        id: As received, of any type.
        result: The result; `None` where there is an error or neither.
        error: The error as received, or `None`.
    """

    id: Any
    result: Any
    error: Any


class Invalid(NamedTuple):
    """A frame to be refused.

    Attributes:
        code: JSON-RPC error code.
        message: What is wrong, in our words only.
        id: Id to answer with, `None` (null) where none could be made out.
        answered: Whether the refusal is sent; a bad notification is only logged.
        bare_id: The frame has an id and nothing else: perhaps a response whose result the client
            lost (`undefined` in JavaScript), so it settles the request of that id if there is one.
    """

    code: int
    message: str
    id: RequestId = None
    answered: bool = True
    bare_id: bool = False


_BEYOND_DOUBLES: Final = "a number is beyond the range of a double"

Envelope = Request | Notification | Response | Invalid


def read_envelope(frame: bytes) -> Envelope:
    """Classify one frame, given without its LF."""
    if has_more_values(frame, MAX_VALUES):
        return _read_crowded(frame)
    try:
        value = parse_frame(frame)
    except ParseError:
        return Invalid(PARSE_ERROR, "Parse error")
    if type(value) is list:
        return Invalid(INVALID_REQUEST, BATCH_REFUSED)
    if type(value) is not dict:
        return _invalid_request("a message is an object")
    if "method" not in value and ("result" in value or "error" in value):
        if is_beyond_doubles(value):
            return _unreadable_response(value.get("id"), _BEYOND_DOUBLES)
        return Response(value.get("id"), value.get("result"), value.get("error"))
    return _read_call(value)


def response_frame(id: RequestId, result: Any) -> bytes:
    """Build the frame of a result, LF included.

    Raises:
        TypeError, ValueError: The result cannot be written as JSON.
    """
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (encode_value(id), encode_value(result))


def error_frame(id: RequestId, error: RpcError) -> bytes:
    """Build the frame of an error, LF included; `data` is absent when it is `None`.

    Raises:
        TypeError, ValueError: The error's data cannot be written as JSON.
    """
    body: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        body["data"] = error.data
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}\n' % (encode_value(id), encode_value(body))


def request_frame(id: int, method: str, params: Any) -> bytes:
    """Build the frame of a request of ours, LF included.

    Raises:
        TypeError, ValueError: The params cannot be written as JSON.
    """
    message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
    return encode_value(message) + b"\n"


def notification_frame(method: str, params: Any) -> bytes:
    """Build the frame of a notification, LF included.

    Raises:
        TypeError, ValueError: The params cannot be written as JSON.
    """
    return encode_value({"jsonrpc": "2.0", "method": method, "params": params}) + b"\n"


def _read_call(value: dict[str, Any]) -> Envelope:
    request_id = value.get("id")
    # bool is an int to isinstance, and fractions are no ids of ACP: string, integer or null.
    if not (request_id is None or type(request_id) in {str, int}):
        return _invalid_request("an id is a string, an integer or null")
    # The reference implementation answers null here, since what is not JSON-RPC 2.0 has no id.
    if value.get("jsonrpc") != "2.0":
        return _invalid_request('"jsonrpc" must be "2.0"')
    if "method" not in value and "id" in value:
        return _invalid_request("neither a method nor a result", request_id, bare_id=True)
    method = value.get("method")
    if type(method) is not str:
        return _invalid_request("a method is a string", request_id)
    return _read_params(value, request_id, method)


def _read_params(value: dict[str, Any], request_id: RequestId, method: str) -> Envelope:
    params = value.get("params")
    if params is None:
        params = {}
    problem = _problem_of_params(method, params)
    is_request = "id" in value
    if problem is not None:
        message = RpcError.invalid_params(problem).message
        return Invalid(INVALID_PARAMS, message, request_id, answered=is_request)
    return Request(request_id, method, params) if is_request else Notification(method, params)


def _problem_of_params(method: str, params: Any) -> str | None:
    if type(params) is not dict:
        return "params must be an object"
    # A cancel names a request's id, and ids may be of any size.
    if method == CANCEL_REQUEST or not has_unsafe_number(params):
        return None
    return _BEYOND_DOUBLES if is_beyond_doubles(params) else "an integer is beyond ±2^53"


def _read_crowded(frame: bytes) -> Envelope:
    """Classify a frame of too many values by the members around them."""
    members = outer_members(frame)
    try:
        request_id = parse_frame(members.get(b"id", b"null"))
    except ParseError:
        request_id = None
    detail = f"a frame may have {MAX_VALUES} values"
    if b"method" not in members and (b"result" in members or b"error" in members):
        return _unreadable_response(request_id, detail)
    return _invalid_request(detail, request_id)


def _unreadable_response(id: Any, detail: str) -> Response:
    """Return what an answer that cannot be taken is to the one who asked: an error."""
    return Response(id, None, {"code": INVALID_REQUEST, "message": detail})


def _invalid_request(detail: str, id: RequestId = None, *, bare_id: bool = False) -> Invalid:
    return Invalid(INVALID_REQUEST, RpcError.invalid_request(detail).message, id, bare_id=bare_id)

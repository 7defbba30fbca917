import json
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_server.rpc.envelope import (
    MAX_VALUES,
    Envelope,
    Invalid,
    Notification,
    Request,
    Response,
    error_frame,
    notification_frame,
    read_envelope,
    request_frame,
    response_frame,
)
from acp_server.rpc.errors import RpcError

HUGE: Final = 10**30


def read(**members: Any) -> Envelope:
    return read_envelope(json.dumps({"jsonrpc": "2.0", **members}).encode())


def refusal(envelope: Envelope) -> tuple[int, Any, bool]:
    assert isinstance(envelope, Invalid)
    return envelope.code, envelope.id, envelope.answered


@pytest.mark.parametrize("id", ["abc", "", 0, -7, 2**53 + 1, -(2**63), 2**64, HUGE, None])
@pytest.mark.rule("ids-come-back-exactly", "unsafe-integers-are-refused")
@pytest.mark.case("B11")
def test_an_id_of_every_kind_is_kept_and_written_exactly(id: str | int | None) -> None:
    request = read(id=id, method="m")
    assert request == Request(id, "m", {})
    assert isinstance(request, Request)
    assert type(request.id) is type(id)
    written = response_frame(request.id, {})
    assert written == b'{"jsonrpc":"2.0","id":%b,"result":{}}\n' % json.dumps(id).encode()


@pytest.mark.parametrize("id", [1.5, 1.0, 1e30, True, False, [], {}, [1]])
def test_an_id_of_no_legal_kind_is_refused_with_null(id: Any) -> None:
    assert refusal(read(id=id, method="m")) == (-32600, None, True)


def test_params_absent_or_null_are_empty() -> None:
    assert read(id=1, method="m") == Request(1, "m", {})
    assert read(id=1, method="m", params=None) == Request(1, "m", {})
    assert read(method="m", params=None) == Notification("m", {})


@pytest.mark.rule("extra-members-are-accepted")
def test_unknown_members_and_params_are_accepted() -> None:
    params = {"_meta": {"traceparent": "x"}, "new": [1]}
    assert read(id=1, method="m", params=params, extra={}) == Request(1, "m", params)


@pytest.mark.rule("unknown-notifications-are-silent")
def test_an_escaped_slash_is_the_same_method() -> None:
    frame = rb'{"jsonrpc":"2.0","id":0,"method":"session\/list","params":{}}'
    assert read_envelope(frame) == Request(0, "session/list", {})


@pytest.mark.parametrize("params", ["x", 1, True, [], [1], 1.5])
@pytest.mark.case("B02")
def test_params_that_are_no_object_are_refused_with_the_id(params: Any) -> None:
    assert refusal(read(id=1, method="m", params=params)) == (-32602, 1, True)
    assert refusal(read(method="m", params=params)) == (-32602, None, False)


@pytest.mark.parametrize("number", [2**53 + 1, -(2**53) - 1, 2**64, HUGE])
@pytest.mark.rule("unsafe-integers-are-refused")
def test_an_unsafe_integer_in_params_is_refused_with_the_id(number: int) -> None:
    assert refusal(read(id=1, method="m", params={"a": [{"n": number}]})) == (-32602, 1, True)
    assert refusal(read(method="m", params={"n": number})) == (-32602, None, False)


def test_the_id_named_by_a_cancel_may_be_of_any_size() -> None:
    params = {"requestId": HUGE}
    assert read(method="$/cancel_request", params=params) == Notification(
        "$/cancel_request", params
    )


@pytest.mark.parametrize(
    ("line", "code", "id"),
    [
        (b"{", -32700, None),
        (b"[" * 100_000, -32700, None),
        (b"\xff\xfe{}", -32700, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"n":NaN}}', -32700, None),
        (b'{"jsonrpc":"2.0","id":1e999,"method":"m"}', -32600, None),
        (b'"hello"', -32600, None),
        (b"42", -32600, None),
        (b"null", -32600, None),
        (b"[]", -32600, None),
        (b'[{"jsonrpc":"2.0","id":21,"method":"m"}]', -32600, None),
        (b"{}", -32600, None),
        (b'{"jsonrpc":"2.0"}', -32600, None),
        (b'{"id":1,"method":"m"}', -32600, None),
        (b'{"jsonrpc":"1.0","id":1,"method":"m"}', -32600, None),
        (b'{"jsonrpc":2.0,"id":1,"method":"m"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":1,"method":5}', -32600, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":null}', -32600, 1),
        (b'{"jsonrpc":"2.0","method":5}', -32600, None),
        (b'{"id":1}', -32600, None),
        (b'{"jsonrpc":"2.0","id":1}', -32600, 1),
    ],
)
@pytest.mark.rule("malformed-messages-are-invalid", "unparsable-line-is-parse-error")
@pytest.mark.case("B02", "B11")
def test_a_frame_that_is_no_message_is_refused(line: bytes, code: int, id: int | None) -> None:
    assert refusal(read_envelope(line)) == (code, id, True)


@pytest.mark.parametrize(
    ("members", "response"),
    [
        ({"id": 1, "result": {}}, Response(1, {}, None)),
        ({"id": 1, "result": None}, Response(1, None, None)),
        ({"id": 1, "error": {"code": 1}}, Response(1, None, {"code": 1})),
        ({"id": 1, "result": 2, "error": None}, Response(1, 2, None)),
        ({"id": None, "error": {}}, Response(None, None, {})),
        ({"id": "x", "result": {}}, Response("x", {}, None)),
        ({"result": {}}, Response(None, {}, None)),
        ({"jsonrpc": "1.0", "id": 1, "result": {}}, Response(1, {}, None)),
    ],
)
@pytest.mark.rule("responses-are-routed")
def test_an_answer_is_a_response_and_never_refused(
    members: dict[str, Any], response: Response
) -> None:
    assert read(**members) == response


MEMBERS: Final = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.sampled_from(["2.0", "1.0", None, 2]),
        "id": st.none() | st.integers() | st.text() | st.booleans() | st.floats(),
        "method": st.text() | st.none() | st.integers(),
        "params": st.none() | st.dictionaries(st.text(), st.integers()) | st.lists(st.none()),
        "result": st.none() | st.text(),
        "error": st.none() | st.dictionaries(st.text(), st.none()),
    },
)


@given(members=MEMBERS | st.lists(MEMBERS, max_size=2))
def test_any_json_is_classified_and_answered_under_its_own_id_only(members: Any) -> None:
    envelope = read_envelope(json.dumps(members).encode())
    if isinstance(envelope, Request) or (isinstance(envelope, Invalid) and envelope.id is not None):
        assert envelope.id == members["id"]
    elif isinstance(envelope, Notification):
        assert "id" not in members


@given(data=st.binary(max_size=60))
def test_any_bytes_are_classified(data: bytes) -> None:
    assert isinstance(read_envelope(data), Request | Notification | Response | Invalid)


def test_a_refusal_says_nothing_of_the_frame() -> None:
    secret = "hunter2"
    for line in (
        f'{{"{secret}',
        f'"{secret}"',
        f'{{"jsonrpc":"{secret}"}}',
        f'[{{"a":"{secret}"}}]',
    ):
        envelope = read_envelope(line.encode())
        assert isinstance(envelope, Invalid)
        assert secret not in envelope.message


def test_absent_data_is_absent() -> None:
    assert error_frame(None, RpcError(-1, "m")) == (
        b'{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"m"}}\n'
    )
    assert error_frame("a", RpcError(-1, "m", {"k": 1})) == (
        b'{"jsonrpc":"2.0","id":"a","error":{"code":-1,"message":"m","data":{"k":1}}}\n'
    )


def test_frames_of_ours_are_one_line_each() -> None:
    assert request_frame(7, "m", {"a": "x\ny"}) == (
        b'{"jsonrpc":"2.0","id":7,"method":"m","params":{"a":"x\\ny"}}\n'
    )
    assert notification_frame("m", {"t": "\u2028\ud800"}) == (
        '{"jsonrpc":"2.0","method":"m","params":{"t":"\u2028\ufffd"}}\n'.encode()
    )


@pytest.mark.parametrize("number", [b"1e999", b"-1e400", b"9" * 5000, b"1" + b"0" * 400])
@pytest.mark.rule("numbers-beyond-doubles-are-refused")
def test_a_number_beyond_a_double_is_refused_with_the_id(number: bytes) -> None:
    frame = b'{"jsonrpc":"2.0","id":1,%b:{"a":[{"n":%b}]}}'
    assert refusal(read_envelope(frame % (b'"method":"m","params"', number))) == (-32602, 1, True)
    assert read_envelope(frame % (b'"method":"m","extra"', number)) == Request(1, "m", {})


@pytest.mark.rule("numbers-beyond-doubles-are-refused")
def test_an_answer_with_a_number_beyond_a_double_is_an_error_to_who_asked() -> None:
    answer = read_envelope(b'{"jsonrpc":"2.0","id":7,"result":{"exitCode":1e999}}')
    error = {"code": -32600, "message": "a number is beyond the range of a double"}
    assert answer == Response(7, None, error)


CROWD: Final = b"[" + b"[]," * MAX_VALUES + b"[]]"


@pytest.mark.parametrize(
    ("frame", "id"),
    [
        (b'{"jsonrpc":"2.0","id":5,"method":"m","params":%b}', 5),
        (b' { "id" : "a" , "params" : %b }', "a"),
        (b'{"jsonrpc":"2.0","method":"m","params":%b,"id":-5}', -5),
        (b'{"params":%b,"id":"\xc3\xa9","method":"m"} ', "\xe9"),
        (b'{"id":"\xff","method":"m","params":%b}', None),
        (b'{"id":1.5,"method":"m","params":%b}', None),
        (b'{"method":"m","params":[%b,{"id":5}]}', None),
        (b'{"method":"m","params":[%b,"\\",\\"id\\":5}"]}', None),
        (b'{"method":"m","params":%b}', None),
        (b"%b", None),
    ],
)
@pytest.mark.rule("values-of-a-frame-are-bounded")
def test_a_frame_of_too_many_values_is_refused_with_its_id_where_it_can_be_read(
    frame: bytes, id: str | int | None
) -> None:
    envelope = read_envelope(frame % CROWD)
    message = "Invalid request: a frame may have 1000000 values"
    assert envelope == Invalid(-32600, message, id)


@pytest.mark.rule("values-of-a-frame-are-bounded")
def test_an_answer_of_too_many_values_is_an_error_to_who_asked() -> None:
    error = {"code": -32600, "message": "a frame may have 1000000 values"}
    for frame in (b'{"jsonrpc":"2.0","id":3,"result":%b}', b'{"error":%b,"id":3}'):
        assert read_envelope(frame % CROWD) == Response(3, None, error)


@pytest.mark.rule("values-of-a-frame-are-bounded")
def test_a_frame_of_as_many_values_as_are_allowed_is_read() -> None:
    # The message, its four members and the list: six values besides those of the list.
    frame = b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":[%b]}}'
    most = b",".join([b"{}"] * (MAX_VALUES - 6))
    assert type(read_envelope(frame % most)) is Request
    assert refusal(read_envelope(frame % (most + b",[ ]"))) == (-32600, 1, True)


def test_marks_inside_of_strings_are_no_values() -> None:
    text = rb",[{\"" * MAX_VALUES
    assert read_envelope(b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"%b"}}' % text) == (
        Request(1, "m", {"a": ',[{"' * MAX_VALUES})
    )

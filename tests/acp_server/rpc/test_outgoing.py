from typing import Any

import anyio
import orjson
import pytest

from acp_server.rpc.envelope import Response
from acp_server.rpc.errors import ConnectionClosedError, RemoteError, RequestTimeoutError
from acp_server.rpc.outgoing import OutgoingRequests


class Wire:
    """Records what is sent, and asks one question in a task of its own."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.requests = OutgoingRequests(lambda frame: self.sent.append(orjson.loads(frame)))
        self.outcome: Any = None

    async def ask(self, timeout_s: float = 60) -> None:
        try:
            self.outcome = await self.requests.request("may/i", {"a": 1}, timeout_s=timeout_s)
        except (RemoteError, ConnectionClosedError, RequestTimeoutError) as error:
            self.outcome = error


async def answered(*responses: Response) -> Wire:
    wire = Wire()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wire.ask)
            await anyio.wait_all_tasks_blocked()
            for response in responses:
                wire.requests.settle(response)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
    return wire


@pytest.mark.rule("responses-are-routed")
async def test_an_answer_reaches_the_one_who_asked() -> None:
    wire = await answered(Response(1, {"yes": True}, None))
    assert wire.outcome == {"yes": True}
    assert wire.sent == [{"jsonrpc": "2.0", "id": 1, "method": "may/i", "params": {"a": 1}}]


async def test_an_id_written_as_a_double_is_the_same_id() -> None:
    assert (await answered(Response(1.0, "yes", None))).outcome == "yes"


@pytest.mark.parametrize("id", [2, "1", None, True, [1], {}])
async def test_an_answer_to_something_else_is_nobodys(id: Any) -> None:
    wire = await answered(Response(id, {}, None))
    assert wire.outcome is None


async def test_the_first_answer_counts() -> None:
    assert (await answered(Response(1, "one", None), Response(1, "two", None))).outcome == "one"


@pytest.mark.parametrize(
    ("body", "code", "message", "data"),
    [
        ({"code": -32601, "message": "no", "data": [1]}, -32601, "no", [1]),
        ({"code": "x", "message": 5}, -32603, "", None),
        ("boom", -32603, "", None),
    ],
)
async def test_an_error_answer_is_a_remote_error(
    body: Any, code: int, message: str, data: Any
) -> None:
    error = (await answered(Response(1, None, body))).outcome
    assert isinstance(error, RemoteError)
    assert (error.code, error.message, error.data) == (code, message, data)


async def test_an_unanswered_request_times_out_tells_the_client_and_ignores_a_late_answer() -> None:
    wire = Wire()
    with anyio.fail_after(5):
        await wire.ask(timeout_s=0)
    assert isinstance(wire.outcome, RequestTimeoutError)
    assert (wire.outcome.method, wire.outcome.timeout_s) == ("may/i", 0)
    cancel = {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 1}}
    assert wire.sent[1:] == [cancel]
    assert not wire.requests.settle(Response(1, {}, None))


@pytest.mark.rule("cancel-withdraws-client-requests")
async def test_a_cancelled_request_tells_the_client_and_ignores_a_late_answer() -> None:
    wire = await answered()
    cancel = {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 1}}
    assert wire.sent[1:] == [cancel]
    assert not wire.requests.settle(Response(1, {}, None))


async def test_after_closing_nothing_is_sent() -> None:
    wire = Wire()
    wire.requests.close()
    with pytest.raises(ConnectionClosedError):
        await wire.requests.request("m", {})
    assert wire.sent == []


async def test_refusing_fails_later_requests_and_closing_the_open_ones() -> None:
    wire = Wire()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wire.ask)
            await anyio.wait_all_tasks_blocked()
            wire.requests.refuse()
            with pytest.raises(ConnectionClosedError):
                await wire.requests.request("m", {})
            assert wire.outcome is None
            wire.requests.close()
            wire.requests.close()
    assert isinstance(wire.outcome, ConnectionClosedError)
    assert len(wire.sent) == 1


async def test_params_that_are_no_json_leave_nothing_open() -> None:
    wire = Wire()
    with pytest.raises(TypeError):
        await wire.requests.request("m", {"a": object()})
    assert wire.sent == []
    assert wire.requests._pending == {}

"""Cancelling requests, and the end of a connection."""

from typing import TYPE_CHECKING, Any

import anyio
import orjson
import pytest

from acp_server.rpc import (
    ConnectionClosedError,
    MethodTable,
    Peer,
    RequestContext,
)
from acp_server.transport import memory_transport_pair
from acp_server.transport.framing import OversizeFrame

if TYPE_CHECKING:
    from tests.acp_server.rpc.conftest import Serving

Params = dict[str, Any]

CANCELLED = {"code": -32800, "message": "Request cancelled"}


async def forever(_context: RequestContext, _params: Params) -> Params:
    await anyio.sleep_forever()
    raise AssertionError


@pytest.mark.parametrize("id", [5, "five", None, 10**20])
async def test_a_cancelled_request_ends_and_is_answered_so(serving: "Serving", id: Any) -> None:
    ended = anyio.Event()

    async def wait(_context: RequestContext, _params: Params) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    async with serving({"wait": wait}) as client:
        client.call(id, "wait")
        client.write(client.notification("$/cancel_request", {"requestId": id}))
        assert await client.frame() == {"id": id, "error": CANCELLED}
        assert ended.is_set()
        client.write(client.notification("$/cancel_request", {"requestId": id}))
        assert await client.lives()


async def test_a_cancel_touches_no_other_request(serving: "Serving") -> None:
    async with serving({"wait": forever}) as client:
        client.write(client.request(1, "wait"), client.request(2, "wait"))
        client.write(client.notification("$/cancel_request", {"requestId": 2}))
        assert (await client.frame())["id"] == 2
        client.write(client.notification("$/cancel_request", {"requestId": 1}))
        assert (await client.frame())["id"] == 1


@pytest.mark.case("B29")
async def test_a_handler_may_answer_its_cancel_itself_even_in_the_same_packet(
    serving: "Serving",
) -> None:
    async def prompt(context: RequestContext, _params: Params) -> Params:
        cancelled = anyio.Event()
        context.on_cancel(cancelled.set)
        await cancelled.wait()
        return {"stopReason": "cancelled"}

    async with serving({"prompt": prompt}) as client:
        client.write(
            client.request(1, "prompt"),
            client.notification("$/cancel_request", {"requestId": 1}),
        )
        assert await client.frame() == {"id": 1, "result": {"stopReason": "cancelled"}}


async def test_a_failing_cancel_callback_is_contained(
    serving: "Serving", caplog: pytest.LogCaptureFixture
) -> None:
    go = anyio.Event()

    async def prompt(context: RequestContext, _params: Params) -> None:
        context.on_cancel(lambda: 1 // 0)  # type: ignore[arg-type]
        await go.wait()

    async with serving({"prompt": prompt}) as client:
        client.write(
            client.request(1, "prompt"),
            client.notification("$/cancel_request", {"requestId": 1}),
        )
        assert await client.lives()
        go.set()
        assert await client.frame() == {"id": 1, "result": {}}
    assert "ZeroDivisionError" in caplog.text


async def test_a_handler_that_finishes_in_spite_of_its_cancel_sends_its_result(
    serving: "Serving",
) -> None:
    done = anyio.Event()

    async def stubborn(_context: RequestContext, _params: Params) -> Params:
        with anyio.CancelScope(shield=True):
            await done.wait()
        return {"saved": True}

    async with serving({"stubborn": stubborn}) as client:
        client.call(1, "stubborn")
        client.write(client.notification("$/cancel_request", {"requestId": 1}))
        assert await client.lives()
        done.set()
        assert await client.frame() == {"id": 1, "result": {"saved": True}}


async def test_at_the_end_of_input_the_hook_runs_while_handlers_can_still_answer(
    serving: "Serving", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acp_server.rpc.peer._HANDLER_GRACE_S", 0.01)
    disposed = anyio.Event()

    async def prompt(_context: RequestContext, _params: Params) -> Params:
        await disposed.wait()
        return {"stopReason": "cancelled"}

    async def on_eof() -> None:
        client.peer.notify("last", {})
        disposed.set()

    async with serving({"prompt": prompt, "forever": forever}, on_eof=on_eof) as client:
        client.write(client.request(1, "prompt"), client.request(2, "forever"))
        await client.transport.send_eof()
        shutting_down = {"code": -32603, "message": "Internal error: the server is shutting down"}
        assert await client.frames(3) == [
            {"method": "last", "params": {}},
            {"id": 1, "result": {"stopReason": "cancelled"}},
            {"id": 2, "error": shutting_down},
        ]
        await client.served.wait()


async def test_a_hook_that_is_set_later_is_the_one_that_runs(serving: "Serving") -> None:
    ran = anyio.Event()

    async def on_eof() -> None:
        ran.set()

    async with serving() as client:
        client.peer.on_eof = on_eof
        client.peer.stop()
        await client.served.wait()
        assert ran.is_set()


async def test_a_last_request_without_lf_is_answered_after_the_end_of_input(
    serving: "Serving",
) -> None:
    async with serving() as client:
        client.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
        await client.transport.send_eof()
        assert await client.frame() == {"id": 1, "result": {}}


async def test_the_end_of_input_fails_what_was_asked_of_the_client(serving: "Serving") -> None:
    errors: list[BaseException] = []

    async def ask(_context: RequestContext, _params: Params) -> None:
        for _ in range(2):
            try:
                await client.peer.request("may/i", {})
            except ConnectionClosedError as error:
                errors.append(error)

    async with serving({"ask": ask}) as client:
        client.call(1, "ask")
        assert (await client.frame())["method"] == "may/i"
        await client.transport.send_eof()
        assert await client.frame() == {"id": 1, "result": {}}
        assert len(errors) == 2


async def test_nothing_new_is_asked_once_input_has_ended(serving: "Serving") -> None:
    refused = anyio.Event()

    async def on_eof() -> None:
        with pytest.raises(ConnectionClosedError):
            await client.peer.request("may/i", {})
        refused.set()

    async with serving(on_eof=on_eof) as client:
        await client.transport.send_eof()
        await client.served.wait()
        assert refused.is_set()


async def test_a_client_that_stops_reading_for_good_ends_the_connection(
    serving: "Serving",
) -> None:
    ended = anyio.Event()

    async def on_eof() -> None:
        ended.set()

    async with serving(on_eof=on_eof) as client:
        client.transport.stop_reading()
        client.call(1, "ping")
        await client.served.wait()
        assert ended.is_set()


class TeardownError(Exception):
    """Raised by a hook."""


async def test_what_the_teardown_raises_is_raised_after_all_tasks_have_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("acp_server.rpc.peer._HANDLER_GRACE_S", 0.01)
    ours, theirs = memory_transport_pair()
    ended = anyio.Event()

    async def forever(_context: RequestContext, _params: Params) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    async def on_eof() -> None:
        raise TeardownError

    methods = lambda: MethodTable({"forever": forever})  # noqa: E731
    peer = Peer(ours, initialize=dict, methods=methods, on_eof=on_eof)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(theirs.run)
            theirs.send(
                b'{"jsonrpc":"2.0","id":1,"method":"initialize"}\n'
                b'{"jsonrpc":"2.0","id":2,"method":"forever"}\n'
            )
            tasks.start_soon(theirs.send_eof)
            with pytest.raises(TeardownError):
                await peer.serve()
            assert ended.is_set()
            tasks.cancel_scope.cancel()


@pytest.mark.rule("late-import-failure-is-answered")
async def test_methods_that_cannot_be_loaded_are_an_error_of_each_request() -> None:
    ours, theirs = memory_transport_pair()
    attempts = []

    def methods() -> MethodTable:
        attempts.append(1)
        if len(attempts) == 1:
            raise ModuleNotFoundError("secret path")
        return MethodTable({})

    peer = Peer(ours, initialize=dict, methods=methods, new_diagnostic_id=lambda: "e1")
    frames: list[bytes] = []
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(theirs.run)
            tasks.start_soon(peer.serve)
            for number, method in enumerate(("initialize", "session/new", "initialize", "x"), 1):
                theirs.send(
                    b'{"jsonrpc":"2.0","id":%d,"method":"%s"}\n' % (number, method.encode())
                )
                received = await theirs.receive()
                assert received is not None
                frames += [
                    bytes(frame) for frame in received if not isinstance(frame, OversizeFrame)
                ]
            await theirs.send_eof()
            tasks.cancel_scope.cancel()
    answers = [orjson.loads(frame) for frame in frames]
    assert answers[1]["error"] == {
        "code": -32603,
        "message": "Internal error: the server could not load its methods "
        "(ModuleNotFoundError), log entry e1",
    }
    # A second `initialize` tries again.
    assert [answer["id"] for answer in answers] == [1, 2, 3, 4]
    assert answers[3]["error"]["code"] == -32601

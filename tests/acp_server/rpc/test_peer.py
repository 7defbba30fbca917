import sys
from collections.abc import Awaitable, Callable
from time import thread_time
from typing import TYPE_CHECKING, Any, Final

import anyio
import pytest
from anyio.lowlevel import checkpoint

from acp_server.rpc import MethodTable, RequestContext, RpcError

if TYPE_CHECKING:
    from tests.acp_server.rpc.conftest import Serving

Params = dict[str, Any]

UNEXPECTED: Final = (-32603, "Internal error", {"logEntry": "entry-1"})


async def echo(_context: RequestContext, params: Params) -> Params:
    return params


async def forever(_context: RequestContext, _params: Params) -> Params:
    await anyio.sleep_forever()
    raise AssertionError


@pytest.mark.rule("ids-come-back-exactly", "each-request-gets-one-response")
@pytest.mark.case("B11")
async def test_each_request_gets_one_response_with_its_id(serving: "Serving") -> None:
    async with serving({"echo": echo}) as client:
        ids = (b'"abc"', b"0", b"-7", b"null", b"1" + b"0" * 25, b'""')
        for request_id in ids:
            client.write(
                b'{"jsonrpc":"2.0","id":%b,"method":"echo","params":{"a":1}}\n' % request_id
            )
        for request_id in ids:
            expected = b'{"jsonrpc":"2.0","id":%b,"result":{"a":1}}' % request_id
            assert await client.raw_frame() == expected


@pytest.mark.rule("extra-members-are-accepted")
async def test_params_of_any_name_reach_the_handler(serving: "Serving") -> None:
    params = {"self": 1, "context": 2, "params": 3, "not an identifier": 4, "_meta": {"x": [None]}}
    async with serving({"echo": echo}) as client:
        assert await client.ask(1, "echo", params) == {"id": 1, "result": params}
        assert await client.ask(2, "echo") == {"id": 2, "result": {}}


@pytest.mark.rule("unknown-notifications-are-silent", "unadvertised-methods-are-not-found")
@pytest.mark.case("B11")
async def test_what_is_unknown_is_refused_or_ignored(serving: "Serving") -> None:
    async with serving() as client:
        refused = {"code": -32601, "message": "Method not found: _x/y", "data": {"method": "_x/y"}}
        assert await client.ask(8, "_x/y") == {"id": 8, "error": refused}
        client.write(
            client.notification("session/nope", {}),
            client.notification("_vendor/y"),
            client.notification("$/cancel_request", {"requestId": 99}),
            client.notification("$/cancel_request", {"requestId": ["x"]}),
            client.notification("$/cancel_request", {}),
            client.notification("session/cancel", []),
            {"jsonrpc": "2.0", "id": 777, "result": {}},
            {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "x"}},
            {"jsonrpc": "2.0", "id": True, "result": {}},
            {"jsonrpc": "2.0", "id": [1], "result": {}},
        )
        assert await client.lives()


async def test_a_long_method_name_is_not_said_back_whole(serving: "Serving") -> None:
    async with serving() as client:
        answer = await client.ask(1, "x" * 10_000)
        assert answer["error"]["code"] == -32601
        assert len(answer["error"]["message"]) < 300


@pytest.mark.rule("unparsable-line-is-parse-error", "bad-input-never-ends-server")
@pytest.mark.case("B02")
@pytest.mark.parametrize(
    ("line", "code"),
    [(b"{", -32700), (b"[" * 100_000, -32700), (b"\xff\xfe{}", -32700), (b"42", -32600)],
)
async def test_a_bad_line_is_answered_and_the_connection_lives(
    serving: "Serving", line: bytes, code: int
) -> None:
    async with serving() as client:
        client.write(line + b"\n")
        answer = await client.frame()
        assert (answer["id"], answer["error"]["code"]) == (None, code)
        assert await client.lives()


@pytest.mark.rule("large-frames-come-whole")
@pytest.mark.case("B01")
async def test_an_oversize_frame_is_refused_once_and_the_connection_lives(
    serving: "Serving",
) -> None:
    async with serving(max_frame_bytes=1000) as client:
        client.write(b"x" * 5000 + b'\n{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        refused = {"code": -32600, "message": "Invalid request: a frame may have 1000 bytes"}
        assert await client.frames(2) == [{"id": None, "error": refused}, {"id": 1, "result": {}}]


async def test_an_id_in_flight_cannot_be_used_again_until_it_is_answered(
    serving: "Serving",
) -> None:
    go = anyio.Event()

    async def wait(_context: RequestContext, _params: Params) -> None:
        await go.wait()

    async with serving({"wait": wait}) as client:
        client.write(client.request(9, "wait"), client.request(9, "ping"))
        refused = await client.frame()
        assert (refused["id"], refused["error"]["code"]) == (9, -32600)
        go.set()
        assert await client.frame() == {"id": 9, "result": {}}
        assert await client.ask(9, "ping") == {"id": 9, "result": {}}


async def test_equal_looking_ids_of_other_kinds_are_other_ids(serving: "Serving") -> None:
    async with serving({"forever": forever}) as client:
        client.write(*(client.request(key, "forever") for key in (1, "1", None, 0)))
        for key in ("1", 0, None, 1):
            client.write(client.notification("$/cancel_request", {"requestId": key}))
            assert (await client.frame())["id"] == key


@pytest.mark.rule("request-cancel-covers-one-prompt")
async def test_a_cancel_that_comes_before_its_request_is_ignored(serving: "Serving") -> None:
    async def wait(_context: RequestContext, _params: Params) -> None:
        await checkpoint()

    async with serving({"wait": wait}) as client:
        client.write(
            client.notification("$/cancel_request", {"requestId": 5}), client.request(5, "wait")
        )
        assert await client.frame() == {"id": 5, "result": {}}


@pytest.mark.rule("request-cancel-covers-one-prompt")
async def test_a_cancel_means_the_request_in_flight_when_it_came(serving: "Serving") -> None:
    first = True

    async def wait_once(_context: RequestContext, _params: Params) -> None:
        nonlocal first
        waits, first = first, False
        await (anyio.sleep_forever() if waits else checkpoint())

    async with serving({"wait": wait_once}) as client:
        cancel = client.notification("$/cancel_request", {"requestId": 5})
        client.write(client.request(5, "wait"), cancel, cancel)
        assert (await client.frame())["error"]["code"] == -32800
        client.write(client.request(5, "wait"))
        assert await client.frame() == {"id": 5, "result": {}}


@pytest.mark.rule("frames-are-read-beside-the-loop")
async def test_a_large_frame_is_read_beside_the_loop_and_in_its_place(serving: "Serving") -> None:
    async with serving({"echo": echo}, max_frame_bytes=2**26) as client:
        longest = 0.0

        async def measure() -> None:
            nonlocal longest
            while True:
                began = thread_time()
                await checkpoint()
                longest = max(longest, thread_time() - began)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(measure)
            crowd = b"[" + b"{}," * 3_000_000 + b"{}]"
            client.write(
                b'{"jsonrpc":"2.0","id":1,"method":"echo","params":%b}\n' % crowd,
                client.request(2, "ping"),
            )
            assert (await client.frame())["error"]["code"] == -32600
            assert await client.frame() == {"id": 2, "result": {}}
            tasks.cancel_scope.cancel()
        # CPU time of the loop's thread between two turns; to look through this frame takes more.
        assert longest < 0.2


@pytest.mark.rule("waiting-session-blocks-no-other")
@pytest.mark.case("B27")
async def test_a_waiting_handler_blocks_nothing_else(serving: "Serving") -> None:
    async def ask(_context: RequestContext, _params: Params) -> Any:
        return await client.peer.request("may/i", {})

    async with serving({"ask": ask}) as client:
        client.call(1, "ask")
        question = await client.frame()
        assert await client.lives()
        client.write({"jsonrpc": "2.0", "id": question["id"], "result": {"yes": True}})
        assert await client.frame() == {"id": 1, "result": {"yes": True}}


async def test_an_answer_that_lost_its_result_still_ends_the_wait(serving: "Serving") -> None:
    async def ask(_context: RequestContext, _params: Params) -> Params:
        return {"answer": await client.peer.request("fs/write_text_file", {})}

    async with serving({"ask": ask}) as client:
        client.call(1, "ask")
        question = await client.frame()
        bare: Params = {"jsonrpc": "2.0", "id": question["id"]}
        client.write(bare)
        assert await client.frame() == {"id": 1, "result": {"answer": None}}
        client.write(bare)
        assert (await client.frame())["error"]["code"] == -32600


async def test_a_packet_of_many_frames_lets_handlers_run_in_between(serving: "Serving") -> None:
    async with serving() as client:
        client.write(*(client.request(1, "ping") for _ in range(300)))
        answers = await client.frames(300)
        # An id is free again only after its handler has run.
        assert sum("result" in answer for answer in answers) > 2


@pytest.mark.rule("requests-start-in-order")
async def test_handlers_of_one_packet_begin_in_the_order_of_arrival(serving: "Serving") -> None:
    begun: list[str] = []

    def handler(name: str) -> Callable[[RequestContext, Params], Awaitable[None]]:
        async def handle(_context: RequestContext, _params: Params) -> None:
            begun.append(name)
            await checkpoint()

        return handle

    async def later(_params: Params) -> None:
        begun.append("later")

    def cancel(_params: Params) -> None:
        begun.append("cancel")

    async with serving(
        {"prompt": handler("prompt"), "other": handler("other")},
        {"cancel": cancel, "later": later},
    ) as client:
        client.write(
            client.request(1, "prompt"),
            client.notification("cancel"),
            client.notification("later"),
            client.request(2, "other"),
            client.notification("cancel"),
        )
        await client.frames(2)
        assert await client.lives()
        assert begun == ["prompt", "cancel", "later", "other", "cancel"]


async def test_what_follows_a_response_comes_right_behind_it(serving: "Serving") -> None:
    async def new(context: RequestContext, params: Params) -> Params:
        context.after_response(lambda: client.peer.notify("first", {"of": context.id}))
        context.after_response(lambda: 1 // 0)  # type: ignore[arg-type]
        context.after_response(lambda: client.peer.notify("second", {"of": context.method}))
        if params:
            raise RpcError.invalid_params("no")
        await checkpoint()
        return {}

    async with serving({"new": new}) as client:
        client.write(client.request(1, "new"), client.request(2, "new", {"fail": 1}))
        frames = await client.frames(6)
        assert [frame.get("id", frame.get("method")) for frame in frames] == [
            *(2, "first", "second"),
            *(1, "first", "second"),
        ]


@pytest.mark.rule("errors-have-fixed-codes")
@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (RpcError.invalid_params("no cwd"), (-32602, "Invalid params: no cwd", None)),
        (RpcError(7, "seven", {"a": 1}), (7, "seven", {"a": 1})),
        (ValueError("hunter2"), (-32603, "Internal error", {"logEntry": "entry-1"})),
        (KeyError("hunter2"), (-32603, "Internal error", {"logEntry": "entry-1"})),
        (TypeError("hunter2"), (-32603, "Internal error", {"logEntry": "entry-1"})),
        (SystemExit(3), (-32603, "Internal error", {"logEntry": "entry-1"})),
        (
            ExceptionGroup("hunter2", [OSError()]),
            (-32603, "Internal error", {"logEntry": "entry-1"}),
        ),
        (BaseException("hunter2"), (-32603, "Internal error", {"logEntry": "entry-1"})),
    ],
)
async def test_a_handler_that_raises_is_answered_without_the_exceptions_text(
    serving: "Serving", error: BaseException, answer: tuple[int, str, Any]
) -> None:
    async def fail(_context: RequestContext, _params: Params) -> None:
        await checkpoint()
        raise error

    async with serving({"fail": fail}) as client:
        refused = (await client.ask(1, "fail"))["error"]
        assert (refused["code"], refused["message"], refused.get("data")) == answer
        assert await client.lives()


@pytest.mark.rule("errors-have-fixed-codes")
async def test_an_unexpected_failure_is_in_the_log_under_its_entry(
    serving: "Serving", caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_context: RequestContext, _params: Params) -> None:
        message = "hunter2"
        raise ValueError(message)

    async with serving({"fail": fail}) as client:
        await client.ask(1, "fail")
    assert "entry-1" in caplog.text
    assert "ValueError: hunter2" in caplog.text


@pytest.mark.parametrize("result", [{"a": object()}, {1: 2}, {"a": b"x"}])
async def test_a_result_that_is_no_json_is_an_internal_error(
    serving: "Serving", result: Any
) -> None:
    async def bad(_context: RequestContext, _params: Params) -> Any:
        return result

    async with serving({"bad": bad}) as client:
        assert (await client.ask(1, "bad"))["error"]["code"] == -32603
        assert await client.lives()


async def test_text_with_lone_surrogates_does_not_stop_the_connection(serving: "Serving") -> None:
    async def bad(_context: RequestContext, _params: Params) -> Params:
        client.peer.notify("update", {"text": "\ud83d"})
        return {"text": "\ude00"}

    async with serving({"bad": bad}) as client:
        client.call(1, "bad")
        assert await client.frames(2) == [
            {"method": "update", "params": {"text": "\ufffd"}},
            {"id": 1, "result": {"text": "\ufffd"}},
        ]


async def test_a_notification_handler_that_raises_is_contained(
    serving: "Serving", caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_params: Params) -> None:
        raise ValueError

    async def fail_later(_params: Params) -> None:
        await checkpoint()
        raise ValueError

    async with serving(None, {"fail": fail, "later": fail_later}) as client:
        client.write(client.notification("fail"), client.notification("later"))
        assert await client.lives()
    assert [record.exc_info is not None for record in caplog.records] == [True, True]


@pytest.mark.rule("each-request-gets-one-response")
async def test_requests_beyond_the_limit_in_flight_are_refused(
    serving: "Serving", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acp_server.rpc.incoming.MAX_IN_FLIGHT", 2)
    async with serving({"forever": forever}) as client:
        client.write(*(client.request(key, "forever") for key in (1, 2, 3)))
        refused = await client.frame()
        assert (refused["id"], refused["error"]["code"]) == (3, -32603)
        client.write(client.notification("$/cancel_request", {"requestId": 1}))
        assert (await client.frame())["id"] == 1
        assert await client.lives()
        client.write(client.notification("$/cancel_request", {"requestId": 2}))
        assert (await client.frame())["id"] == 2


async def test_a_client_that_does_not_read_stops_the_reading_and_not_the_memory(
    serving: "Serving",
) -> None:
    mib = 1024 * 1024

    async def large(_context: RequestContext, _params: Params) -> Params:
        handled.append(1)
        return {"text": "x" * mib}

    handled: list[int] = []
    async with serving({"large": large}, max_frame_bytes=2 * mib) as client:
        for number in range(1, 120):
            client.call(number, "large")
            await client.transport.drained()
            await anyio.wait_all_tasks_blocked()
        assert 60 < len(handled) < 70
        for number in range(1, 120):
            assert (await client.frame())["id"] == number
        assert len(handled) == 119


class CountingTable:
    """Counts how often the methods were asked for."""

    def __init__(self) -> None:
        self.loaded = 0

    def __call__(self) -> MethodTable:
        self.loaded += 1
        return MethodTable({"echo": echo})


@pytest.mark.rule("initialize-comes-first")
async def test_before_initialize_requests_are_refused_and_notifications_ignored(
    serving: "Serving",
) -> None:
    noted: list[str] = []
    async with serving(None, {"note": lambda _: noted.append("note")}, initialized=False) as client:
        client.write(client.notification("note"), client.notification("initialize", {}))
        refused = (await client.ask("a", "ping"))["error"]
        assert refused == {"code": -32600, "message": "Invalid request: initialize comes first"}
        assert await client.ask(1, "initialize", {}) == {"id": 1, "result": {"protocolVersion": 1}}
        assert await client.lives()
        assert noted == []


@pytest.mark.rule("initialize-is-answered-alone")
async def test_initialize_is_answered_before_the_methods_are_loaded_and_loads_them_once(
    serving: "Serving",
) -> None:
    table = CountingTable()
    async with serving(methods=table, initialized=False) as client:
        client.write(client.request(1, "initialize"), client.request(2, "echo", {"a": 1}))
        assert (await client.frame())["id"] == 1
        assert await client.frame() == {"id": 2, "result": {"a": 1}}
        assert (await client.ask(3, "initialize"))["result"] == {"protocolVersion": 1}
        assert table.loaded == 1


@pytest.mark.rule("version-is-answered-one")
@pytest.mark.case("B13")
async def test_a_refused_initialize_may_be_tried_again(serving: "Serving") -> None:
    def initialize(params: Params) -> Params:
        if params.get("protocolVersion") == "broken":
            raise ValueError
        if params.get("protocolVersion") != 1:
            raise RpcError.invalid_params("protocolVersion")
        return {"protocolVersion": 1}

    async with serving(initialize=initialize, initialized=False) as client:
        refused = await client.ask(1, "initialize", {"protocolVersion": "1"})
        assert refused["error"] == {"code": -32602, "message": "Invalid params: protocolVersion"}
        broken = await client.ask(2, "initialize", {"protocolVersion": "broken"})
        assert broken["error"]["data"] == {"logEntry": "entry-1"}
        assert (await client.ask(3, "ping"))["error"]["code"] == -32600
        assert "result" in await client.ask(4, "initialize", {"protocolVersion": 1})
        assert await client.lives()


async def test_the_answer_to_initialize_is_written_before_anything_heavy_is_imported() -> None:
    source = """
import sys, anyio
from acp_server.rpc import MethodTable, Peer
from acp_server.transport import memory_transport_pair

async def main():
    ours, theirs = memory_transport_pair()
    seen = []

    def methods():
        seen.append(bytes(theirs._source._buffer))
        return MethodTable({})

    def initialize(params):
        assert "jsonrpcserver" not in sys.modules
        return {}

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(theirs.run)
        theirs.send(b'{"jsonrpc":"2.0","id":1,"method":"initialize"}\\n')
        tasks.start_soon(theirs.send_eof)
        await Peer(ours, initialize=initialize, methods=methods).serve()
        tasks.cancel_scope.cancel()
    print(seen, "jsonrpcserver" in sys.modules)

anyio.run(main)
"""
    with anyio.fail_after(20):
        done = await anyio.run_process([sys.executable, "-W", "ignore", "-c", source])
    assert done.stdout == (b"""[b'{"jsonrpc":"2.0","id":1,"result":{}}\\n'] True\n""")

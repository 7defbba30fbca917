"""Whatever a client sends, the server lives, answers a ping, and answers each id exactly once.

A fixed number of repeatable examples by default; with `ACP_SOAK=N` in the environment N hundred
times as many, random ones.
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import anyio
import orjson
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acp_server.agents.agent import Agent
from acp_server.agents.turn import Turn
from acp_server.testing import FILE_CAPABILITIES, AcpClient, AcpError, running_server
from acp_server.turns.errors import PermissionDenied

SOAK: Final = int(os.environ.get("ACP_SOAK", "0"))
EDGE: Final = Path(__file__).parents[2] / "fixtures" / "agents" / "edge.py"
FIRST: Final = "00000000-0000-7000-8000-000000000001"
SECOND: Final = "00000000-0000-7000-8000-000000000002"
METHODS: Final = (
    "initialize",
    "authenticate",
    "logout",
    "session/new",
    "session/load",
    "session/resume",
    "session/list",
    "session/close",
    "session/delete",
    "session/set_mode",
    "session/set_config_option",
    "session/prompt",
    "session/cancel",
    "$/cancel_request",
    "session/fork",
    "_vendor/x",
)


def examples(count: int) -> settings:
    """Return settings for `count` examples, or for a soak of many more."""
    return settings(
        max_examples=count * (100 * SOAK or 1),
        derandomize=not SOAK,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


# What is sent.

texts = st.one_of(
    st.text(max_size=12), st.sampled_from(["", "ask", "sleep", "tool", "read", "fail", "/w", "2.0"])
)
numbers = st.one_of(
    st.integers(-3, 9),
    st.sampled_from([2**31, 2**53, 2**53 + 1, 2**63, 2**64, -(2**64), 10**30]),
    st.floats(allow_nan=False, allow_infinity=False),
)
scalars = st.one_of(st.none(), st.booleans(), numbers, texts)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
ids = st.one_of(st.integers(100, 110), st.sampled_from(["a", "b", "1", ""]), st.none())
odd_ids = st.one_of(ids, values)


def encoded(value: object) -> bytes:
    """Write JSON as Python does, lone surrogates, huge integers and all."""
    return json.dumps(value).encode("utf-8", "replace")


def line_of(frame: object) -> bytes:
    return encoded(frame) + b"\n"


SESSION_IDS: Final = st.sampled_from([FIRST, SECOND, "unknown", ""])
BLOCKS: Final = st.lists(
    st.one_of(
        st.builds(lambda text: {"type": "text", "text": text}, texts),
        st.builds(lambda uri: {"type": "resource_link", "uri": uri, "name": "n"}, texts),
        st.just({"type": "image", "data": "aGk=", "mimeType": "image/png"}),
        values,
    ),
    max_size=3,
)
MEMBERS: Final[Mapping[str, st.SearchStrategy[Any]]] = {
    "protocolVersion": st.one_of(st.just(1), st.integers(-1, 70000), values),
    "clientCapabilities": values,
    "sessionId": SESSION_IDS,
    "cwd": st.sampled_from(["/w", "/w/", "/", "w", ""]),
    "mcpServers": st.one_of(st.just([]), st.lists(values, max_size=2)),
    "additionalDirectories": st.one_of(st.just([]), st.just(["/x"]), values),
    "prompt": BLOCKS,
    "modeId": st.one_of(st.sampled_from(["ask", "read-only", "full-access"]), values),
    "configId": st.one_of(st.just("mode"), values),
    "value": st.one_of(st.sampled_from(["ask", "auto-edit"]), values),
    "methodId": texts,
    "cursor": values,
    "requestId": odd_ids,
    "_meta": values,
}
params = st.one_of(
    st.fixed_dictionaries({}, optional=dict(MEMBERS)),
    st.fixed_dictionaries({name: MEMBERS[name] for name in ("sessionId", "prompt")}),
    st.fixed_dictionaries({name: MEMBERS[name] for name in ("sessionId", "cwd", "mcpServers")}),
    values,
)
calls = st.builds(
    lambda method, params, extra: {"jsonrpc": "2.0", "method": method, "params": params, **extra},
    st.sampled_from(METHODS),
    params,
    st.one_of(
        st.builds(lambda value: {"id": value}, ids),
        st.builds(lambda value: {"id": value}, odd_ids),
        st.just({}),
    ),
)
answers = st.builds(
    lambda value, rest: {"jsonrpc": "2.0", "id": value, **rest},
    st.one_of(st.integers(0, 4), odd_ids),
    st.one_of(
        st.builds(lambda v: {"result": v}, values), st.builds(lambda v: {"error": v}, values)
    ),
)
envelopes = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.one_of(st.just("2.0"), values),
        "id": odd_ids,
        "method": st.one_of(st.sampled_from(METHODS), values),
        "params": params,
        "result": values,
        "error": values,
        "extra": values,
    },
)
separators = st.sampled_from([b"\n", b"\r\n", b"\n\n", b" \n", b"\r\n\r\n"])
byte_lines = st.builds(lambda data, end: data + end, st.binary(max_size=40), separators)
json_lines = st.one_of(
    values.map(line_of), envelopes.map(line_of), answers.map(line_of), calls.map(line_of)
)


@st.composite
def damaged_lines(draw: st.DrawFn) -> bytes:
    """A call of which some bytes were lost or changed."""
    data = bytearray(encoded(draw(calls)))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, max(0, len(data) - 1)))
        if draw(st.booleans()):
            del data[place : place + draw(st.integers(1, 5))]
        else:
            data[place : place + 1] = draw(st.binary(max_size=2))
    return bytes(data) + b"\n"


# Who answers.


async def drive(turn: Turn) -> None:
    """Do what the prompt says; be slow, ask, fail."""
    match turn.prompt:
        case "ask":
            try:
                async with turn.tool("ask", ask=True) as call:
                    call.result("allowed")
            except PermissionDenied:
                await turn.text("denied")
        case "sleep":
            await turn.text("sleeping")
            await anyio.sleep_forever()
        case "tool":
            async with turn.tool("shell", kind="execute", arguments={"a": 1}):
                await anyio.sleep_forever()
        case "read":
            await turn.text(await turn.files.read("a.txt"))
        case "fail":
            message = "no"
            raise ValueError(message)
        case prompt:
            await turn.text(prompt)


FUZZED: Final = Agent("fuzzed", drive)


# How it is judged.

Key = tuple[str, Any]

UNDISTURBED: Final = ("json", "envelope", "null", "size")
"""Rules of the checker that hold although ids are used twice; the others rest on pairing them."""


def key_of(id: object) -> Key:
    return type(id).__name__, id if isinstance(id, int | str) else None


def read(line: bytes) -> Any:
    """Return the value of a line, None where it has none."""
    try:
        return json.loads(line.decode())
    except (ValueError, RecursionError):
        return None


def owed(lines: Sequence[bytes]) -> Counter[Key]:
    """Count the answers that each id is owed, null apart: it answers bad lines, too."""
    count: Counter[Key] = Counter()
    for line in lines:
        frame = read(line)
        if isinstance(frame, dict) and frame.get("jsonrpc") == "2.0" and is_asking(frame):
            count[key_of(frame["id"])] += 1
    return count


def is_asking(frame: dict[str, Any]) -> bool:
    """Tell a request, well-formed or not, from notifications and responses."""
    if type(frame.get("id")) not in (int, str):
        return False
    return "method" in frame or not ({"result", "error"} & frame.keys())


def answered(client: AcpClient) -> Counter[Key]:
    frames = [orjson.loads(f.data) for f in client.frames if f.sender == "agent"]
    return Counter(
        key_of(frame["id"]) for frame in frames if "method" not in frame and frame["id"] is not None
    )


def client_lines(client: AcpClient) -> list[bytes]:
    """Return what was sent, and came as lines of their own."""
    return [f.data for f in client.frames if f.sender == "client"]


async def ping(client: AcpClient) -> None:
    with pytest.raises(AcpError) as caught:
        await client.request("_test/ping", timeout=5)
    assert caught.value.code == -32601


async def settle(client: AcpClient) -> None:
    """End all turns, ping, and see every request answered once."""
    for session_id in {FIRST, SECOND, *client._by_session}:
        await client.cancel(session_id)
    await ping(client)
    expected = owed(client_lines(client))
    with anyio.move_on_after(5):
        while answered(client) != expected:
            await client._connection.changed.wait()
    await ping(client)
    # Not the ids of requests that settled open ones by chance: those have no method.
    assert answered(client) == owed(client_lines(client))


def violations(client: AcpClient, rules: Sequence[str]) -> list[str]:
    return [str(v) for v in client.checker.violations if not rules or v.rule in rules]


async def fuzz(
    packets: Sequence[bytes],
    steps: Sequence[int] = (),
    *,
    opened: bool,
    rules: Sequence[str] = UNDISTURBED,
) -> None:
    """Send packets to a server in memory, so many loop passes apart."""
    never = ["session/request_permission", "fs/read_text_file"]
    with anyio.fail_after(30):
        async with running_server(
            FUZZED, capabilities=dict(FILE_CAPABILITIES), never_answer=never
        ) as client:
            if opened:
                await client.new_session("/w")
            for number, packet in enumerate(packets):
                await client.send_raw(packet)
                for _ in range(steps[number] if number < len(steps) else 0):
                    await checkpoint()
            await settle(client)
            assert violations(client, rules) == []
            client.checker.violations.clear()


def run(function: Callable[..., Any], *args: Any, **options: Any) -> None:
    async def call() -> None:
        await function(*args, **options)

    anyio.run(call)


@pytest.mark.rule("bad-input-never-ends-server")
@given(st.lists(byte_lines, max_size=8), st.booleans())
@examples(30)
def test_random_bytes(lines: list[bytes], opened: bool) -> None:
    run(fuzz, lines, opened=opened)


@given(st.lists(st.one_of(json_lines, damaged_lines()), max_size=8), st.booleans())
@examples(50)
def test_random_json_and_damaged_calls(lines: list[bytes], opened: bool) -> None:
    run(fuzz, lines, opened=opened)


@given(st.lists(calls.map(line_of), min_size=1, max_size=10))
@examples(50)
def test_random_params_of_real_methods(lines: list[bytes]) -> None:
    run(fuzz, lines, opened=True)


def request(id: object, method: str, **members: Any) -> bytes:
    return line_of({"jsonrpc": "2.0", "id": id, "method": method, "params": members})


def notification(method: str, **members: Any) -> bytes:
    return line_of({"jsonrpc": "2.0", "method": method, "params": members})


def prompt(id: object, session_id: str, text: str) -> bytes:
    blocks = [{"type": "text", "text": text}]
    return request(id, "session/prompt", sessionId=session_id, prompt=blocks)


sessions = st.sampled_from([FIRST, SECOND])
opening = {"cwd": "/w", "mcpServers": []}
outcomes = st.sampled_from(
    [
        {"outcome": "cancelled"},
        {"outcome": "selected", "optionId": "allow-once"},
        {"outcome": "selected", "optionId": "none such"},
        None,
    ]
)
places = st.sampled_from(["hi", "ask", "sleep", "tool", "read", "fail"])
others = st.sampled_from(
    ["session/load", "session/resume", "session/close", "session/delete", "session/list"]
)
modes = st.sampled_from(["ask", "full-access", "none such"])
actions = st.one_of(
    st.builds(lambda s, text: lambda n: prompt(n, s, text), sessions, places),
    st.builds(lambda s, text: lambda n: prompt(n, s, text), sessions, places),
    st.builds(lambda s: lambda _: notification("session/cancel", sessionId=s), sessions),
    st.builds(
        lambda back: lambda n: notification("$/cancel_request", requestId=n - back),
        st.integers(0, 4),
    ),
    st.just(lambda n: request(n, "session/new", **opening)),
    st.builds(lambda s, m: lambda n: request(n, m, sessionId=s, **opening), sessions, others),
    st.builds(
        lambda s, m: lambda n: request(n, "session/set_mode", sessionId=s, modeId=m),
        sessions,
        modes,
    ),
    st.builds(
        lambda i, o: lambda _: line_of({"jsonrpc": "2.0", "id": i, "result": {"outcome": o}}),
        st.integers(0, 5),
        outcomes,
    ),
)


@pytest.mark.rule("sessions-stay-apart")
@given(
    st.lists(st.tuples(actions, st.booleans()), min_size=1, max_size=20),
    st.lists(st.integers(0, 12), max_size=12),
)
@examples(80)
def test_random_interleavings_of_prompts_cancels_and_loads(
    acts: list[tuple[Callable[[int], bytes], bool]], steps: list[int]
) -> None:
    packets = [b""]
    for number, (act, begins) in enumerate(acts, 1000):
        if begins:
            packets.append(b"")
        packets[-1] += act(number)
    run(fuzz, [packet for packet in packets if packet], steps, opened=True, rules=())


async def fuzz_process(lines: Sequence[bytes], store: Path) -> None:
    argv = [sys.executable, "-m", "acp_server", "serve", "--agent", f"{EDGE}:waiter"]
    async with AcpClient.spawn([*argv, "--store", f"jsonl:{store}"]) as client:
        await client.initialize()
        session_id = await client.new_session("/tmp")
        pid = client.pid
        for line in lines:
            await client.send_raw(line.replace(FIRST.encode(), session_id.encode()))
        await settle(client)
        assert violations(client, UNDISTURBED) == []
        client.checker.violations.clear()
        assert client.pid == pid
        assert client.exit_code is None
        assert client.stderr == ""


@pytest.mark.rule("bad-input-never-ends-server")
@given(lines=st.lists(st.one_of(byte_lines, json_lines, damaged_lines()), min_size=30, max_size=60))
@examples(1)
def test_a_real_process_survives_all_of_it(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]
) -> None:
    run(fuzz_process, lines, tmp_path_factory.mktemp("fuzz") / "store")

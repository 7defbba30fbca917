"""Frames of every odd kind at a real server process: each is answered as ruled, and it lives."""

import hashlib
import os
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from acp_server.testing import FILE_CAPABILITIES, AcpClient, AcpError, FrameChecker

AGENTS = Path(__file__).parents[2] / "fixtures" / "agents" / "edge.py"
MIB = 1024 * 1024
LINE_ENDS = "a\u2028b\u2029c\u0085d\u000b\u000c\u001c\u001d\u001ee"
PARSE, INVALID, NO_METHOD, BAD_PARAMS = -32700, -32600, -32601, -32602


@asynccontextmanager
async def serving(tmp_path: Path, agent: str = "echo", **options: Any) -> AsyncIterator[AcpClient]:
    """Run a server, initialized; after the block it must still have answered a ping."""
    argv = [sys.executable, "-m", "acp_server", "serve", "--agent", f"{AGENTS}:{agent}"]
    async with AcpClient.spawn(
        [*argv, "--store", f"jsonl:{tmp_path / 'store'}"], timeout=20, **options
    ) as client:
        await client.initialize(dict(FILE_CAPABILITIES))
        yield client
        await ping(client)
        assert client.exit_code is None
        assert client.stderr == ""


async def ping(client: AcpClient) -> None:
    with pytest.raises(AcpError) as caught:
        await client.request("_test/ping")
    assert caught.value.code == NO_METHOD


async def answers_to(client: AcpClient, data: bytes) -> list[dict[str, Any]]:
    """Send bytes, then a ping; return what the agent said in between."""
    before = len(client.frames)
    await client.send_raw(data)
    await ping(client)
    frames = [frame.data for frame in client.frames[before:] if frame.sender == "agent"]
    return [orjson.loads(frame) for frame in frames[:-1]]


def refusals(frames: Sequence[dict[str, Any]]) -> list[tuple[Any, int | None]]:
    """Return (id, error code or None) of each frame."""
    return [(frame.get("id"), frame.get("error", {}).get("code")) for frame in frames]


def odd_lines() -> Iterator[tuple[str, bytes, list[tuple[Any, int | None]]]]:
    """Yield (name, line, the expected answers)."""
    listing = b'"method":"session/list","params":{}'
    yield "cut off", b"{", [(None, PARSE)]
    yield "deep", b"[" * 100_000, [(None, PARSE)]
    yield "deep and closed", b'{"a":' + b"[" * 2000 + b"]" * 2000 + b"}", [(None, PARSE)]
    yield "bad UTF-8", b"\xff\xfe{}", [(None, PARSE)]
    yield "overlong UTF-8", b'{"a":"\xc0\xaf"}', [(None, PARSE)]
    yield "encoded surrogate", b'{"a":"\xed\xa0\x80"}', [(None, PARSE)]
    yield "NaN", b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"n":NaN}}', [(None, PARSE)]
    yield (
        "infinity",
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"n":-Infinity}}',
        [(None, PARSE)],
    )
    yield "string", b'"hello"', [(None, INVALID)]
    yield "number", b"42", [(None, INVALID)]
    yield "null", b"null", [(None, INVALID)]
    yield "empty batch", b"[]", [(None, INVALID)]
    yield (
        "batch",
        b'[{"jsonrpc":"2.0","id":21,%b},{"jsonrpc":"2.0","id":22,%b}]'
        % (
            listing,
            listing,
        ),
        [(None, INVALID)],
    )
    yield "empty", b"", []
    yield "spaces", b"   \t ", []
    yield "CR alone", b"\r", []
    yield "no method, no id", b'{"jsonrpc":"2.0"}', [(None, INVALID)]
    yield "id alone", b'{"jsonrpc":"2.0","id":31}', [(31, INVALID)]
    yield "version 1.0", b'{"jsonrpc":"1.0","id":1,%b}' % listing, [(None, INVALID)]
    yield "no version", b'{"id":1,%b}' % listing, [(None, INVALID)]
    yield "method a number", b'{"jsonrpc":"2.0","id":901,"method":5}', [(901, INVALID)]
    yield "id an object", b'{"jsonrpc":"2.0","id":{},%b}' % listing, [(None, INVALID)]
    yield "id a fraction", b'{"jsonrpc":"2.0","id":1.5,%b}' % listing, [(None, INVALID)]
    yield "id true", b'{"jsonrpc":"2.0","id":true,%b}' % listing, [(None, INVALID)]
    for params in (b'"x"', b"7", b"[]", b'["/w"]', b"true"):
        yield (
            "params " + params.decode(),
            (b'{"jsonrpc":"2.0","id":902,"method":"session/list","params":%b}' % params),
            [(902, BAD_PARAMS)],
        )
    yield (
        "notification with bad params",
        (b'{"jsonrpc":"2.0","method":"session/cancel","params":"x"}'),
        [],
    )
    yield (
        "huge integer in params",
        (b'{"jsonrpc":"2.0","id":903,"method":"x","params":{"n":18446744073709551616}}'),
        [(903, BAD_PARAMS)],
    )
    yield (
        "unknown method",
        b'{"jsonrpc":"2.0","id":905,"method":"session/nope"}',
        [(905, NO_METHOD)],
    )
    yield "unknown notification", b'{"jsonrpc":"2.0","method":"session/nope","params":{}}', []
    yield "extension notification", b'{"jsonrpc":"2.0","method":"_vendor/y"}', []
    yield "unknown $ notification", b'{"jsonrpc":"2.0","method":"$/progress","params":{}}', []
    yield "stray result", b'{"jsonrpc":"2.0","id":777,"result":{}}', []
    yield "stray error", b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"x"}}', []
    yield (
        "cancel of nothing",
        (b'{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":9e3}}'),
        [],
    )


@pytest.mark.rule(
    "unknown-notifications-are-silent",
    "errors-have-fixed-codes",
    "stdout-has-frames-only",
    "each-request-gets-one-response",
    "bad-input-never-ends-server",
    "responses-are-routed",
    "malformed-messages-are-invalid",
    "unsafe-integers-are-refused",
    "only-lf-ends-a-line",
    "unadvertised-methods-are-not-found",
    "unparsable-line-is-parse-error",
)
@pytest.mark.case("B02", "B11")
async def test_every_odd_line_is_answered_as_ruled_and_the_process_lives(tmp_path: Path) -> None:
    async with serving(tmp_path) as client:
        pid = client.pid
        for name, line, expected in odd_lines():
            assert refusals(await answers_to(client, line + b"\n")) == expected, name
            assert refusals(await answers_to(client, line + b"\r\n")) == expected, name
        together = b"".join(line + b"\n" for _name, line, _ in odd_lines())
        everything = [answer for _name, _line, expected in odd_lines() for answer in expected]
        answered = refusals(await answers_to(client, together))
        assert sorted(map(repr, answered)) == sorted(map(repr, everything))
        assert client.pid == pid


async def one_more_frame(client: AcpClient, count: int) -> None:
    await client.wait_for_frame(lambda _frame: len(client.frames) > count)


@pytest.mark.rule(
    "ids-come-back-exactly", "bad-input-never-ends-server", "extra-members-are-accepted"
)
@pytest.mark.case("B11")
async def test_ids_of_every_kind_come_back_with_value_and_type(tmp_path: Path) -> None:
    async with serving(tmp_path) as client:
        ids = [b'"abc"', b"0", b"-7", b'""', b'"7"', b"null", b"123456789012345678901234567890"]
        for request_id in ids:
            line = (
                b'{"jsonrpc":"2.0","id":%b,"method":"session\\/list","params":{"future":1}}\n'
                % request_id
            )
            before = len(client.frames)
            await client.send_raw(line)
            await one_more_frame(client, before + 1)
            start = b'{"jsonrpc":"2.0","id":%b,"result":' % request_id
            assert client.frames[-1].data.startswith(start)


@pytest.mark.rule("each-request-gets-one-response")
@pytest.mark.case("B11")
async def test_one_id_twice_in_one_write_gets_two_answers(tmp_path: Path) -> None:
    async with serving(tmp_path) as client:
        line = b'{"jsonrpc":"2.0","id":"twice","method":"authenticate","params":{"methodId":"x"}}\n'
        answered = await answers_to(client, line + line)
        assert [frame["id"] for frame in answered] == ["twice", "twice"]
        assert any("result" in frame for frame in answered)


@pytest.mark.rule("only-lf-ends-a-line", "bad-input-never-ends-server")
async def test_a_bom_crlf_and_frames_in_pieces_are_read(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "acp_server", "serve", "--agent", f"{AGENTS}:echo"]
    argv += ["--store", f"jsonl:{tmp_path / 'store'}"]
    async with AcpClient.spawn(argv) as client:
        opening = b'{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":1}}'
        data = b"\xef\xbb\xbf" + opening + b"\r\n\r\n \n"
        for start in range(0, len(data), 7):
            await client.send_raw(data[start : start + 7])
        await client.wait_for_frame(lambda frame: frame.get("id") == "i" and "result" in frame)
        await ping(client)


def prompt_line(session_id: str, size: int) -> tuple[bytes, str]:
    """Return a prompt whose line without LF has exactly `size` bytes, and its text."""
    frame = {
        "jsonrpc": "2.0",
        "id": f"p{size}",
        "method": "session/prompt",
        "params": {"sessionId": session_id, "prompt": [{"type": "text", "text": ""}]},
    }
    text = "a" * (size - len(orjson.dumps(frame)))
    frame["params"]["prompt"][0]["text"] = text  # type: ignore[index]
    line = orjson.dumps(frame)
    assert len(line) == size
    return line + b"\n", text


async def answer_to(client: AcpClient, request_id: str) -> dict[str, Any]:
    return await client.wait_for_frame(lambda frame: frame.get("id") == request_id, 30)


@pytest.mark.rule("large-frames-come-whole", "bad-input-never-ends-server")
@pytest.mark.case("B01")
async def test_frames_of_any_size_arrive_whole(tmp_path: Path) -> None:
    async with serving(tmp_path, "digest") as client:
        session_id = await client.new_session(tmp_path)
        for size in (65_535, 65_536, 65_537, 131_073, 8 * MIB, 20 * MIB):
            line, text = prompt_line(session_id, size)
            before = len(client.updates)
            await client.send_raw(line)
            answer = await answer_to(client, f"p{size}")
            assert answer["result"] == {"stopReason": "end_turn"}
            chunks = [seen.update for seen in client.updates[before:]]
            said = "".join(u["content"]["text"] for u in chunks if "messageId" in u)
            assert said == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.rule("large-frames-come-whole")
@pytest.mark.case("B01")
async def test_a_large_frame_and_the_next_in_one_write_are_both_handled(tmp_path: Path) -> None:
    async with serving(tmp_path) as client:
        padding = b"p" * 70_000
        large = b'{"jsonrpc":"2.0","id":"l","method":"_x","params":{"p":"%b"}}\n' % padding
        small = b'{"jsonrpc":"2.0","id":"s","method":"_y"}\n'
        answered = refusals(await answers_to(client, large + small))
        assert answered == [("l", NO_METHOD), ("s", NO_METHOD)]


@pytest.mark.rule("large-frames-come-whole")
@pytest.mark.case("B01")
async def test_a_large_answer_of_the_client_reaches_the_tool(tmp_path: Path) -> None:
    (tmp_path / "large.txt").write_text("x" * MIB)
    async with serving(tmp_path, "reader") as client:
        session_id = await client.new_session(tmp_path)
        result = await client.prompt(session_id, "large.txt")
        assert result.text == f"{MIB} characters"


@pytest.mark.rule("large-frames-come-whole", "bad-input-never-ends-server")
@pytest.mark.case("B01")
async def test_a_frame_beyond_the_limit_is_refused_once_and_skipped_to_its_end(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, checker=FrameChecker(sdk=False)) as client:
        # The line is full of what would be requests, were it cut anywhere but at its LF.
        inner = b'{"jsonrpc":"2.0","id":"inner","method":"session/list"}'
        line = inner * (65 * MIB // len(inner))
        assert refusals(await answers_to(client, line + b"\n")) == [(None, INVALID)]


@pytest.mark.rule("only-lf-ends-a-line", "prompt-is-never-echoed")
@pytest.mark.case("B08", "B19")
async def test_line_separators_are_ordinary_characters_everywhere(tmp_path: Path) -> None:
    (tmp_path / "odd.txt").write_bytes(LINE_ENDS.encode())
    assert b"\xe2\x80\xa8" in orjson.dumps(LINE_ENDS)  # raw in the frames
    async with serving(tmp_path, "reader") as client:
        session_id = await client.new_session(tmp_path)
        echoed = await client.prompt(session_id, f"say {LINE_ENDS}")
        assert echoed.text == LINE_ENDS
        (card,) = (await client.prompt(session_id, "odd.txt")).transcript.cards
        assert orjson.dumps(LINE_ENDS)[1:-1] in orjson.dumps(card.content)
        live = client.transcript
    (log,) = (tmp_path / "store").glob("*/*/session.jsonl")
    records = log.read_bytes().split(b"\n")
    assert records.pop() == b""
    assert all(isinstance(orjson.loads(record), dict) for record in records)
    async with serving(tmp_path, "reader") as client:
        await client.load_session(session_id, tmp_path)
        assert client.transcript == live
        users = [
            seen.update["content"]["text"]
            for seen in client.updates
            if seen.update["sessionUpdate"] == "user_message_chunk"
        ]
        assert users == [f"say {LINE_ENDS}", "odd.txt"]
        assert (await client.prompt(session_id, "say again")).text == "again"


def children_of(pid: int) -> list[int]:
    """Return the child processes of a process, by /proc."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid:
                found.append(int(entry.name))
    return found


@pytest.mark.rule("children-have-no-wire")
@pytest.mark.case("B04")
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks into /proc")  # noqa: PTH112
async def test_a_child_of_an_agent_cannot_eat_frames(tmp_path: Path) -> None:
    async with serving(tmp_path, "spawner") as client:
        session_id = await client.new_session(tmp_path)
        handle = await client.start_prompt(session_id, "go")
        await client.wait_for_update(lambda update: "messageId" in update)
        for child in children_of(client.pid):
            assert os.readlink(f"/proc/{child}/fd/0") == "/dev/null"  # noqa: PTH115
        await ping(client)
        (tmp_path / "go on").touch()
        # Each read its whole stdin: nothing.
        assert (await handle.result()).text == "started eaten 0 0 "

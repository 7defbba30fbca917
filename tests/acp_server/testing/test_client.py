"""The client against a scripted agent that speaks raw JSON lines and shares no code with us."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

import anyio
import pytest

from acp_server.testing import (
    FILE_CAPABILITIES,
    AcpClient,
    AcpError,
    AcpTimeoutError,
    AgentExitError,
    AgentGoneError,
    FrameChecker,
    FrameViolationError,
    Message,
)

AGENT = dedent("""
    import json, os, sys, time

    out = 100
    turn = 0

    def send(**frame):
        print(json.dumps({"jsonrpc": "2.0", **frame}), flush=True)

    def update(kind, **members):
        send(method="session/update",
             params={"sessionId": "s", "update": {"sessionUpdate": kind, **members}})

    def say(text):
        update("agent_message_chunk", content={"type": "text", "text": text},
               messageId=f"a{turn}")

    def ask(method, **params):
        global out
        out += 1
        send(id=out, method=method, params={"sessionId": "s", **params})
        while True:
            frame = json.loads(sys.stdin.readline())
            if frame.get("id") == out and "method" not in frame:
                return frame

    OPTIONS = [{"optionId": "y", "name": "Yes", "kind": "allow_once"},
               {"optionId": "n", "name": "No", "kind": "reject_once"}]

    def prompt(words):
        global turn
        turn += 1
        call = f"c{turn}"
        command, _, rest = words.partition(" ")
        if command == "permission":
            update("tool_call", toolCallId=call, title="T")
            say(json.dumps(ask("session/request_permission", toolCall={"toolCallId": call},
                               options=OPTIONS)))
            update("tool_call_update", toolCallId=call, status="completed")
        elif command == "withdraw":
            update("tool_call", toolCallId=call, title="T")
            send(id=1, method="session/request_permission",
                 params={"sessionId": "s", "toolCall": {"toolCallId": call}, "options": OPTIONS})
            send(method="$/cancel_request", params={"requestId": 1})
            say(sys.stdin.readline())
            update("tool_call_update", toolCallId=call, status="failed")
        elif command == "read":
            say(json.dumps(ask("fs/read_text_file", **json.loads(rest))))
        elif command == "write":
            say(json.dumps(ask("fs/write_text_file", path=rest, content="new")))
        elif command == "ask":
            say(json.dumps(ask(rest)))
        elif command == "exit":
            print("going down", file=sys.stderr)
            os._exit(int(rest))
        elif command == "hang":
            say("begun")
            while json.loads(sys.stdin.readline()).get("method") != "session/cancel":
                pass
            return "cancelled"
        elif command == "print":
            print("a stray line", flush=True)
        elif command == "null":
            update("session_info_update", title=None)
        else:
            say(words)
        return "end_turn"

    mode = sys.argv[1] if len(sys.argv) > 1 else ""
    for line in sys.stdin:
        try:
            frame = json.loads(line)
        except ValueError:
            send(id=None, error={"code": -32700, "message": "Parse error"})
            continue
        method, params, id = frame.get("method"), frame.get("params"), frame.get("id")
        if method == "initialize":
            send(id=id, result={"protocolVersion": 1})
        elif method == "session/new":
            send(id=id, result={"sessionId": "s"})
            update("available_commands_update", availableCommands=[])
        elif method == "session/load":
            update("user_message_chunk", content={"type": "text", "text": "hi"}, messageId="u0")
            say("replayed")
            send(id=id, result={})
        elif method == "session/prompt":
            reason = prompt(params["prompt"][0]["text"])
            send(id=id, result={"stopReason": reason, "_meta": {"n": 1}})
        elif method == "echo":
            send(id=id, result={"params": params})
        elif method == "silence":
            pass
        elif id is not None:
            send(id=id, error={"code": -32601, "message": "Method not found",
                               "data": {"method": method}})
    if mode == "stay":
        time.sleep(60)
    sys.exit(3 if mode == "bad" else 0)
""")


@pytest.fixture(name="argv")
def agent_argv(tmp_path: Path) -> list[str]:
    script = tmp_path / "agent.py"
    script.write_text(AGENT)
    return [sys.executable, str(script)]


@contextmanager
def bounded(seconds: float = 20) -> Iterator[None]:
    with anyio.fail_after(seconds):
        yield


async def opened(client: AcpClient, cwd: Path, **capabilities: Any) -> str:
    await client.initialize(capabilities)
    return await client.new_session(cwd)


async def test_a_turn_gives_its_text_reason_and_updates(argv: list[str], tmp_path: Path) -> None:
    with bounded():
        async with AcpClient.spawn(argv) as client:
            session = await opened(client, tmp_path)
            result = await client.prompt(session, "hello")
            assert (result.stop_reason, result.text, result.meta) == ("end_turn", "hello", {"n": 1})
            assert client.transcript.entries == (Message("text", "a1", "hello"),)
            kinds = [update["sessionUpdate"] for update in client.updates_of(session)]
            assert kinds == ["available_commands_update", "agent_message_chunk"]
            assert client.exit_code is None
            assert client.pid > 0
        assert client.exit_code == 0
        assert client.stderr == ""


async def test_all_frames_are_kept_in_order(argv: list[str], tmp_path: Path) -> None:
    with bounded():
        async with AcpClient.spawn(argv) as client:
            await opened(client, tmp_path)
    senders = [frame.sender for frame in client.frames]
    assert senders == ["client", "agent", "client", "agent", "agent"]
    assert client.frames[0].data.startswith(b'{"jsonrpc":"2.0","id":0,"method":"initialize"')
    assert all(b"\n" not in frame.data for frame in client.frames)


async def test_a_load_begins_the_transcript_anew(argv: list[str], tmp_path: Path) -> None:
    with bounded():
        async with AcpClient.spawn(argv) as client:
            await client.initialize()
            await client.load_session("s", tmp_path)
            await client.load_session("s", tmp_path)
            assert client.transcript.text == "replayed"
            assert client.transcript.user_text == "hi"
            assert len(client.updates) == 4


@pytest.mark.parametrize(
    ("kinds", "outcome"),
    [
        (["allow_once"], '"optionId": "y"'),
        (["reject_once"], '"optionId": "n"'),
        ([], '"cancelled"'),
        (["allow_always"], '"cancelled"'),
    ],
)
async def test_permissions_are_answered_by_kind(
    argv: list[str], tmp_path: Path, kinds: list[str], outcome: str
) -> None:
    with bounded():
        async with AcpClient.spawn(argv, permissions=kinds) as client:
            session = await opened(client, tmp_path)
            result = await client.prompt(session, "permission")
            assert outcome in result.text
            assert len(client.problems) == (kinds == ["allow_always"])


async def test_permissions_are_a_queue(argv: list[str], tmp_path: Path) -> None:
    kinds = ["allow_once", "reject_once"]
    with bounded():
        async with AcpClient.spawn(argv, permissions=kinds) as client:
            session = await opened(client, tmp_path)
            texts = [(await client.prompt(session, "permission")).text for _ in range(2)]
    assert ['"y"' in text for text in texts] == [True, False]
    assert ['"n"' in text for text in texts] == [False, True]


async def test_a_permission_policy_may_be_a_function(argv: list[str], tmp_path: Path) -> None:
    async def choose(params: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        return {"outcome": {"outcome": "selected", "optionId": params["options"][1]["optionId"]}}

    with bounded():
        async with AcpClient.spawn(argv, permissions=choose) as client:
            session = await opened(client, tmp_path)
            assert '"optionId": "n"' in (await client.prompt(session, "permission")).text


async def test_a_cancel_answers_the_open_permission(argv: list[str], tmp_path: Path) -> None:
    async def never(_params: Any) -> Any:
        await anyio.sleep_forever()

    with bounded():
        async with AcpClient.spawn(argv, permissions=never) as client:
            session = await opened(client, tmp_path)
            handle = await client.start_prompt(session, "permission")
            await client.wait_for_agent_request("session/request_permission")
            assert not handle.done
            await client.cancel(session)
            assert '"outcome": "cancelled"' in (await handle.result()).text


async def test_a_withdrawn_request_is_answered_as_cancelled(
    argv: list[str], tmp_path: Path
) -> None:
    async def never(_params: Any) -> Any:
        await anyio.sleep_forever()

    with bounded():
        async with AcpClient.spawn(argv, permissions=never) as client:
            session = await opened(client, tmp_path)
            assert "-32800" in (await client.prompt(session, "withdraw")).text


async def test_a_client_that_never_answers_leaves_the_request_open(
    argv: list[str], tmp_path: Path
) -> None:
    with bounded():
        never = ["session/request_permission"]
        async with AcpClient.spawn(argv, never_answer=never) as client:
            session = await opened(client, tmp_path)
            handle = await client.start_prompt(session, "permission")
            await client.wait_for_agent_request("session/request_permission")
            await client.cancel(session)
            with pytest.raises(AcpTimeoutError):
                await handle.result(timeout=0.05)
            client.kill()
            await client.wait()


async def test_files_are_served_from_the_disk(argv: list[str], tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    path = str(tmp_path / "a.txt")
    with bounded():
        async with AcpClient.spawn(argv) as client:
            session = await opened(client, tmp_path, **FILE_CAPABILITIES)

            async def read(**params: object) -> str:
                return (await client.prompt(session, f"read {json.dumps(params)}")).text

            assert '"one\\ntwo\\nthree\\n"' in await read(path=path)
            assert '"two\\n"' in await read(path=path, line=2, limit=1)
            assert '"three\\n"' in await read(path=path, line=3)
            assert "-32002" in await read(path=str(tmp_path / "none"))
            assert "-32602" in await read(path="/etc/passwd")
            assert "-32602" in await read(path="a.txt")
            assert "-32602" in await read(path=f"{tmp_path}/../x")
            assert '"result": {}' in (await client.prompt(session, f"write {path}")).text
    assert (tmp_path / "a.txt").read_text() == "new"


async def test_what_the_client_does_not_serve_is_not_found(argv: list[str], tmp_path: Path) -> None:
    with bounded():
        async with AcpClient.spawn(argv) as client:
            session = await opened(client, tmp_path)
            assert "-32601" in (await client.prompt(session, "ask _x/y")).text


async def test_further_methods_can_be_answered(argv: list[str], tmp_path: Path) -> None:
    def refuse(_params: Any) -> Any:
        raise AcpError(-31000, "no", {"why": 1})

    answers = {"_x/y": lambda params: {"got": params["sessionId"]}, "_x/z": refuse}
    with bounded():
        async with AcpClient.spawn(argv, answers=answers) as client:
            session = await opened(client, tmp_path)
            assert '"got": "s"' in (await client.prompt(session, "ask _x/y")).text
        async with AcpClient.spawn(argv, answers=answers) as client:
            session = await opened(client, tmp_path)
            assert '"why": 1' in (await client.prompt(session, "ask _x/z")).text


async def test_an_error_response_is_raised_with_its_parts(argv: list[str]) -> None:
    with bounded():
        async with AcpClient.spawn(argv) as client:
            await client.initialize()
            with pytest.raises(AcpError) as caught:
                await client.set_mode("s", "m")
            error = caught.value
            assert (error.code, error.message) == (-32601, "Method not found")
            assert error.data == {"method": "session/set_mode"}


async def test_raw_requests_and_bytes_pass_as_they_are(argv: list[str]) -> None:
    with bounded():
        async with AcpClient.spawn(argv) as client:
            assert await client.request("echo", {"a": None}) == {"params": {"a": None}}
            await client.send_raw(b"no json\n")
            frame = await client.wait_for_frame(lambda frame: "error" in frame)
            assert frame["error"]["code"] == -32700
            await client.notify("_nothing")
            pending = await client.start_request("echo", {})
            await pending.answered.wait()
            assert pending.outcome() == {"params": {}}
            client.checker.violations.clear()  # echo answers a null on purpose


async def test_waiting_for_an_update_finds_past_and_coming_ones(
    argv: list[str], tmp_path: Path
) -> None:
    def says(words: str) -> Any:
        return lambda update: update.get("content", {}).get("text") == words

    with bounded():
        async with AcpClient.spawn(argv) as client:
            seen: list[str] = []
            client.on_update = lambda _session, update: seen.append(update["sessionUpdate"])
            session = await opened(client, tmp_path)
            handle = await client.start_prompt(session, "hang")
            await client.wait_for_update(says("begun"))
            await client.wait_for_update(says("begun"))
            with pytest.raises(AcpTimeoutError):
                await client.wait_for_update(says("begun"), 0.05, after=len(client.updates))
            await client.cancel(session)
            assert (await handle.result()).stop_reason == "cancelled"
            assert seen == ["available_commands_update", "agent_message_chunk"]


async def test_a_request_without_answer_times_out(argv: list[str]) -> None:
    with bounded():
        async with AcpClient.spawn(argv) as client:
            with pytest.raises(AcpTimeoutError, match=r"no answer to silence within 0\.05 s"):
                await client.request("silence", timeout=0.05)
            client.kill()
            assert await client.wait() == -9


async def test_an_agent_that_dies_ends_every_wait(argv: list[str], tmp_path: Path) -> None:
    async def drive() -> None:
        async with AcpClient.spawn(argv) as client:
            session = await opened(client, tmp_path)
            with pytest.raises(AgentGoneError, match="going down"):
                await client.prompt(session, "exit 5")
            with pytest.raises(AgentGoneError):
                await client.request("echo")
            with pytest.raises(AgentGoneError):
                await client.wait_for_update(lambda _update: False)

    with bounded(), pytest.raises(AgentExitError, match="exited with code 5"):
        await drive()


async def test_leaving_the_block_wants_exit_code_0(argv: list[str]) -> None:
    with bounded(), pytest.raises(AgentExitError, match="exited with code 3"):
        async with AcpClient.spawn([*argv, "bad"]) as client:
            await client.initialize()


async def test_an_agent_that_stays_is_killed_and_reported(
    argv: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acp_server.testing.client.raw_client.EXIT_TIMEOUT_S", 0.2)
    with bounded(), pytest.raises(AgentExitError, match="did not exit within"):
        async with AcpClient.spawn([*argv, "stay"]) as client:
            await client.initialize()
    with pytest.raises(ProcessLookupError):
        os.kill(client.pid, 0)


async def test_a_process_can_be_terminated(argv: list[str]) -> None:
    with bounded():
        async with AcpClient.spawn(argv) as client:
            await client.initialize()
            client.terminate()
            assert await client.wait() == -15


@pytest.mark.parametrize(("words", "rule"), [("print", "json"), ("null", "null")])
async def test_leaving_the_block_raises_what_the_checker_found(
    argv: list[str], tmp_path: Path, words: str, rule: str
) -> None:
    async def drive() -> None:
        async with AcpClient.spawn(argv) as client:
            session = await opened(client, tmp_path)
            await client.prompt(session, words)

    with bounded(), pytest.raises(FrameViolationError) as caught:
        await drive()
    assert [violation.rule for violation in caught.value.violations] == [rule]


async def test_an_error_in_the_block_is_raised_as_it_is(argv: list[str]) -> None:
    client = AcpClient.spawn(argv)

    async def drive() -> None:
        async with client:
            await client.initialize()
            raise ZeroDivisionError

    with bounded(), pytest.raises(ZeroDivisionError):
        await drive()
    assert client.exit_code is not None


async def test_an_answer_that_fails_ends_the_block(argv: list[str], tmp_path: Path) -> None:
    def fail(_params: Any) -> Any:
        raise ZeroDivisionError

    async def drive() -> None:
        async with AcpClient.spawn(argv, permissions=fail) as client:
            session = await opened(client, tmp_path)
            await client.prompt(session, "permission")

    with bounded(), pytest.raises(ExceptionGroup) as caught:
        await drive()
    assert caught.group_contains(ZeroDivisionError)


async def test_environment_and_folder_are_passed_on(tmp_path: Path) -> None:
    probe = "import os; print(os.environ.get('MARK'), os.getcwd())"
    checker = FrameChecker(sdk=False)
    env = {**os.environ, "MARK": "yes"}
    argv = [sys.executable, "-c", probe]
    with bounded():
        async with AcpClient.spawn(argv, env=env, cwd=tmp_path, checker=checker) as client:
            await client.wait()
            checker.violations.clear()
    assert client.frames[0].data.decode() == f"yes {tmp_path}"

"""What a turn asks of its client besides permission: files, terminals, forms, pages, notices."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_server.agents.agent import Agent
from acp_server.agents.errors import NotOfferedError
from acp_server.agents.turn import Turn
from acp_server.testing import FILE_CAPABILITIES, AcpClient, AcpError, running_server

READ = {"fs": {"readTextFile": True}}
TERMINALS = {"terminal": True}
FORMS: dict[str, Any] = {"elicitation": {"form": {}}}
PAGES: dict[str, Any] = {"elicitation": {"url": {}}}

Drive = Callable[[Turn], Any]


async def once(drive: Drive, cwd: Path | str = "/w", **options: Any) -> AcpClient:
    """Run one turn, which must end well, and return the client that saw it."""
    async with running_server(Agent("a", drive), **options) as client:
        session_id = await client.new_session(cwd)
        assert (await client.prompt(session_id, "go")).stop_reason == "end_turn"
    return client


def asked(client: AcpClient) -> list[tuple[str, dict[str, Any]]]:
    requests = [(frame["method"], dict(frame["params"])) for frame in client.agent_requests]
    for _method, params in requests:
        params.pop("sessionId")
    return requests


# -- files ----------------------------------------------------------------------------------


@pytest.mark.case("B79")
@pytest.mark.parametrize("capabilities", [{}, {"fs": {"readTextFile": False}}])
async def test_files_that_the_client_does_not_offer_are_the_disks(
    capabilities: Any, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("on disk", encoding="utf-8")
    seen: list[str] = []

    async def drive(turn: Turn) -> None:
        seen.append(await turn.files.read("a.txt"))
        await turn.files.write("b.txt", "new")

    client = await once(drive, tmp_path, capabilities=capabilities)
    assert seen == ["on disk"]
    assert (tmp_path / "b.txt").read_text(encoding="utf-8") == "new"
    assert asked(client) == []


@pytest.mark.rule("client-methods-need-capability", "files-go-through-the-editor")
@pytest.mark.case("B79")
async def test_only_what_is_offered_is_asked_of_the_client(tmp_path: Path) -> None:
    async def drive(turn: Turn) -> None:
        assert await turn.files.read("a.txt") == "of the editor"
        await turn.files.write("b.txt", "new")

    client = await once(
        drive,
        tmp_path,
        capabilities=READ,
        answers={"fs/read_text_file": lambda _params: {"content": "of the editor"}},
    )
    assert [method for method, _ in asked(client)] == ["fs/read_text_file"]
    assert (tmp_path / "b.txt").read_text(encoding="utf-8") == "new"


@pytest.mark.rule("file-requests-are-absolute")
@pytest.mark.case("B79")
async def test_paths_are_absolute_and_lines_count_from_one() -> None:
    async def drive(turn: Turn) -> None:
        await turn.files.read("./sub/../a.txt", line=10, limit=3)
        await turn.files.read("/x/b.txt")
        for wrong in ({"line": 0}, {"limit": 0}):
            with pytest.raises(ValueError, match="counts from 1"):
                await turn.files.read("a.txt", **wrong)

    client = await once(
        drive,
        capabilities=READ,
        answers={"fs/read_text_file": lambda _params: {"content": ""}},
    )
    assert asked(client) == [
        ("fs/read_text_file", {"path": "/w/a.txt", "line": 10, "limit": 3}),
        ("fs/read_text_file", {"path": "/x/b.txt"}),
    ]


def failing(code: int) -> Any:
    def answer(_params: Any) -> Any:
        raise AcpError(code, "no such file")

    return answer


def giving(value: Any) -> Any:
    return lambda _params: value


@pytest.mark.case("B79")
@pytest.mark.parametrize("answer", [giving({"content": ""}), giving({"content": "x\r\ny"})])
async def test_content_is_taken_as_it_is(answer: Any) -> None:
    seen: list[str] = []

    async def drive(turn: Turn) -> None:
        seen.append(await turn.files.read("a.txt"))

    await once(drive, capabilities=READ, answers={"fs/read_text_file": answer})
    assert seen == [answer({})["content"]]


@pytest.mark.rule("file-answers-are-checked")
@pytest.mark.case("B79")
@pytest.mark.parametrize(
    "answer",
    [failing(-32002), failing(-32603), giving(None), giving({"content": 7})],
    ids=["not-found", "internal", "null", "number"],
)
async def test_an_answer_that_is_no_content_fails_the_call_with_its_message(answer: Any) -> None:
    async def drive(turn: Turn) -> None:
        try:
            async with turn.tool("read", kind="read") as call:
                call.result(await turn.files.read("a.txt"))
        except OSError:
            await turn.text("sorry")

    async with running_server(
        Agent("a", drive), capabilities=READ, answers={"fs/read_text_file": answer}
    ) as client:
        session_id = await client.new_session("/w")
        await client.prompt(session_id, "go")
        (card,) = client.transcript.cards
        client.checker.violations.clear()  # of the client's own answers
    assert card.status == "failed"
    assert "Error: fs/read_text_file: " in card.content[0]["content"]["text"]


@pytest.mark.rule("file-answers-are-checked")
@pytest.mark.case("B79")
@pytest.mark.parametrize("answer", [None, {}])
async def test_a_write_succeeds_whether_it_is_answered_null_or_an_object(answer: Any) -> None:
    async def drive(turn: Turn) -> None:
        await turn.files.write("a.txt", "x")

    async with running_server(
        Agent("a", drive),
        capabilities=FILE_CAPABILITIES,  # type: ignore[arg-type]
        answers={"fs/write_text_file": giving(answer)},
    ) as client:
        session_id = await client.new_session("/w")
        assert (await client.prompt(session_id, "go")).stop_reason == "end_turn"
        client.checker.violations.clear()


@pytest.mark.rule("file-bytes-stay-as-they-are")
@pytest.mark.case("B80")
@pytest.mark.parametrize(
    ("before", "line", "limit", "part"),
    [
        ("a\nb\nc\n", 2, 1, "b\n"),
        ("a\r\nb\r\nc", 2, None, "b\r\nc"),
        ("a\nb\x0bc\u2028d\ne", 2, 1, "b\x0bc\u2028d\n"),
        ("a\nb", 1, 2, "a\nb"),
        ("a\nb", 5, None, ""),
    ],
)
async def test_lines_of_a_disk_file_end_at_lf_alone(
    before: str, line: int, limit: int | None, part: str, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_bytes(before.encode())
    seen: list[str] = []

    async def drive(turn: Turn) -> None:
        seen.append(await turn.files.read("a.txt", line=line, limit=limit))

    await once(drive, tmp_path)
    assert seen == [part]


@pytest.mark.rule("file-bytes-stay-as-they-are")
@pytest.mark.case("B80")
@pytest.mark.parametrize(
    "raw",
    [b"\xef\xbb\xbfa\r\nb\r\nc", b"a\nb\r\nc\n", b"x", b"tab\tb", b""],
    ids=["bom", "mixed", "no-lf", "tab", "empty"],
)
async def test_what_is_read_is_written_back_byte_for_byte(raw: bytes, tmp_path: Path) -> None:
    real = tmp_path / "real.txt"
    real.write_bytes(raw)
    real.chmod(0o755)
    (tmp_path / "a.txt").symlink_to(real)

    async def drive(turn: Turn) -> None:
        text = await turn.files.read("a.txt")
        await turn.files.write("a.txt", text.replace("b", "B"))

    await once(drive, tmp_path)
    assert real.read_bytes() == raw.replace(b"b", b"B")
    assert (tmp_path / "a.txt").is_symlink()
    assert real.stat().st_mode & 0o777 == 0o755


@pytest.mark.rule("file-bytes-stay-as-they-are")
@pytest.mark.case("B80")
async def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xe4")

    async def drive(turn: Turn) -> None:
        with pytest.raises(UnicodeDecodeError):
            await turn.files.read("a.txt")

    await once(drive, tmp_path)


# -- terminals ------------------------------------------------------------------------------


class Terminals:
    """A client's terminals: each shows its command; `exits` tells whether it ends by itself."""

    def __init__(self, *, exits: bool = True) -> None:
        self.exits = exits
        self.alive: set[str] = set()
        self.killed = anyio.Event()
        self.started = anyio.Event()

    def answers(self) -> Mapping[str, Any]:
        return {
            "terminal/create": self._create,
            "terminal/output": lambda _params: {"output": "out\n", "truncated": False},
            "terminal/wait_for_exit": self._wait,
            "terminal/kill": self._kill,
            "terminal/release": self._release,
        }

    def _create(self, _params: Any) -> Any:
        terminal_id = f"term-{len(self.alive) + 1}"
        self.alive.add(terminal_id)
        self.started.set()
        return {"terminalId": terminal_id}

    async def _wait(self, _params: Any) -> Any:
        if self.exits:
            return {"exitCode": 3}
        await self.killed.wait()
        return {"signal": "SIGTERM"}

    def _kill(self, _params: Any) -> Any:
        self.killed.set()
        return {}

    def _release(self, params: Any) -> Any:
        self.alive.remove(params["terminalId"])
        return {}


def methods(client: AcpClient) -> list[str]:
    return [method.removeprefix("terminal/") for method, _ in asked(client)]


@pytest.mark.rule("terminals-are-always-released")
async def test_a_command_runs_in_a_terminal_of_the_client_and_is_released() -> None:
    terminals = Terminals()

    async def drive(turn: Turn) -> None:
        assert turn.can_use_terminals
        async with (
            turn.tool("shell", title="make", kind="execute") as call,
            turn.terminal("make", args=["-k"], cwd="sub", env={"A": "1"}) as terminal,
        ):
            call.terminal(terminal)
            ended = await terminal.wait()
            assert (ended.code, terminal.output) == (3, "out\n")

    client = await once(drive, capabilities=TERMINALS, answers=terminals.answers())
    assert asked(client)[0] == (
        "terminal/create",
        {
            "command": "make",
            "args": ["-k"],
            "cwd": "/w/sub",
            "env": [{"name": "A", "value": "1"}],
            "outputByteLimit": 65_536,
        },
    )
    assert methods(client) == ["create", "wait_for_exit", "output", "release"]
    assert terminals.alive == set()
    (card,) = client.transcript.cards
    assert card.status == "completed"
    assert card.content == ({"type": "terminal", "terminalId": "term-1"},)


@pytest.mark.rule("client-terminal-keeps-its-id")
async def test_a_terminal_is_replayed_as_the_text_it_has_shown() -> None:
    terminals = Terminals()
    seen: list[Any] = []

    async def drive(turn: Turn) -> None:
        if turn.prompt == "look":
            seen.append(turn.history)
            return
        async with (
            turn.tool("shell", title="make", kind="execute") as call,
            turn.terminal("make") as terminal,
        ):
            call.terminal(terminal)
            await terminal.wait()

    async with running_server(
        Agent("a", drive), capabilities=TERMINALS, answers=terminals.answers()
    ) as client:
        session_id = await client.new_session("/w")
        await client.prompt(session_id, "go")
        await client.load_session(session_id, "/w")
        (card,) = client.transcript.cards
        await client.prompt(session_id, "look")
    fenced = {"type": "text", "text": "```console\nout\n```"}
    assert card.content == ({"type": "content", "content": fenced},)
    results = [b for m in seen[0] for b in m["content"] if b["type"] == "tool-result"]
    assert results[0]["content"] == [{"type": "text", "text": "out\n\n[exit code 3]"}]


@pytest.mark.rule("terminals-are-always-released")
async def test_leaving_early_kills_and_releases() -> None:
    terminals = Terminals(exits=False)

    async def drive(turn: Turn) -> None:
        async with turn.terminal("sleep"):
            await turn.text("enough")

    client = await once(drive, capabilities=TERMINALS, answers=terminals.answers())
    assert methods(client) == ["create", "kill", "output", "release"]
    assert terminals.alive == set()


@pytest.mark.rule("terminals-are-always-released")
async def test_a_wait_that_takes_too_long_kills_the_command() -> None:
    terminals = Terminals(exits=False)

    async def drive(turn: Turn) -> None:
        async with turn.terminal("sleep") as terminal:
            ended = await terminal.wait(timeout_s=0.01)
            assert (ended.signal, terminal.output) == ("SIGTERM", "out\n")

    client = await once(drive, capabilities=TERMINALS, answers=terminals.answers())
    assert methods(client)[-1] == "release"


@pytest.mark.rule("cancel-is-bounded-in-time")
@pytest.mark.case("B31")
async def test_a_cancel_kills_and_releases_and_keeps_the_output() -> None:
    terminals = Terminals(exits=False)

    async def drive(turn: Turn) -> None:
        async with (
            turn.tool("shell", title="sleep", kind="execute") as call,
            turn.terminal("sleep") as terminal,
        ):
            call.terminal(terminal)
            await terminal.wait()

    async with running_server(
        Agent("a", drive), capabilities=TERMINALS, answers=terminals.answers()
    ) as client:
        session_id = await client.new_session("/w")
        handle = await client.start_prompt(session_id, "go")
        await client.wait_for_agent_request("terminal/wait_for_exit")
        await client.cancel(session_id)
        assert (await handle.result()).stop_reason == "cancelled"
        assert methods(client) == ["create", "wait_for_exit", "kill", "output", "release"]
        await client.load_session(session_id, "/w")
        (card,) = client.transcript.cards
    assert terminals.alive == set()
    assert card.status == "failed"
    assert card.content[0]["content"]["text"] == "```console\nout\n```"


@pytest.mark.rule("cancel-is-bounded-in-time")
@pytest.mark.case("B31")
async def test_a_client_that_answers_no_terminal_request_delays_a_cancel_by_little() -> None:
    silent = {"terminal/wait_for_exit", "terminal/kill", "terminal/output", "terminal/release"}

    async def drive(turn: Turn) -> None:
        async with turn.terminal("sleep") as terminal:
            await terminal.wait()

    async with running_server(
        Agent("a", drive),
        capabilities=TERMINALS,
        answers=Terminals().answers(),
        never_answer=silent,
    ) as client:
        session_id = await client.new_session("/w")
        handle = await client.start_prompt(session_id, "go")
        await client.wait_for_agent_request("terminal/wait_for_exit")
        await client.cancel(session_id)
        with anyio.fail_after(2):
            assert (await handle.result()).stop_reason == "cancelled"
        assert methods(client)[-1] == "release"


@pytest.mark.rule("terminals-are-always-released")
async def test_leaving_a_terminal_never_hides_why_it_was_left() -> None:
    async def leave(turn: Turn) -> None:
        async with turn.terminal("sleep"):
            message = "mine"
            raise LookupError(message)

    async def drive(turn: Turn) -> None:
        with pytest.raises(LookupError, match="mine"):
            await leave(turn)

    answers = dict(Terminals().answers())
    answers |= dict.fromkeys(("terminal/kill", "terminal/release"), failing(-32603))
    await once(drive, capabilities=TERMINALS, answers=answers)


@pytest.mark.rule("terminals-need-the-client")
async def test_without_terminals_nothing_is_called_and_the_agent_is_told() -> None:
    async def drive(turn: Turn) -> None:
        assert not turn.can_use_terminals
        with pytest.raises(NotOfferedError, match="the client offers no terminals"):
            async with turn.terminal("ls"):
                pass

    assert asked(await once(drive)) == []


@pytest.mark.rule("terminals-need-the-client")
async def test_a_refused_terminal_is_an_os_error() -> None:
    async def drive(turn: Turn) -> None:
        with pytest.raises(OSError, match="no such file"):
            async with turn.terminal("ls"):
                pass

    answers = {**Terminals().answers(), "terminal/create": failing(-32603)}
    await once(drive, capabilities=TERMINALS, answers=answers)


# -- elicitation ----------------------------------------------------------------------------

SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}}


@pytest.mark.rule("forms-need-the-client")
@pytest.mark.parametrize(
    ("answer", "entered"),
    [
        ({"action": "accept", "content": {"name": "Ada"}}, {"name": "Ada"}),
        ({"action": "accept"}, {}),
        ({"action": "decline"}, None),
        ({"action": "cancel"}, None),
    ],
)
async def test_a_form_gives_what_the_user_entered(answer: Any, entered: Any) -> None:
    got: list[Any] = []

    async def drive(turn: Turn) -> None:
        got.append(await turn.elicit("Who?", SCHEMA))

    client = await once(drive, capabilities=FORMS, answers={"elicitation/create": giving(answer)})
    assert got == [entered]
    params = {"mode": "form", "message": "Who?", "requestedSchema": SCHEMA}
    assert asked(client) == [("elicitation/create", params)]


@pytest.mark.rule("forms-need-the-client")
async def test_a_form_that_the_client_refuses_is_not_answered() -> None:
    got: list[Any] = []

    async def drive(turn: Turn) -> None:
        got.append(await turn.elicit("Who?", SCHEMA))

    await once(drive, capabilities=FORMS, answers={"elicitation/create": failing(-32603)})
    assert got == [None]


@pytest.mark.rule("forms-need-the-client")
async def test_a_page_is_visited_and_its_completion_told_once() -> None:
    async def drive(turn: Turn) -> None:
        visit = await turn.elicit_url("Sign in", "https://example.org")
        assert visit is not None
        visit.complete()
        visit.complete()

    async with running_server(
        Agent("a", drive),
        capabilities=PAGES,
        answers={"elicitation/create": giving({"action": "accept"})},
    ) as client:
        session_id = await client.new_session("/w")
        await client.prompt(session_id, "go")
        ((_, params),) = asked(client)
        told = [f.data for f in client.frames if b'"elicitation/complete"' in f.data]
    assert params["mode"] == "url"
    assert params["url"] == "https://example.org"
    assert len(told) == 1
    assert params["elicitationId"].encode() in told[0]


async def test_a_page_that_the_user_does_not_want_is_none() -> None:
    async def drive(turn: Turn) -> None:
        assert await turn.elicit_url("Sign in", "https://example.org") is None

    await once(
        drive, capabilities=PAGES, answers={"elicitation/create": giving({"action": "decline"})}
    )


@pytest.mark.rule("forms-need-the-client")
@pytest.mark.parametrize("capabilities", [{}, {"elicitation": {}}, {"elicitation": None}])
async def test_forms_and_pages_that_are_not_offered_are_not_asked(capabilities: Any) -> None:
    async def drive(turn: Turn) -> None:
        assert await turn.elicit("Who?", SCHEMA) is None
        assert await turn.elicit_url("Sign in", "https://example.org") is None

    assert asked(await once(drive, capabilities=capabilities)) == []


# -- notices and usage ----------------------------------------------------------------------


@pytest.mark.rule("replay-repeats-no-requests")
@pytest.mark.parametrize(("capabilities", "shown"), [({"session": {"notices": {}}}, 1), ({}, 0)])
async def test_a_notice_is_shown_to_clients_that_take_notices(
    capabilities: Any, shown: int
) -> None:
    async def drive(turn: Turn) -> None:
        await turn.notice("Old index", "It is a week old.", severity="warning")

    client = await once(drive, capabilities=capabilities)
    notices = [u.update for u in client.updates if u.update["sessionUpdate"] == "notice"]
    update = {"sessionUpdate": "notice", "severity": "warning", "title": "Old index"}
    assert notices == [{**update, "description": "It is a week old."}] * shown


async def test_usage_is_shown_when_it_is_reported() -> None:
    async def drive(turn: Turn) -> None:
        await turn.usage(10, 100)

    client = await once(drive)
    usage = [u.update for u in client.updates if u.update["sessionUpdate"] == "usage_update"]
    assert usage == [{"sessionUpdate": "usage_update", "used": 10, "size": 100}]

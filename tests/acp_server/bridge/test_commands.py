"""Slash commands: run without a model, shown and never stored; what they do is.

Rule: commands-leave-no-log.
"""

import anyio
import pytest

from acp_server.agents.agent import Agent
from acp_server.agents.commands import Command, CommandCall, CommandError, command_line_from
from acp_server.agents.turn import Turn
from acp_server.testing import AcpClient, running_server
from persistence import SessionRepository, StorageBackend, open_backend
from session_core import SessionStore, Summary


async def echo(turn: Turn) -> None:
    await turn.text(f"agent: {turn.prompt}")


ECHO = Agent("echo", echo)


async def log_types(backend: StorageBackend, session_id: str) -> list[str]:
    async with SessionRepository(backend, SessionStore()) as persistence:
        return [event.type for event in (await persistence.inspect(session_id)).log.view()]


async def commands_of(client: AcpClient) -> list[dict[str, object]]:
    update = await client.wait_for_update(
        lambda u: u["sessionUpdate"] == "available_commands_update"
    )
    found: list[dict[str, object]] = update["availableCommands"]
    return found


@pytest.mark.rule("paths-are-not-commands")
@pytest.mark.parametrize(
    ("text", "name", "argument"),
    [
        ("/help", "help", ""),
        ("/title  A  name ", "title", "A  name"),
        ("/a-1 x\ny", "a-1", "x\ny"),
        ("/usr/bin/x fails", None, None),
        (" /help", None, None),
        ("/Help", None, None),
        ("/1", None, None),
        ("/help\n", None, None),
        ("see /help", None, None),
        ("/", None, None),
    ],
)
def test_a_command_is_told_from_a_path(text: str, name: str | None, argument: str | None) -> None:
    line = command_line_from([{"type": "image"}, {"type": "text", "text": text}])
    assert (line and line.name, line and line.argument) == (name, argument)


@pytest.mark.rule("built-in-commands-are-listed")
async def test_commands_are_listed_and_explained() -> None:
    async def hello(call: CommandCall) -> str:
        return f"hello {call.argument}"

    agent = Agent("echo", echo, commands=(Command("hello", "Greet", hello, hint="WHO"),))
    async with running_server(agent) as client:
        session_id = await client.new_session("/tmp/w")
        listed = await commands_of(client)
        assert [command["name"] for command in listed] == ["hello", "help", "title", "fork"]
        assert listed[0] == {"name": "hello", "description": "Greet", "input": {"hint": "WHO"}}
        assert "input" not in listed[1]
        assert "`/hello WHO`: Greet" in (await client.prompt(session_id, "/help")).text
        assert (await client.prompt(session_id, "/hello you")).text == "hello you"


@pytest.mark.rule("commands-leave-no-log")
async def test_a_command_reaches_no_agent_and_no_log() -> None:
    backend = open_backend("memory:")
    async with running_server(ECHO, store=backend) as client:
        session_id = await client.new_session("/tmp/w")
        unknown = await client.prompt(session_id, "/nope it is")
        assert (unknown.text, unknown.stop_reason) == (
            "Error: unknown command: /nope it is",
            "end_turn",
        )
        assert (await client.prompt(session_id, "/help")).stop_reason == "end_turn"
        assert (await client.list_sessions())["sessions"] == []
        path = await client.prompt(session_id, "/usr/bin/x fails")
        assert path.text == "agent: /usr/bin/x fails"
        before = await log_types(backend, session_id)
        await client.prompt(session_id, "/help")
        assert await log_types(backend, session_id) == before
        await client.load_session(session_id, "/tmp/w")
        assert client.transcript.text == "agent: /usr/bin/x fails"


@pytest.mark.rule("command-failures-are-text")
async def test_failures_of_a_command_are_text() -> None:
    async def expected(_call: CommandCall) -> None:
        message = "not today"
        raise CommandError(message)

    async def unexpected(_call: CommandCall) -> None:
        message = "secret-token-123"
        raise ValueError(message)

    async def silent(_call: CommandCall) -> None:
        return

    commands = (
        Command("expected", "", expected),
        Command("unexpected", "", unexpected),
        Command("silent", "", silent),
    )
    async with running_server(Agent("echo", echo, commands=commands)) as client:
        session_id = await client.new_session("/tmp/w")
        texts = [(await client.prompt(session_id, f"/{c.name}")).text for c in commands]
        assert texts == ["Error: not today", "Error: command failed", ""]
        assert (await client.prompt(session_id, "on")).text == "agent: on"


@pytest.mark.rule("commands-wait-their-turn")
@pytest.mark.parametrize("waits", ["running", "queued"])
async def test_a_cancel_ends_a_command(waits: str) -> None:
    running = anyio.Event()

    async def wait(_call: CommandCall) -> None:
        running.set()
        await anyio.sleep_forever()

    async with running_server(Agent("echo", echo, commands=(Command("wait", "", wait),))) as client:
        session_id = await client.new_session("/tmp/w")
        handle = await client.start_prompt(session_id, "/wait")
        queued = await client.start_prompt(session_id, "/help")
        await running.wait()
        if waits == "queued":
            await client.cancel_request(queued.pending.request_id)
            assert (await queued.result()).stop_reason == "cancelled"
            assert not handle.done
        await client.cancel(session_id)
        for each in (handle, queued):
            assert (await each.result()).stop_reason == "cancelled"
        assert (await client.prompt(session_id, "on")).text == "agent: on"


@pytest.mark.rule("commands-wait-their-turn")
async def test_a_command_waits_for_the_turn_before_it() -> None:
    go_on = anyio.Event()

    async def slow(turn: Turn) -> None:
        await turn.text("start ")
        await go_on.wait()
        await turn.text("end")

    async with running_server(Agent("slow", slow)) as client:
        session_id = await client.new_session("/tmp/w")
        first = await client.start_prompt(session_id, "go")
        await client.wait_for_update(lambda u: u["sessionUpdate"] == "agent_message_chunk")
        second = await client.start_prompt(session_id, "/nope")
        go_on.set()
        assert (await first.result()).text == "start end"
        assert (await second.result()).text == "Error: unknown command: /nope"


@pytest.mark.rule("built-in-commands-are-listed")
@pytest.mark.parametrize("prompted", [True, False])
async def test_title_names_the_session_for_good(*, prompted: bool) -> None:
    backend = open_backend("memory:")
    async with running_server(ECHO, store=backend) as client:
        session_id = await client.new_session("/tmp/w")
        await client.set_mode(session_id, "read-only")
        if prompted:
            await client.prompt(session_id, "some words")
        assert (await client.prompt(session_id, "/title")).text.startswith("Error: ")
        await client.prompt(session_id, "/title My  name")
        assert client.transcript.titles[-1] == "My name"
    async with running_server(ECHO, store=backend, series=1) as client:
        (row,) = (await client.list_sessions())["sessions"]
        assert row["title"] == "My name"
        result = await client.resume_session(session_id, "/tmp/w")
        assert result["modes"]["currentModeId"] == "read-only"
        await client.prompt(session_id, "more")
        assert (await client.list_sessions())["sessions"][0]["title"] == "My name"


@pytest.mark.rule("fork-starts-without-grants", "fork-command-leaves-child-closed")
async def test_fork_leaves_a_stored_and_closed_copy_that_starts_asking() -> None:
    backend = open_backend("memory:")
    async with running_server(ECHO, store=backend) as client:
        session_id = await client.new_session("/tmp/w")
        assert (await client.prompt(session_id, "/fork")).text.startswith("Error: ")
        await client.prompt(session_id, "one")
        await client.set_mode(session_id, "full-access")
        said = (await client.prompt(session_id, "/fork")).text
        rows = [row["sessionId"] for row in (await client.list_sessions())["sessions"]]
        (child,) = [row for row in rows if row != session_id]
        assert child in said
        await client.prompt(session_id, "two")
    async with running_server(ECHO, store=backend, series=1) as client:
        result = await client.load_session(child, "/tmp/w")
        assert result["modes"]["currentModeId"] == "ask"
        assert client.transcript.text == "agent: one"
        assert (await client.prompt(child, "three")).text == "agent: three"


@pytest.mark.rule("compaction-shortens-models-history")
async def test_compact_is_there_for_an_agent_that_can_summarize() -> None:
    heard: list[list[str]] = []

    async def listen(turn: Turn) -> None:
        heard.append([block["text"] for m in turn.history for block in m["content"]])
        await turn.text("ok")

    async def summarize(messages: object) -> Summary:
        return Summary("what was said", "p", "m", 10)

    async with running_server(Agent("listen", listen, summarize=summarize)) as client:
        session_id = await client.new_session("/tmp/w")
        assert "compact" in [command["name"] for command in await commands_of(client)]
        assert (await client.prompt(session_id, "/compact")).text.startswith("Error: ")
        await client.prompt(session_id, "one")
        assert (await client.prompt(session_id, "/compact")).stop_reason == "end_turn"
        await client.prompt(session_id, "two")
        assert heard[-1] == ["what was said", "two"]
        await client.load_session(session_id, "/tmp/w")
        users = [u for u in client.updates_of(session_id) if "user" in u["sessionUpdate"]]
        assert [u["content"]["text"] for u in users] == ["one", "two"]


@pytest.mark.rule("commands-leave-no-log")
async def test_a_command_may_tell_the_model_something() -> None:
    heard: list[list[str]] = []

    async def listen(turn: Turn) -> None:
        heard.append([block["text"] for m in turn.history for block in m["content"]])

    async def tell(call: CommandCall) -> None:
        call.session.add_context(call.argument, envelope="raw")

    agent = Agent("listen", listen, commands=(Command("tell", "", tell),))
    async with running_server(agent) as client:
        session_id = await client.new_session("/tmp/w")
        await client.prompt(session_id, "/tell the sky is green")
        await client.prompt(session_id, "so?")
        assert heard == [["the sky is green", "so?"]]


@pytest.mark.rule("wrong-declarations-are-refused")
def test_a_name_that_no_prompt_could_call_is_refused() -> None:
    async def nothing(_call: CommandCall) -> None:
        return

    for name in ("", "Help", "a b", "a\n", "/a"):
        with pytest.raises(ValueError, match="not a name for a command"):
            Command(name, "", nothing)
    with pytest.raises(ValueError, match="declared twice"):
        Agent("a", echo, commands=(Command("x", "", nothing), Command("x", "", nothing)))


@pytest.mark.rule("commands-wait-their-turn")
async def test_no_command_speaks_before_the_answer_to_the_one_before_it() -> None:
    async with running_server(ECHO) as client:
        session_id = await client.new_session("/tmp/w")
        handles = [await client.start_prompt(session_id, f"/no-{n}") for n in range(5)]
        texts = [(await handle.result()).text for handle in handles]
        assert texts == [f"Error: unknown command: /no-{n}" for n in range(5)]

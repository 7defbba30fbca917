"""Modes and config options: what is logged when, what is shown, and what follows from it.

Rule: settings-are-logged-at-once.
"""

from typing import Any

import anyio
import pytest

from acp_server.agents.agent import Agent
from acp_server.agents.options import BooleanOption, Choice, SelectOption
from acp_server.agents.turn import Turn
from acp_server.testing import AcpClient, running_server
from acp_server.turns.errors import PermissionDenied
from persistence import open_backend
from session_core import Event
from tests.acp_server.helpers import refused_code, stored_events

LEVEL = SelectOption("level", "Level", (Choice("low", "Low"), "high"), category="thought_level")
BRIEF = BooleanOption("brief", "Brief", description="Short answers")
BOOLEANS: dict[str, Any] = {"session": {"configOptions": {"boolean": {}}}}


async def show(turn: Turn) -> None:
    await turn.text(f"{turn.mode} {turn.option('level')} {turn.option('brief')}")


SHOW = Agent("show", show, options=(LEVEL, BRIEF))


def settings_in(events: list[Event]) -> list[tuple[int, str, Any]]:
    kinds = ("permission/preset", "config/set")
    return [(event.seq, event.type, dict(event.data)) for event in events if event.type in kinds]


def values(options: list[dict[str, Any]]) -> dict[str, Any]:
    return {option["id"]: option["currentValue"] for option in options}


def about_settings(client: AcpClient, session_id: str) -> list[str]:
    kinds = ("current_mode_update", "config_option_update")
    updates = client.updates_of(session_id)
    return [update["sessionUpdate"] for update in updates if update["sessionUpdate"] in kinds]


@pytest.mark.rule("settings-answer-completely", "mode-has-two-views", "settings-are-logged-at-once")
@pytest.mark.case("B20")
async def test_both_views_of_the_mode_agree_whichever_method_sets_it() -> None:
    async with running_server(SHOW, capabilities=BOOLEANS) as client:
        result = await client.request("session/new", {"cwd": "/tmp/w"})
        session_id = result["sessionId"]
        modes = [mode["id"] for mode in result["modes"]["availableModes"]]
        assert modes == ["ask", "auto-edit", "read-only", "full-access"]
        assert result["modes"]["currentModeId"] == "ask"
        assert values(result["configOptions"]) == {"mode": "ask", "level": "low", "brief": False}
        assert await client.set_mode(session_id, "auto-edit") == {}
        assert about_settings(client, session_id) == ["current_mode_update", "config_option_update"]
        update = client.updates[-2].update
        assert update == {"sessionUpdate": "current_mode_update", "currentModeId": "auto-edit"}
        options = (await client.set_config_option(session_id, "mode", "read-only"))["configOptions"]
        assert values(options) == {"mode": "read-only", "level": "low", "brief": False}
        assert about_settings(client, session_id)[2:] == ["current_mode_update"]
        options = (await client.set_config_option(session_id, "brief", value=True))["configOptions"]
        assert values(options) == {"mode": "read-only", "level": "low", "brief": True}
        await client.set_config_option(session_id, "level", "high")
        assert about_settings(client, session_id)[3:] == []
        assert (await client.prompt(session_id, "go")).text == "read-only high True"


@pytest.mark.rule("stored-before-shown-or-done", "settings-are-logged-at-once")
async def test_settings_of_an_idle_session_are_durable_before_they_are_acknowledged() -> None:
    backend = open_backend("memory:")
    async with running_server(SHOW, store=backend) as client:
        session_id = await client.new_session("/tmp/w")
        other = await client.new_session("/tmp/w")
        await client.set_mode(session_id, "read-only")
        await client.set_config_option(session_id, "level", "high")
        await client.set_config_option(session_id, "level", "low")
        assert (await client.list_sessions())["sessions"] == []
        await client.prompt(session_id, "go")
        events = await stored_events(backend, session_id)
        # Held until the first turn, and only what is left of it.
        assert settings_in(events) == [(1, "permission/preset", {"preset": "read-only"})]
        length = len(events)
        await client.set_config_option(session_id, "level", "high")
        added = (await stored_events(backend, session_id))[length:]
        assert [event.type for event in added] == ["turn/start", "config/set", "turn/end"]
        assert added[0].data["trigger"] == {"kind": "config"}
        await client.set_config_option(session_id, "level", "high")
        assert len(await stored_events(backend, session_id)) == length + 3
        assert (await client.prompt(other, "go")).text == "ask low False"
        assert (await client.prompt(session_id, "go")).text == "read-only high False"


@pytest.mark.rule("settings-are-logged-at-once", "waiting-session-blocks-no-other")
@pytest.mark.case("B20", "B27")
async def test_a_setting_in_an_open_turn_is_logged_at_once_and_rules_the_next_call() -> None:
    go_on = anyio.Event()

    async def write(turn: Turn) -> None:
        await turn.text("thinking")
        await go_on.wait()
        async with turn.tool("write", kind="edit", ask=True) as call:
            call.result("written")

    backend = open_backend("memory:")
    async with running_server(Agent("write", write), store=backend) as client:
        session_id = await client.new_session("/tmp/w")
        handle = await client.start_prompt(session_id, "go")
        await client.wait_for_update(lambda u: u["sessionUpdate"] == "agent_message_chunk")
        assert await client.set_mode(session_id, "auto-edit") == {}
        stored = await stored_events(backend, session_id)
        assert stored[-1].type == "permission/preset"
        assert not handle.done
        go_on.set()
        await handle.result()
        assert client.agent_requests == []


@pytest.mark.rule("presets-decide-before-user")
@pytest.mark.case("B20")
async def test_the_preset_decides_what_is_asked() -> None:
    async def write(turn: Turn) -> None:
        try:
            for kind in ("edit", "execute"):
                async with turn.tool("tool", kind=kind, ask=True) as call:
                    call.result("done")
        except PermissionDenied:
            await turn.text("refused")

    answers = ["allow_once"] * 3
    async with running_server(Agent("write", write), permissions=answers) as client:
        session_id = await client.new_session("/tmp/w")
        asked = []
        for mode in ("ask", "auto-edit", "full-access", "read-only"):
            await client.set_mode(session_id, mode)
            before = len(client.agent_requests)
            result = await client.prompt(session_id, "go")
            asked.append((mode, len(client.agent_requests) - before, result.text))
        assert asked == [
            ("ask", 2, ""),
            ("auto-edit", 1, ""),
            ("full-access", 0, ""),
            ("read-only", 0, "refused"),
        ]


@pytest.mark.rule("wrong-settings-are-refused", "mode-has-two-views", "settings-are-logged-at-once")
@pytest.mark.case("B20")
@pytest.mark.parametrize(
    ("config_id", "value"),
    [
        ("mode", "nope"),
        ("mode", True),
        ("level", True),
        ("level", "Low"),
        ("brief", "true"),
        ("none", "x"),
        ("level", None),
        ("level", 7),
    ],
)
async def test_what_is_not_offered_is_refused_and_changes_nothing(
    config_id: str, value: Any
) -> None:
    async with running_server(SHOW, capabilities=BOOLEANS) as client:
        session_id = await client.new_session("/tmp/w")
        params = {"sessionId": session_id, "configId": config_id, "value": value}
        assert await refused_code(client, "session/set_config_option", params) == -32602
        params = {"sessionId": session_id, "modeId": "nope"}
        assert await refused_code(client, "session/set_mode", params) == -32602
        assert about_settings(client, session_id) == []
        assert (await client.prompt(session_id, "go")).text == "ask low False"


@pytest.mark.rule("client-methods-need-capability")
async def test_a_client_that_knows_no_booleans_is_not_told_of_them() -> None:
    async with running_server(SHOW) as client:
        result = await client.request("session/new", {"cwd": "/tmp/w"})
        assert set(values(result["configOptions"])) == {"mode", "level"}
        params = {"sessionId": result["sessionId"], "configId": "brief", "value": True}
        assert await refused_code(client, "session/set_config_option", params) == -32602


@pytest.mark.rule("wrong-settings-are-refused", "agents-choose-their-modes", "mode-has-two-views")
async def test_an_agent_without_modes_has_none() -> None:
    async def look(turn: Turn) -> None:
        await turn.text(str(turn.mode))

    async with running_server(Agent("look", look, modes=())) as client:
        result = await client.request("session/new", {"cwd": "/tmp/w"})
        assert set(result) == {"sessionId"}
        session_id = result["sessionId"]
        params = {"sessionId": session_id, "modeId": "ask"}
        assert await refused_code(client, "session/set_mode", params) == -32602
        option = {"sessionId": session_id, "configId": "mode", "value": "ask"}
        assert await refused_code(client, "session/set_config_option", option) == -32602
        assert (await client.prompt(session_id, "go")).text == "None"


@pytest.mark.rule("agents-choose-their-modes", "mode-has-two-views")
async def test_an_author_may_offer_fewer_modes_and_the_first_is_the_default() -> None:
    agent = Agent("show", show, modes=("read-only", "ask"), options=(LEVEL, BRIEF))
    async with running_server(agent) as client:
        result = await client.request("session/new", {"cwd": "/tmp/w"})
        assert result["modes"]["currentModeId"] == "read-only"
        params = {"sessionId": result["sessionId"], "modeId": "full-access"}
        assert await refused_code(client, "session/set_mode", params) == -32602


@pytest.mark.rule("settings-are-logged-at-once", "mode-has-two-views")
@pytest.mark.parametrize("method", ["session/load", "session/resume"])
async def test_what_was_set_is_reported_and_applied_after_a_load(method: str) -> None:
    backend = open_backend("memory:")
    async with running_server(SHOW, store=backend) as client:
        session_id = await client.new_session("/tmp/w")
        await client.prompt(session_id, "go")
        await client.set_mode(session_id, "auto-edit")
        await client.set_config_option(session_id, "level", "high")
    # Another version of the agent: what it does not know falls back to its default.
    narrower = Agent("show", show, modes=("ask", "read-only"), options=(LEVEL, BRIEF))
    for agent, mode in ((SHOW, "auto-edit"), (narrower, "ask"), (SHOW, "auto-edit")):
        async with running_server(agent, store=backend, series=2) as client:
            params = {"sessionId": session_id, "cwd": "/tmp/w"}
            result = await client.request(method, params)
            assert result["modes"]["currentModeId"] == mode
            assert values(result["configOptions"]) == {"mode": mode, "level": "high"}
            await client.wait_for_update(
                lambda u: u["sessionUpdate"] == "available_commands_update"
            )
            assert about_settings(client, session_id) == []
            assert (await client.prompt(session_id, "go")).text == f"{mode} high False"


@pytest.mark.rule("model-hears-of-new-preset")
async def test_the_model_hears_of_a_new_preset_before_its_next_prompt_and_once() -> None:
    heard: list[list[str]] = []

    async def listen(turn: Turn) -> None:
        heard.append([block["text"] for m in turn.history for block in m["content"]])

    backend = open_backend("memory:")
    async with running_server(Agent("listen", listen), store=backend) as client:
        session_id = await client.new_session("/tmp/w")
        await client.set_mode(session_id, "read-only")
        await client.prompt(session_id, "one")
        assert heard[-1] == ["one"]
        await client.set_mode(session_id, "ask")
        await client.set_mode(session_id, "full-access")
    async with running_server(Agent("listen", listen), store=backend, series=1) as client:
        await client.resume_session(session_id, "/tmp/w")
        await client.prompt(session_id, "two")
        first, opening, news, closing, second = heard[-1]
        assert (first, second) == ("one", "two")
        assert opening == '<context source="plugin">'
        assert "'full-access'" in news
        assert closing == "</context>"
        await client.prompt(session_id, "three")
        assert heard[-1][5:] == ["three"]


@pytest.mark.rule("model-hears-of-new-preset")
async def test_news_in_an_open_turn_part_no_call_from_its_result() -> None:
    in_tool, go_on = anyio.Event(), anyio.Event()

    async def work(turn: Turn) -> None:
        async with turn.tool("wait") as call:
            in_tool.set()
            await go_on.wait()
            call.result("done")
        await turn.text("and on")

    backend = open_backend("memory:")
    async with running_server(Agent("work", work), store=backend) as client:
        session_id = await client.new_session("/tmp/w")
        handle = await client.start_prompt(session_id, "go")
        await in_tool.wait()
        await client.set_mode(session_id, "read-only")
        go_on.set()
        await handle.result()
    events = await stored_events(backend, session_id)
    surface = ("user/message", "assistant/message", "tool/result", "context/message")
    assert [event.type for event in events if event.type in surface] == [
        "user/message",
        "assistant/message",
        "tool/result",
        "context/message",
        "assistant/message",
    ]


@pytest.mark.rule("wrong-declarations-are-refused")
def test_declarations_that_cannot_be_served_are_refused() -> None:
    with pytest.raises(ValueError, match="no permission preset 'yolo'"):
        Agent("a", show, modes=("yolo",))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'mode' is declared twice"):
        Agent("a", show, options=(SelectOption("mode", "Mode", ("x",)),))
    with pytest.raises(ValueError, match="has no choice 'z'"):
        SelectOption("s", "S", ("x", "y"), default="z")
    with pytest.raises(ValueError, match="does not begin with '_'"):
        Agent("a", show, extensions={"x/y": None})  # type: ignore[dict-item]

"""What the builders make passes the official SDK unchanged, and holds no null."""

from collections.abc import Callable, Iterable

import pytest

from acp_server.testing.checks.frame_values import find_null
from acp_server.testing.checks.sdk_oracle import UPDATE_VARIANTS, Part, SdkOracle
from acp_server.wire import blocks, client_requests, results, updates
from acp_server.wire.shapes import JsonObject

TEXT = blocks.text_block("hi")
SPOT = blocks.location("/w/a", 3)
CHOICE = results.choice("v", "V", "what it does")
SELECT = results.config_option(
    "o", "Option", "v", [CHOICE, results.choice("w", "W")], description="d", category="mode"
)
SWITCH = results.config_option("b", "Switch", current_value=False)
MODES = results.mode_state("m", [results.mode("m", "M", "d"), results.mode("n", "N")])

UPDATES: list[JsonObject] = [
    updates.user_message_chunk(TEXT, "u1"),
    updates.agent_message_chunk(TEXT, "a1"),
    updates.agent_message_chunk(TEXT),
    updates.agent_thought_chunk(TEXT, "t1"),
    updates.tool_call("c", {"title": "Read"}),
    updates.tool_call(
        "c",
        {
            "title": "Edit",
            "kind": "edit",
            "status": "pending",
            "content": [
                blocks.content_item(TEXT),
                blocks.diff_item("/w/a", None, "new"),
                blocks.diff_item("/w/a", "old", "new"),
                blocks.terminal_item("t"),
            ],
            "locations": [SPOT, blocks.location("/w/b")],
            "rawInput": {"path": None},
            "rawOutput": {"x": 1},
            "_meta": {"terminal_info": {"terminal_id": "t", "cwd": "/w"}},
        },
    ),
    updates.tool_call_update("c", {"status": "in_progress"}),
    updates.tool_call_update("c", {"title": "T", "kind": "read", "content": [], "locations": []}),
    updates.plan([]),
    updates.plan([updates.plan_entry("a", "pending"), updates.plan_entry("b", "completed", "low")]),
    updates.available_commands_update([]),
    updates.available_commands_update(
        [updates.available_command("fork", "d"), updates.available_command("x", "d", "what")]
    ),
    updates.current_mode_update("m"),
    updates.config_option_update([SELECT, SWITCH]),
    updates.session_info_update(title="T", updated_at="2025-01-01T00:00:00.000Z"),
    updates.session_info_update(title="T"),
    updates.usage_update(5, 100),
    updates.notice("warning", "title", "description"),
    updates.notice("info", "title"),
]

RESULTS: list[tuple[str, JsonObject]] = [
    (
        "initialize",
        results.initialize_result(
            agent_info=results.implementation("a", "1"),
            agent_capabilities=results.agent_capabilities(
                session=["list", "delete", "resume", "close", "additionalDirectories"],
                image=True,
                embedded_context=True,
                logout=True,
            ),
            auth_methods=[
                results.auth_method("m", "M", "d"),
            ],
        ),
    ),
    (
        "initialize",
        results.initialize_result(
            agent_info=results.implementation("a", "1"),
            agent_capabilities=results.agent_capabilities(load_session=False),
        ),
    ),
    ("session/new", {"sessionId": "s", **results.open_session_result()}),
    (
        "session/new",
        {
            "sessionId": "s",
            **results.open_session_result(
                modes=MODES, config_options=[SELECT, SWITCH], meta={"x": None}
            ),
        },
    ),
    ("session/load", results.open_session_result()),
    ("session/load", results.open_session_result(modes=MODES, config_options=[SELECT])),
    ("session/resume", results.open_session_result(modes=MODES)),
    ("session/list", results.list_sessions_result([])),
    (
        "session/list",
        results.list_sessions_result(
            [
                results.session_info("s", "/w"),
                results.session_info("s", "/w", title="T", updated_at="2025-01-01T00:00:00Z"),
            ],
            "cursor",
        ),
    ),
    ("session/set_config_option", results.config_options_result([SELECT])),
    ("session/prompt", results.prompt_result("end_turn")),
    ("session/prompt", results.prompt_result("max_turn_requests")),
    ("session/delete", {}),
    ("session/close", {}),
    ("session/set_mode", {}),
    ("authenticate", {}),
    ("logout", {}),
]

ASKS: list[tuple[str, JsonObject]] = [
    (
        "session/request_permission",
        client_requests.request_permission_params(
            "s",
            {"toolCallId": "c", "title": "T", "kind": "execute", "rawInput": {"a": 1}},
            [
                client_requests.permission_option("a", "Allow", "allow_once"),
                client_requests.permission_option("r", "Reject", "reject_always"),
            ],
        ),
    ),
    ("fs/read_text_file", client_requests.read_text_file_params("s", "/w/a")),
    ("fs/read_text_file", client_requests.read_text_file_params("s", "/w/a", line=1, limit=2)),
    ("fs/write_text_file", client_requests.write_text_file_params("s", "/w/a", "x")),
    ("terminal/create", client_requests.create_terminal_params("s", "ls")),
    (
        "terminal/create",
        client_requests.create_terminal_params(
            "s", "ls", args=["-l"], env={"A": "b"}, cwd="/w", output_byte_limit=100
        ),
    ),
    *(
        (f"terminal/{name}", client_requests.terminal_params("s", "t"))
        for name in ("output", "wait_for_exit", "kill", "release")
    ),
    (
        "elicitation/create",
        client_requests.elicitation_form_params(
            "s",
            "Which?",
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        ),
    ),
    (
        "elicitation/create",
        client_requests.elicitation_url_params("s", "Go", "https://example.org", "e"),
    ),
    (
        "elicitation/create",
        client_requests.elicitation_url_params("s", "Go", "https://x.org/a/", "e"),
    ),
    ("elicitation/complete", client_requests.elicitation_complete_params("e")),
]

FRAMES: list[tuple[Part, str, JsonObject]] = [
    *(("agent params", "session/update", updates.session_update("s", made)) for made in UPDATES),
    *(("agent result", method, made) for method, made in RESULTS),
    *(("agent params", method, made) for method, made in ASKS),
]


@pytest.mark.rule("frames-fit-the-schema")
@pytest.mark.parametrize(("part", "method", "made"), FRAMES)
def test_what_is_built_passes_the_sdk_unchanged(part: Part, method: str, made: JsonObject) -> None:
    assert SdkOracle().fault(part, method, made) is None


@pytest.mark.rule("frames-hold-no-null")
@pytest.mark.parametrize(("part", "method", "made"), FRAMES)
def test_what_is_built_holds_no_null(part: Part, method: str, made: JsonObject) -> None:
    assert find_null(made) is None, (part, method)


def test_every_update_variant_has_a_builder() -> None:
    assert {update["sessionUpdate"] for update in UPDATES} == UPDATE_VARIANTS


def test_a_new_file_has_a_null_as_old_text() -> None:
    assert blocks.diff_item("/w/a", None, "x")["oldText"] is None


def test_a_capability_that_is_not_served_leaves_no_key() -> None:
    made = results.agent_capabilities(session=["list"])
    assert made["sessionCapabilities"] == {"list": {}}
    assert "auth" not in made


@pytest.mark.parametrize("make", [list, tuple, iter])
def test_lists_are_taken_from_any_iterable(
    make: Callable[[list[JsonObject]], Iterable[JsonObject]],
) -> None:
    entry = updates.plan_entry("a", "pending")
    assert updates.plan(make([entry]))["entries"] == [entry]

from typing import Any

import pytest
from pydantic import BaseModel

from acp_server.wire.errors import WireError
from acp_server.wire.model import parse
from acp_server.wire.requests import (
    AuthenticateParams,
    CancelParams,
    CloseSessionParams,
    DeleteSessionParams,
    EnvVariable,
    HttpServer,
    ListSessionsParams,
    LoadSessionParams,
    LogoutParams,
    NewSessionParams,
    PromptParams,
    SetConfigOptionParams,
    SetModeParams,
    StdioServer,
    UnreadableServer,
)

STDIO = {"name": "m", "command": "/bin/true", "args": [], "env": []}
SESSION = {"sessionId": "s"}


def refusal(model: type[BaseModel], params: object) -> str:
    with pytest.raises(WireError) as caught:
        parse(model, params)
    return caught.value.detail


@pytest.mark.rule("any-absolute-cwd-is-taken", "extra-members-are-accepted")
@pytest.mark.case("B14")
@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"mcpServers": None},
        {"mcpServers": []},
        {"_meta": None},
        {"_meta": {"x": 1}},
        {"_meta": 5},
        {"additionalDirectories": None},
        {"additionalDirectories": []},
        {"future": {"x": 1}},
        {"session_id": "not a wire name"},
    ],
)
def test_absent_null_and_unknown_members_are_tolerated(extra: dict[str, object]) -> None:
    assert parse(NewSessionParams, {"cwd": "/w", **extra}) == NewSessionParams(cwd="/w")


@pytest.mark.case("B14")
@pytest.mark.parametrize(
    "server",
    [
        STDIO,
        {**STDIO, "env": None},
        {**STDIO, "args": None},
        {"name": "m", "command": "/bin/true", "args": []},
        {"name": "m", "command": "/bin/true", "args": [], "type": "stdio"},
        {**STDIO, "type": None},
        {**STDIO, "future": 1},
    ],
)
def test_a_stdio_server_may_leave_out_its_lists(server: dict[str, object]) -> None:
    params = parse(NewSessionParams, {"cwd": "/w", "mcpServers": [server]})
    assert params.mcp_servers == (StdioServer(name="m", command="/bin/true"),)


def test_all_kinds_of_servers_are_read() -> None:
    http = {
        "type": "http",
        "name": "h",
        "url": "http://x",
        "headers": [{"name": "a", "value": "b"}],
    }
    stdio = {**STDIO, "args": ["-v"], "env": [{"name": "K", "value": "v", "_meta": None}]}
    params = parse(
        LoadSessionParams,
        {"cwd": "/w", "mcpServers": [stdio, http, {**http, "type": "sse"}], "sessionId": "s"},
    )
    first, *others = params.mcp_servers
    assert first == StdioServer(
        name="m",
        command="/bin/true",
        args=("-v",),
        env=(EnvVariable(name="K", value="v"),),
    )
    assert [(type(other), getattr(other, "type", None)) for other in others] == [
        (HttpServer, "http"),
        (HttpServer, "sse"),
    ]


@pytest.mark.rule("any-absolute-cwd-is-taken")
@pytest.mark.case("B14", "B25")
@pytest.mark.parametrize(
    ("params", "detail"),
    [
        (None, "`cwd` is missing"),
        ({}, "`cwd` is missing"),
        ([], "params must be an object"),
        ("x", "params must be an object"),
        ({"cwd": None}, "`cwd` is missing"),
        ({"cwd": 5}, "`cwd` must be a string"),
        ({"cwd": ["/w"]}, "`cwd` must be a string"),
        ({"cwd": "rel"}, "`cwd` must be an absolute path, not 'rel'"),
        ({"cwd": "/w", "mcpServers": {}}, "`mcpServers` must be an array"),
        ({"cwd": "/w", "mcpServers": "x"}, "`mcpServers` must be an array"),
        ({"cwd": "/w", "additionalDirectories": "/x"}, "`additionalDirectories` must be an array"),
        (
            {"cwd": "/w", "additionalDirectories": ["/x", "y"]},
            "`additionalDirectories[1]` must be an absolute path, not 'y'",
        ),
    ],
)
def test_a_wrong_member_is_named(params: object, detail: str) -> None:
    assert refusal(NewSessionParams, params) == detail


@pytest.mark.case("B14")
@pytest.mark.parametrize(
    ("entry", "name", "detail"),
    [
        (17, "", "an MCP server must be an object"),
        (None, "", "an MCP server must be an object"),
        ({}, "", "`name` is missing"),
        ({"name": "m"}, "m", "`command` is missing"),
        ({"type": "acp", "id": "x", "name": "m"}, "m", "`command` is missing"),
        ({**STDIO, "args": ["a", 2]}, "m", "`args[1]` must be a string"),
        ({**STDIO, "env": {"K": "v"}}, "m", "`env` must be an array"),
        ({**STDIO, "env": [{"name": "K"}]}, "m", "`env[0].value` is missing"),
        ({"type": "http", "name": "m"}, "m", "`url` is missing"),
        ({"name": 5, "command": "x"}, "", "`name` must be a string"),
    ],
)
def test_an_unreadable_server_leaves_the_good_ones(entry: object, name: str, detail: str) -> None:
    params = parse(NewSessionParams, {"cwd": "/w", "mcpServers": [entry, STDIO]})
    assert params.mcp_servers == (
        UnreadableServer(name=name, detail=detail),
        StdioServer(name="m", command="/bin/true"),
    )


@pytest.mark.rule("any-absolute-cwd-is-taken", "list-rows-fold-the-log")
@pytest.mark.case("B25")
@pytest.mark.parametrize(
    "cwd", ["rel", "", "~", "~/x", "C:\\Users\\me", "\\\\?\\C:\\x", ".", "/a\0b"]
)
@pytest.mark.parametrize("model", [NewSessionParams, LoadSessionParams, ListSessionsParams])
def test_a_path_that_is_not_absolute_is_refused_by_each_method(
    model: type[BaseModel], cwd: str
) -> None:
    assert "`cwd`" in refusal(model, {"cwd": cwd, "sessionId": "s"})


@pytest.mark.rule("any-absolute-cwd-is-taken")
@pytest.mark.case("B25")
@pytest.mark.parametrize("cwd", ["/", "/tmp/w/", "/tmp/プロ ジェクト", "/a/../b", "//x", "/C:\\x"])
def test_an_absolute_path_is_kept_as_sent(cwd: str) -> None:
    assert parse(NewSessionParams, {"cwd": cwd}).cwd == cwd


@pytest.mark.case("B14")
@pytest.mark.parametrize("params", [None, {}, {"cwd": None, "cursor": None}, {"_meta": {}}])
def test_all_forms_of_an_unfiltered_list_are_one(params: object) -> None:
    assert parse(ListSessionsParams, params) == ListSessionsParams()


def test_list_takes_a_folder_and_a_cursor() -> None:
    params = parse(ListSessionsParams, {"cwd": "/w", "cursor": "c"})
    assert (params.cwd, params.cursor) == ("/w", "c")
    assert refusal(ListSessionsParams, {"cursor": 5}) == "`cursor` must be a string"


@pytest.mark.parametrize(
    ("model", "members"),
    [
        (LoadSessionParams, {"cwd": "/w"}),
        (DeleteSessionParams, {}),
        (CloseSessionParams, {}),
        (CancelParams, {"reason": "some editors say why"}),
        (SetModeParams, {"modeId": "m"}),
        (SetConfigOptionParams, {"configId": "c", "value": "v"}),
        (PromptParams, {"prompt": []}),
    ],
)
def test_every_request_on_a_session_needs_its_id(
    model: type[BaseModel], members: dict[str, object]
) -> None:
    assert getattr(parse(model, {**SESSION, **members}), "session_id", None) == "s"
    assert refusal(model, members) == "`sessionId` is missing"
    assert refusal(model, {**members, "sessionId": 5}) == "`sessionId` must be a string"


@pytest.mark.parametrize(
    ("model", "members", "detail"),
    [
        (SetModeParams, {}, "`modeId` is missing"),
        (SetModeParams, {"modeId": None}, "`modeId` is missing"),
        (SetConfigOptionParams, {"value": "v"}, "`configId` is missing"),
        (SetConfigOptionParams, {"configId": "c"}, "`value` is missing"),
        (
            SetConfigOptionParams,
            {"configId": "c", "value": 1},
            "`value` must be a string, true or false",
        ),
        (PromptParams, {}, "`prompt` is missing"),
        (PromptParams, {"prompt": "hi"}, "`prompt` must be an array"),
        (PromptParams, {"content": []}, "`prompt` is missing"),
    ],
)
def test_what_a_request_needs_is_named(
    model: type[BaseModel], members: dict[str, object], detail: str
) -> None:
    assert refusal(model, {**SESSION, **members}) == detail


@pytest.mark.parametrize("value", ["v", "", True, False])
def test_an_option_value_is_a_string_or_a_bool(value: str | bool) -> None:
    params: Any = {**SESSION, "configId": "c", "value": value, "type": "boolean"}
    assert parse(SetConfigOptionParams, params).value is value


def test_authenticate_needs_a_method_and_logout_nothing() -> None:
    assert parse(AuthenticateParams, {"methodId": "m"}).method_id == "m"
    assert refusal(AuthenticateParams, {}) == "`methodId` is missing"
    assert parse(LogoutParams, None) == LogoutParams()


def test_a_long_wrong_path_is_cut_in_the_message() -> None:
    assert len(refusal(NewSessionParams, {"cwd": "x" * 100_000})) < 300

"""Our models against the official SDK's: a field is in both, or the difference has a reason."""

from typing import Any, get_args

import pytest
from acp import schema as sdk
from pydantic import BaseModel

from acp_server.wire import client_results, content, requests
from acp_server.wire.model import WireModel

# our model, the SDK's models that it reads, fields of theirs that it leaves out, and why
PAIRS: list[tuple[type[BaseModel], list[type[BaseModel]], dict[str, str]]] = [
    (requests.NewSessionParams, [sdk.NewSessionRequest], {}),
    (requests.LoadSessionParams, [sdk.LoadSessionRequest], {}),
    (requests.LoadSessionParams, [sdk.ResumeSessionRequest], {}),
    (requests.ListSessionsParams, [sdk.ListSessionsRequest], {}),
    (requests.DeleteSessionParams, [sdk.DeleteSessionRequest], {}),
    (requests.CloseSessionParams, [sdk.CloseSessionRequest], {}),
    (requests.SetModeParams, [sdk.SetSessionModeRequest], {}),
    (
        requests.SetConfigOptionParams,
        [sdk.SetSessionConfigOptionBooleanRequest, sdk.SetSessionConfigOptionSelectRequest],
        {"type": "the value's own type says it, and the option knows its own"},
    ),
    (requests.PromptParams, [sdk.PromptRequest], {}),
    (requests.CancelParams, [sdk.CancelNotification], {}),
    (requests.AuthenticateParams, [sdk.AuthenticateRequest], {}),
    (requests.LogoutParams, [sdk.LogoutRequest], {}),
    (requests.StdioServer, [sdk.McpServerStdio], {}),
    (requests.HttpServer, [sdk.HttpMcpServer, sdk.SseMcpServer], {}),
    (requests.EnvVariable, [sdk.EnvVariable], {}),
    (requests.HttpHeader, [sdk.HttpHeader], {}),
    (content.TextBlock, [sdk.TextContentBlock], {}),
    (content.ImageBlock, [sdk.ImageContentBlock], {}),
    (content.AudioBlock, [sdk.AudioContentBlock], {}),
    (content.ResourceLinkBlock, [sdk.ResourceContentBlock], {}),
    (content.ResourceBlock, [sdk.EmbeddedResourceContentBlock], {}),
    (content.TextResource, [sdk.TextResourceContents], {}),
    (content.BlobResource, [sdk.BlobResourceContents], {}),
    (content.Annotations, [sdk.Annotations], {}),
    (client_results.RequestPermissionResult, [sdk.RequestPermissionResponse], {}),
    (client_results.SelectedOutcome, [sdk.AllowedOutcome], {}),
    (client_results.CancelledOutcome, [sdk.DeniedOutcome], {}),
    (client_results.ReadTextFileResult, [sdk.ReadTextFileResponse], {}),
    (
        client_results.EmptyResult,
        [sdk.WriteTextFileResponse, sdk.KillTerminalResponse, sdk.ReleaseTerminalResponse],
        {},
    ),
    (client_results.CreateTerminalResult, [sdk.CreateTerminalResponse], {}),
    (client_results.TerminalOutputResult, [sdk.TerminalOutputResponse], {}),
    (client_results.ExitStatus, [sdk.TerminalExitStatus], {}),
    (client_results.WaitForExitResult, [sdk.WaitForTerminalExitResponse], {}),
    (
        client_results.ElicitationResult,
        [
            sdk.AcceptElicitationResponse,
            sdk.DeclineElicitationResponse,
            sdk.CancelElicitationResponse,
            sdk.OtherElicitationResponse,
        ],
        {},
    ),
]


def wire_names(model: type[BaseModel]) -> set[str]:
    names = {field.alias or name for name, field in model.model_fields.items()}
    return names - {"_meta"}  # tolerated everywhere, read only on content


@pytest.mark.parametrize(("ours", "theirs", "left_out"), PAIRS)
def test_our_model_has_the_fields_of_the_sdk(
    ours: type[BaseModel], theirs: list[type[BaseModel]], left_out: dict[str, str]
) -> None:
    known = {name for model in theirs for name in wire_names(model)}
    assert wire_names(ours) | left_out.keys() == known
    assert not wire_names(ours) & left_out.keys()


def test_every_model_of_ours_is_compared() -> None:
    compared = {ours for ours, _, _ in PAIRS} | {
        requests.SessionParams,  # a base
        requests.UnreadableServer,  # what is none
        WireModel,
    }
    own = {
        value
        for module in (requests, content, client_results)
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, BaseModel) and not name.startswith("_")
    }
    assert own <= compared
    assert sdk.InitializeRequest.model_fields.keys() - {"field_meta"} == {
        "protocol_version",
        "client_capabilities",
        "client_info",
    }  # read by wire.handshake


def test_every_block_type_of_the_sdk_is_read() -> None:
    blocks = [theirs[0] for ours, theirs, _ in PAIRS if hasattr(ours, "to_json")]
    update: Any = sdk.AgentMessageChunk.model_fields["content"].annotation
    assert set(blocks) == set(get_args(update))


def test_the_client_capabilities_of_the_sdk_are_read_or_left_out_for_a_reason() -> None:
    left_out = {
        "plan": "unstable in v1: plan_update is not sent",
        "nes": "unstable in v1: next edit suggestions are not served",
        "positionEncodings": "unstable in v1: positions are not exchanged",
    }
    read = {"fs", "terminal", "session", "auth", "elicitation"}
    assert wire_names(sdk.ClientCapabilities) == read | left_out.keys()
    assert wire_names(sdk.FileSystemCapabilities) == {"readTextFile", "writeTextFile"}
    assert wire_names(sdk.ClientSessionCapabilities) == {"configOptions"}  # and notices, of 2.4.0
    assert wire_names(sdk.SessionConfigOptionsCapabilities) == {"boolean"}
    assert wire_names(sdk.AuthCapabilities) == {"terminal"}
    assert wire_names(sdk.ElicitationCapabilities) == {"form", "url"}
    assert wire_names(sdk.Implementation) - {"title"} == {"name", "version"}

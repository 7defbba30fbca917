"""The steps of a scenario: what the client does, one step after the other.

Rule: steps-are-client-actions.

Each class is the written form of one step and nothing more; `driver` carries them out. Where a
step has a twin `…ExpectError`, that one must be refused, with `code` if it is given.
"""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, StrictBool, StrictInt, StrictStr, model_validator

from acp_server.testing.kit.step_model import Refusable, SessionRef, StepModel


class Initialize(Refusable):
    """Send `initialize`; `capabilities` come on top of what the flags say."""

    op: Literal["initialize", "initializeExpectError"]
    terminal_output: StrictBool = False
    fs: StrictBool = False
    capabilities: dict[str, Any] = Field(default_factory=dict)
    protocol_version: Any = 1


class Authenticate(Refusable):
    """Send `authenticate`."""

    op: Literal["authenticate", "authenticateExpectError"]
    method_id: StrictStr


class Opening(Refusable):
    """What all requests share that open a session."""

    cwd: StrictStr = "{{cwd}}"
    additional_directories: list[Any] | None = None
    mcp_servers: list[Any] | None = None


class NewSession(Opening):
    """Send `session/new`."""

    op: Literal["newSession", "newSessionExpectError"]


class LoadSession(Opening):
    """Send `session/load`; of the session that was opened last, if none is named."""

    op: Literal["loadSession", "loadSessionExpectError"]
    session: SessionRef | None = None


class ResumeSession(Opening):
    """Send `session/resume`."""

    op: Literal["resumeSession", "resumeSessionExpectError"]
    session: SessionRef | None = None


class ListSessions(Refusable):
    """Send `session/list`; the cursor `{{cursor}}` is the one that the last page gave."""

    op: Literal["listSessions", "listSessionsExpectError"]
    cwd: StrictStr | None = None
    cursor: StrictStr | None = None


class CloseSession(Refusable):
    """Send `session/close`."""

    op: Literal["closeSession", "closeSessionExpectError"]
    session: SessionRef | None = None


class DeleteSession(Refusable):
    """Send `session/delete`."""

    op: Literal["deleteSession", "deleteSessionExpectError"]
    session: SessionRef | None = None


class SetMode(Refusable):
    """Send `session/set_mode`."""

    op: Literal["setMode", "setModeExpectError"]
    mode_id: StrictStr
    session: SessionRef | None = None


class SetConfigOption(Refusable):
    """Send `session/set_config_option`."""

    op: Literal["setConfigOption", "setConfigOptionExpectError"]
    config_id: StrictStr
    value: StrictBool | StrictStr
    session: SessionRef | None = None


class PromptRequest(Refusable):
    """What all prompts share: a text or blocks, for the session that was opened last."""

    text: StrictStr | None = None
    blocks: list[dict[str, Any]] | None = None
    session: SessionRef | None = None

    @model_validator(mode="after")
    def _has_exactly_one(self) -> "PromptRequest":
        if (self.text is None) == (self.blocks is None):
            message = "a prompt has either `text` or `blocks`"
            raise ValueError(message)
        return self


class Prompt(PromptRequest):
    """Send a prompt and wait for the end of its turn."""

    op: Literal["prompt", "promptExpectError"]


class PromptAndWaitForAgentMessage(PromptRequest):
    """Send a prompt, wait for the end of its turn, then for a message with `waitForText`."""

    op: Literal["promptAndWaitForAgentMessage"]
    wait_for_text: StrictStr


class FileWait(StepModel):
    """A file that must come to be, relative to the working directory."""

    path: StrictStr
    timeout_ms: StrictInt = 10_000


class PromptAndCancel(PromptRequest):
    """Send a prompt, cancel its turn when all that is waited for has come, wait for its end."""

    op: Literal["promptAndCancel"]
    after_update: StrictStr = "agent_message_chunk"
    wait_for_file: FileWait | None = None
    wait_for_tool_call_update: StrictStr | None = None


class StartPrompt(PromptRequest):
    """Send a prompt and go on at once."""

    op: Literal["startPrompt"]


class AwaitPrompt(Refusable):
    """Wait for the end of the n-th started prompt; of the first that was not awaited yet."""

    op: Literal["awaitPrompt", "awaitPromptExpectError"]
    prompt: StrictInt | None = None


class Cancel(StepModel):
    """Send `session/cancel`."""

    op: Literal["cancel"]
    session: SessionRef | None = None


class CancelRequest(StepModel):
    """Send `$/cancel_request` for the n-th started prompt; for the one started last."""

    op: Literal["cancelRequest"]
    prompt: StrictInt | None = None


class WaitForUpdate(StepModel):
    """Wait for an update, come or to come since the last prompt or load was sent."""

    op: Literal["waitForUpdate"]
    update: StrictStr
    text: StrictStr | None = None
    status: StrictStr | None = None
    title: StrictStr | None = None
    count: StrictInt = 1


class WaitForRequest(StepModel):
    """Wait for the n-th request of the agent with this method."""

    op: Literal["waitForRequest"]
    method: StrictStr
    count: StrictInt = 1


class WaitForTurnEnd(StepModel):
    """Wait until the last boundary of the stored log is a `turn/end`."""

    op: Literal["waitForTurnEnd"]
    timeout_ms: StrictInt = 10_000
    session: SessionRef | None = None


class WaitForFile(FileWait):
    """Wait for a file."""

    op: Literal["waitForFile"]


class WriteFile(StepModel):
    """Write a file below the working directory."""

    op: Literal["writeFile"]
    path: StrictStr
    text: StrictStr


class ExpectFile(StepModel):
    """Compare a file below the working directory; without `text` there must be none."""

    op: Literal["expectFile"]
    path: StrictStr
    text: StrictStr | None = None


class Restart(StepModel):
    """End the server in order, if it runs, and start one on the same store, with another agent."""

    op: Literal["restart"]
    agent: StrictStr | None = None


class Stop(StepModel):
    """End the server, by the end of its input or by a signal, and wait for its exit."""

    op: Literal["closeInput", "kill", "terminate", "interrupt"]


class Request(Refusable):
    """Send any request."""

    op: Literal["request", "requestExpectError"]
    method: StrictStr
    params: dict[str, Any] = Field(default_factory=dict)


class Notify(StepModel):
    """Send any notification."""

    op: Literal["notify"]
    method: StrictStr
    params: dict[str, Any] = Field(default_factory=dict)


class SendLine(StepModel):
    """Send a line as it is, and wait for as many responses as `answers` says."""

    op: Literal["sendLine"]
    line: StrictStr
    answers: StrictInt = 1


Step: TypeAlias = Annotated[
    Initialize
    | Authenticate
    | NewSession
    | LoadSession
    | ResumeSession
    | ListSessions
    | CloseSession
    | DeleteSession
    | SetMode
    | SetConfigOption
    | Prompt
    | PromptAndWaitForAgentMessage
    | PromptAndCancel
    | StartPrompt
    | AwaitPrompt
    | Cancel
    | CancelRequest
    | WaitForUpdate
    | WaitForRequest
    | WaitForTurnEnd
    | WaitForFile
    | WriteFile
    | ExpectFile
    | Restart
    | Stop
    | Request
    | Notify
    | SendLine,
    Field(discriminator="op"),
]

"""Results of the requests we make to the client.

Responses are read leniently (ACP v1 schema): what is optional and malformed is absent, and null is
an empty result, since some editors answer `null` where the schema says `{}`.
"""

from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, StrictBool, StrictStr

from acp_server.wire.model import (
    NONE_ON_ERROR,
    LenientInt,
    LenientObject,
    LenientStr,
    WireModel,
)


class SelectedOutcome(WireModel):
    """The user chose an option."""

    outcome: Literal["selected"]
    option_id: StrictStr


class CancelledOutcome(WireModel):
    """The prompt was cancelled before the user chose."""

    outcome: Literal["cancelled"]


PermissionOutcome: TypeAlias = SelectedOutcome | CancelledOutcome


def _read_outcome(value: object) -> PermissionOutcome:
    if isinstance(value, dict) and value.get("outcome") == "cancelled":
        return CancelledOutcome.model_validate(value)
    return SelectedOutcome.model_validate(value)


class RequestPermissionResult(WireModel):
    """Of `session/request_permission`; an outcome that is neither known form does not parse."""

    outcome: Annotated[PermissionOutcome, BeforeValidator(_read_outcome)]


class ReadTextFileResult(WireModel):
    """Of `fs/read_text_file`."""

    content: StrictStr


class EmptyResult(WireModel):
    """Of `fs/write_text_file`, `terminal/kill` and `terminal/release`."""


class CreateTerminalResult(WireModel):
    """Of `terminal/create`."""

    terminal_id: StrictStr


class ExitStatus(WireModel):
    """How a command ended; both absent if the client does not know."""

    exit_code: LenientInt = None
    signal: LenientStr = None


class TerminalOutputResult(WireModel):
    """Of `terminal/output`."""

    output: StrictStr
    truncated: StrictBool = False
    exit_status: Annotated[ExitStatus | None, NONE_ON_ERROR] = None


class WaitForExitResult(ExitStatus):
    """Of `terminal/wait_for_exit`."""


class ElicitationResult(WireModel):
    """Of `elicitation/create`; an action other than accept and decline counts as cancel."""

    action: StrictStr
    content: LenientObject = None

"""Tools to test agents with, public for authors of agents.

Four packages, each with its own front door, each importing only those before it:

- `checks`: rules that frames must keep, and the transcript that they show;
- `client`: a client over a subprocess or in memory, with repeatable clock and ids;
- `kit`: scenario directories as tests, and the fixture `acp`;
- `conformance`: cases that any ACP agent can be held to; beside the kit, not above it.

`errors` is common to all. What is started by its path stands at the top: the pytest plugin
(`plugin`) and the commands `python -m acp_server.testing.serve` and `….replay`.

The names here are loaded when they are asked for: the pytest plugin lives in this package, and a
project that does not use it must not pay for it. The official SDK is imported only when a
`FrameChecker` with `sdk=True` judges its first frame.
"""

from importlib import import_module

# Not from `typing`: under `python -m` that would be looked for in the working directory first.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from acp_server.testing.checks import (
        Card,
        FrameChecker,
        Message,
        Plan,
        Title,
        Transcript,
        TranscriptFold,
        fold_transcript,
    )
    from acp_server.testing.client import (
        FILE_CAPABILITIES,
        AcpClient,
        Answer,
        CountedIds,
        CountingIds,
        DiskFiles,
        PendingRequest,
        PermissionQueue,
        PromptHandle,
        PromptResult,
        RawClient,
        RecordedFrame,
        SessionUpdate,
        SteppingClock,
    )
    from acp_server.testing.client.server import running_server
    from acp_server.testing.errors import (
        AcpClientError,
        AcpError,
        AcpTimeoutError,
        AgentExitError,
        AgentGoneError,
        FrameViolation,
        FrameViolationError,
    )

_PACKAGES = {
    "checks": (
        "Card",
        "FrameChecker",
        "Message",
        "Plan",
        "Title",
        "Transcript",
        "TranscriptFold",
        "fold_transcript",
    ),
    "client": (
        "FILE_CAPABILITIES",
        "AcpClient",
        "Answer",
        "CountedIds",
        "CountingIds",
        "DiskFiles",
        "PendingRequest",
        "PermissionQueue",
        "PromptHandle",
        "PromptResult",
        "RawClient",
        "RecordedFrame",
        "SessionUpdate",
        "SteppingClock",
    ),
    "client.server": ("running_server",),
    "errors": (
        "AcpClientError",
        "AcpError",
        "AcpTimeoutError",
        "AgentExitError",
        "AgentGoneError",
        "FrameViolation",
        "FrameViolationError",
    ),
}
_HOMES = {name: f"{__name__}.{package}" for package, names in _PACKAGES.items() for name in names}

__all__ = [
    # driving an agent
    "AcpClient",
    "RawClient",
    "PromptHandle",
    "PromptResult",
    "PendingRequest",
    "RecordedFrame",
    "SessionUpdate",
    "FILE_CAPABILITIES",
    # answering it
    "Answer",
    "DiskFiles",
    "PermissionQueue",
    # judging its frames
    "FrameChecker",
    "FrameViolation",
    # what it showed
    "Transcript",
    "TranscriptFold",
    "fold_transcript",
    "Message",
    "Card",
    "Plan",
    "Title",
    # repeatable runs of our server
    "running_server",
    "CountedIds",
    "CountingIds",
    "SteppingClock",
    # errors
    "AcpClientError",
    "AcpError",
    "AcpTimeoutError",
    "AgentExitError",
    "AgentGoneError",
    "FrameViolationError",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(import_module(_HOMES[name]), name)

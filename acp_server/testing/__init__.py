"""Tools to test agents with: a client, a frame checker, a transcript fold, repeatable sources.

Public for authors of agents. Names are loaded when they are asked for: the pytest plugin lives in
this package, and a project that does not use it must not pay for it. The official SDK is imported
only when a `FrameChecker` with `sdk=True` judges its first frame.
"""

from importlib import import_module

# Not from `typing`: under `python -m` that would be looked for in the working directory first.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from acp_server.testing.client import (
        FILE_CAPABILITIES,
        AcpClient,
        PromptHandle,
        PromptResult,
        SessionUpdate,
    )
    from acp_server.testing.client_answers import Answer, DiskFiles, PermissionQueue
    from acp_server.testing.connection import PendingRequest, RecordedFrame
    from acp_server.testing.errors import (
        AcpClientError,
        AcpError,
        AcpTimeoutError,
        AgentExitError,
        AgentGoneError,
        FrameViolation,
        FrameViolationError,
    )
    from acp_server.testing.frames import FrameChecker
    from acp_server.testing.raw_client import RawClient
    from acp_server.testing.sources import CountingIds, SteppingClock
    from acp_server.testing.transcript import (
        Card,
        Message,
        Plan,
        Title,
        Transcript,
        TranscriptFold,
        fold_transcript,
    )

_HOMES = {
    "FILE_CAPABILITIES": "acp_server.testing.client",
    "AcpClient": "acp_server.testing.client",
    "PromptHandle": "acp_server.testing.client",
    "PromptResult": "acp_server.testing.client",
    "SessionUpdate": "acp_server.testing.client",
    "Answer": "acp_server.testing.client_answers",
    "DiskFiles": "acp_server.testing.client_answers",
    "PermissionQueue": "acp_server.testing.client_answers",
    "PendingRequest": "acp_server.testing.connection",
    "RecordedFrame": "acp_server.testing.connection",
    "AcpClientError": "acp_server.testing.errors",
    "AcpError": "acp_server.testing.errors",
    "AcpTimeoutError": "acp_server.testing.errors",
    "AgentExitError": "acp_server.testing.errors",
    "AgentGoneError": "acp_server.testing.errors",
    "FrameViolation": "acp_server.testing.errors",
    "FrameViolationError": "acp_server.testing.errors",
    "FrameChecker": "acp_server.testing.frames",
    "RawClient": "acp_server.testing.raw_client",
    "CountingIds": "acp_server.testing.sources",
    "SteppingClock": "acp_server.testing.sources",
    "Card": "acp_server.testing.transcript",
    "Message": "acp_server.testing.transcript",
    "Plan": "acp_server.testing.transcript",
    "Title": "acp_server.testing.transcript",
    "Transcript": "acp_server.testing.transcript",
    "TranscriptFold": "acp_server.testing.transcript",
    "fold_transcript": "acp_server.testing.transcript",
}

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
    # repeatable runs
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

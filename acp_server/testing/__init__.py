"""Tools to test agents with: a client, a frame checker, a transcript fold, repeatable sources.

Public for authors of agents. Nothing here imports pytest, and the official SDK is imported only
when a `FrameChecker` with `sdk=True` judges its first frame.
"""

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

"""A client that drives an agent: any agent in a subprocess, ours also in this process.

`AcpClient` speaks ACP, `RawClient` sends any frame; both keep and check every frame.
`running_server` (in `server`, which loads the whole server) starts ours over memory, with the
clock and ids of `sources`, so that a run can be repeated.
"""

from acp_server.testing.client.acp_client import (
    FILE_CAPABILITIES,
    AcpClient,
    SessionUpdate,
)
from acp_server.testing.client.client_results import Answer, DiskFiles, PermissionQueue
from acp_server.testing.client.connection import PendingRequest, RecordedFrame
from acp_server.testing.client.prompts import PromptHandle, PromptResult
from acp_server.testing.client.raw_client import RawClient
from acp_server.testing.client.sources import (
    CountedIds,
    CountingIds,
    SteppingClock,
    clock_of_series,
)

__all__ = [
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
    "clock_of_series",
]

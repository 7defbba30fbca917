"""What judges an agent by its frames alone: rules that frames must keep, and what they show.

`FrameChecker` holds the frames of both directions to the schema and to the rules of a
conversation (`frames`, `session_rules`, `gates`, and the official SDK in `sdk_oracle`).
`fold_transcript` folds session updates to what a user sees. Nothing here sends or receives, so
both also work on recorded frames.
"""

from acp_server.testing.checks.frames import FrameChecker
from acp_server.testing.checks.transcript import (
    Card,
    Message,
    Plan,
    Title,
    Transcript,
    TranscriptFold,
    fold_transcript,
)

__all__ = [
    "Card",
    "FrameChecker",
    "Message",
    "Plan",
    "Title",
    "Transcript",
    "TranscriptFold",
    "fold_transcript",
]

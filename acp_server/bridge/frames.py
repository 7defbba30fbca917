"""Builds `session/update` frames as bytes: an update is encoded once, here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from acp_server.turns.content import pieces
from acp_server.wire import updates

if TYPE_CHECKING:
    from collections.abc import Mapping

TEXT_END = b"}}}}\n"
"""What stands behind the text in a text chunk's frame."""

_VARIANTS = {"text": "agent_message_chunk", "reasoning": "agent_thought_chunk"}


class FrameBuilder:
    """Builds the update frames of one session."""

    def __init__(self, session_id: str) -> None:
        head = {"jsonrpc": "2.0", "method": "session/update"}
        params = orjson.dumps(updates.session_update(session_id, {}))
        self._head = orjson.dumps(head)[:-1] + b',"params":' + params[: -len(b"{}}")]

    def update(self, update: Mapping[str, Any]) -> bytes:
        """Return the frame of any update, with its LF."""
        return self._head + orjson.dumps(update) + b"}}\n"

    def text_prefix(self, kind: str, message_id: str) -> bytes:
        """Return the part of a text chunk's frame before its text, which a stream reuses.

        Args:
            kind: `text` or `reasoning`.
            message_id: The message the chunk belongs to.
        """
        chunk = orjson.dumps({"sessionUpdate": _VARIANTS[kind], "messageId": message_id})
        return self._head + chunk[:-1] + b',"content":{"type":"text","text":'

    @staticmethod
    def text_frame(prefix: bytes, text: str) -> bytes:
        """Return the frame of one piece of text behind a `text_prefix`."""
        return prefix + orjson.dumps(text) + TEXT_END

    def texts(self, kind: str, message_id: str, text: str) -> list[bytes]:
        """Return the frames of a text of any length (long-text-goes-in-pieces)."""
        prefix = self.text_prefix(kind, message_id)
        return [self.text_frame(prefix, piece) for piece in pieces(text)]

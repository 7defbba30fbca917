"""Writes one assistant message: its chunks as they come, then what they add up to.

No text is kept here: what the chunks add up to is read from the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from session_core import Event, assembled_stream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from session_core import Session, StreamAssembler

TextKind = Literal["text-delta", "reasoning-delta"]

_BLOCK_TYPE: dict[TextKind, str] = {"text-delta": "text", "reasoning-delta": "reasoning"}


class MessageWriter:
    """The chunks of one message of one step.

    Attributes:
        open_kind: What the open block of text is of; None if none is open.
        index: Index of the open block, or of the next one.
        is_finished: Whether `finish` has been written.
    """

    def __init__(self, session: Session, turn: int, step: int) -> None:
        self._place = {"turn": turn, "step": step}
        self.open_kind: TextKind | None = None
        self.index = 0
        self.is_finished = False
        self._session = session
        # Where reading may begin: nothing of this message is before.
        self._first_seq = session.seq
        self._block_seq = session.seq

    def chunk(self, chunk: Mapping[str, Any]) -> Event:
        """Append one chunk as it is."""
        event = self._session.append("assistant/chunk", {**self._place, "chunk": chunk})
        if chunk["type"] == "finish":
            self.is_finished = True
        return event

    def open_block(self, kind: TextKind) -> None:
        """Begin a block of text behind the one that is open."""
        self.close_block()
        start = {"type": "block-start", "index": self.index, "blockType": _BLOCK_TYPE[kind]}
        self._block_seq = self.chunk(start).seq
        self.open_kind = kind

    def close_block(self) -> None:
        """End the block of text that is open, if any."""
        if self.open_kind is None:
            return
        text = self.assembled(self._block_seq).text_of(self.index)
        block = {"type": _BLOCK_TYPE[self.open_kind], "text": text}
        self.chunk({"type": "block-end", "index": self.index, "block": block})
        self.open_kind = None
        self.index += 1

    def call_block(self, call_id: str, name: str, arguments: str) -> None:
        """Write a whole tool-call block, as a model would."""
        self.close_block()
        index = self.index
        self.chunk({"type": "block-start", "index": index, "blockType": "tool-call"})
        delta = {"type": "tool-call-delta", "index": index, "id": call_id, "name": name}
        self.chunk({**delta, "argumentsDelta": arguments})
        block = {"type": "tool-call", "id": call_id, "name": name, "arguments": arguments}
        self.chunk({"type": "block-end", "index": index, "block": block})
        self.index += 1

    def finish(self, kind: str) -> None:
        """End the stream, once."""
        if not self.is_finished:
            self.close_block()
            self.chunk({"type": "finish", "reason": {"kind": kind}})

    def assembled(self, since: int | None = None) -> StreamAssembler:
        """Return what the chunks from a seq on add up to; all chunks by default."""
        start = self._first_seq if since is None else since
        return assembled_stream(self._session.events.records(start))

    def sources(self) -> list[int]:
        """Return the seqs of the message's chunks."""
        seqs: list[int] = []
        for record in self._session.events.records(self._first_seq):
            if not isinstance(record, Event):
                seqs.extend(range(record.seq0, record.stop))
            elif record.type == "assistant/chunk":
                seqs.append(record.seq)
        return seqs

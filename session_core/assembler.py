"""Assembling a stream of chunks into the blocks of one assistant message.

Rules: stream-chunks-have-fixed-shapes, truncated-calls-are-dropped.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from session_core.chunks import CHUNK_EVENT, ChunkRun
from session_core.errors import StreamOrderError
from session_core.log import Record


@dataclass(slots=True)
class _Block:
    """One block in the making: what its deltas gave, and the authoritative block once it came."""

    kind: str | None = None
    texts: list[str] = field(default_factory=list)
    call_id: str | None = None
    name: str | None = None
    final: Mapping[str, Any] | None = None

    def assembled(self, index: int) -> Mapping[str, Any] | None:
        """Return the block, or `None` if nothing of it came."""
        if self.final is not None:
            return self.final
        text = "".join(self.texts)
        match self.kind:
            case "text-delta":
                return {"type": "text", "text": text}
            case "reasoning-delta":
                return {"type": "reasoning", "text": text}
            case "tool-call-delta":
                return {
                    "type": "tool-call",
                    "id": self.call_id or f"call-{index}",
                    "name": self.name or "",
                    "arguments": text,
                }
            case _:
                return None


class StreamAssembler:
    """Takes the chunks of one model stream in order and gives the message they make."""

    def __init__(self) -> None:
        self._blocks: dict[int, _Block] = {}
        self._usage: Mapping[str, Any] | None = None
        self._finish: Mapping[str, Any] | None = None

    def feed(self, chunk: Mapping[str, Any]) -> None:
        """Take the next chunk. Types that are not known are ignored.

        Raises:
            StreamOrderError: It comes after `finish`, or is a second `usage`.
        """
        self._require_unfinished(chunk["type"])
        match chunk["type"]:
            case "text-delta" | "reasoning-delta" as kind:
                self._feed_deltas(chunk["index"], kind, (chunk["text"],))
            case "tool-call-delta" as kind:
                block = self._feed_deltas(chunk["index"], kind, (chunk["argumentsDelta"],))
                block.call_id = block.call_id or chunk.get("id")
                block.name = block.name or chunk.get("name")
            case "block-start":
                self._block(chunk["index"])
            case "block-end":
                block = self._block(chunk["index"])
                if block.final is None:
                    block.final = chunk["block"]
            case "usage":
                if self._usage is not None:
                    raise StreamOrderError("usage", "came twice")
                self._usage = chunk["usage"]
            case "finish":
                self._finish = chunk

    def feed_run(self, run: ChunkRun) -> None:
        """Take a packed run of deltas.

        Raises:
            StreamOrderError: It comes after `finish`.
        """
        self._require_unfinished(run.kind)
        block = self._feed_deltas(run.index, run.kind, run.texts)
        block.call_id = block.call_id or run.key.call_id
        block.name = block.name or run.key.name

    def blocks(self) -> list[Mapping[str, Any]]:
        """Return the blocks in the order of their indexes.

        A stream cut by `max-tokens` gives no tool calls: their arguments may be cut as well.
        """
        assembled = [self._blocks[index].assembled(index) for index in sorted(self._blocks)]
        is_cut = self.finish_reason["kind"] == "max-tokens"
        return [
            block
            for block in assembled
            if block is not None and not (is_cut and block["type"] == "tool-call")
        ]

    def text_of(self, index: int) -> str:
        """Return the joined deltas of the block at `index`, as far as they have come."""
        return "".join(self._blocks[index].texts) if index in self._blocks else ""

    @property
    def finish_reason(self) -> Mapping[str, Any]:
        """Why the stream ended; `stop` as long as no reason has come."""
        return {"kind": "stop"} if self._finish is None else self._finish["reason"]

    @property
    def is_finished(self) -> bool:
        """Whether `finish` has come."""
        return self._finish is not None

    @property
    def usage(self) -> Mapping[str, Any] | None:
        """The token counts, if any came."""
        return self._usage

    @property
    def replay_state(self) -> Any:
        """The provider's own state from `finish`, `None` if there was none."""
        return None if self._finish is None else self._finish.get("replayState")

    def _require_unfinished(self, kind: str) -> None:
        if self._finish is not None:
            raise StreamOrderError(kind, "came after finish")

    def _block(self, index: int) -> _Block:
        return self._blocks.setdefault(index, _Block())

    def _feed_deltas(self, index: int, kind: str, texts: Iterable[str]) -> _Block:
        block = self._block(index)
        if block.final is None:
            block.kind = block.kind or kind
            block.texts.extend(texts)
        return block


def assembled_stream(records: Iterable[Record]) -> StreamAssembler:
    """Return the stream whose chunks are among the records of a log; other events are passed over.

    Args:
        records: From the stream's first chunk on, e.g. `session.events.records(seq)`.

    Raises:
        StreamOrderError: They are the chunks of more than one stream.
    """
    assembler = StreamAssembler()
    for record in records:
        if isinstance(record, ChunkRun):
            assembler.feed_run(record)
        elif record.type == CHUNK_EVENT:
            assembler.feed(record.data["chunk"])
    return assembler

"""What a model streams, checked on its way into the log.

Rules: updates-are-what-was-stored, lone-surrogates-are-replaced, failure-text-hides-secrets.

The log must say in deltas what the blocks say, since the client is shown the deltas: a `block-end`
that says more is preceded by the missing tail, one that says something else is a failure.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from acp_server.turns.content import MAX_DELTA_CHARS, pieces
from acp_server.turns.errors import ModelError
from session_core import SessionCoreError, StreamOrderError, clean_json

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from acp_server.models.model import StreamChunk
    from acp_server.turns.turn_log import TurnLog
    from session_core import StreamAssembler

_DELTAS = {"text": "text-delta", "reasoning": "reasoning-delta"}

BAD_STREAM = "BAD_STREAM"
"""Code of a failure that lies in the stream's own order or content."""


class ModelStream:
    """One answer on its way into the log, which alone keeps what it says.

    Args:
        log: Of the turn; no message is open in it.
    """

    def __init__(self, log: TurnLog) -> None:
        self._log = log
        self._ended: set[int] = set()

    def write(self, chunk: StreamChunk) -> None:
        """Append what is to be logged for a chunk; mostly the chunk itself.

        Raises:
            ModelError: The stream contradicts itself, or a chunk is not one.
        """
        try:
            for logged in self._chunks(clean_json(chunk)):
                self._log.chunk(logged)
        except SessionCoreError as error:
            raise ModelError(str(error), code=BAD_STREAM) from error

    def end(self) -> StreamAssembler:
        """Return the whole answer, once the stream is over.

        Raises:
            ModelError: It broke off, says that it failed, or has two calls of one id, so that their
                results could not be told apart.
        """
        try:
            answer = self._log.streamed()
        except StreamOrderError as error:
            raise ModelError(str(error), code=BAD_STREAM) from error
        blocks = answer.blocks()
        if not answer.is_finished:
            message = "the model's answer broke off before its end"
            # Once something was shown, another attempt would show it twice (B66).
            raise ModelError(message, code="STREAM_CUT", retryable=not blocks)
        reason = answer.finish_reason
        if reason["kind"] in ("error", "aborted"):
            raise ModelError.of_failure(reason["failure"], aborted=reason["kind"] == "aborted")
        call_ids = [block["id"] for block in blocks if block["type"] == "tool-call"]
        if len(set(call_ids)) < len(call_ids):
            message = "two calls of the model's answer have the same id"
            raise ModelError(message, code=BAD_STREAM)
        return answer

    def _chunks(self, chunk: StreamChunk) -> Iterator[StreamChunk]:
        kind = chunk["type"]
        index = chunk.get("index", -1)
        if kind.endswith("-delta") and index in self._ended:
            # behind its block-end a delta says nothing more (stream-chunks-have-fixed-shapes)
            return
        if kind in ("text-delta", "reasoning-delta"):
            yield from _split(chunk)
            return
        if kind == "block-end":
            if index in self._ended:
                return
            yield from self._tail(index, chunk["block"])
            self._ended.add(index)
        yield _without_secrets(chunk) if kind == "finish" else chunk

    def _tail(self, index: int, block: Mapping[str, Any]) -> Iterator[StreamChunk]:
        """Yield the deltas that a block has lacked so far."""
        delta = _DELTAS.get(block["type"])
        if delta is None:
            return
        shown = self._log.streamed().text_of(index)
        if not block["text"].startswith(shown):
            message = "the model's answer contradicts what it has streamed"
            raise ModelError(message, code=BAD_STREAM)
        if len(block["text"]) > len(shown):
            tail = {"type": delta, "index": index, "text": block["text"][len(shown) :]}
            yield from _split(tail)


@asynccontextmanager
async def closing(stream: AsyncIterator[StreamChunk]) -> AsyncIterator[AsyncIterator[StreamChunk]]:
    """Close a model's stream on leaving, so that its connection ends with the request."""
    try:
        yield stream
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()


def _without_secrets(finish: StreamChunk) -> StreamChunk:
    """Return the end of a stream with its failure, if it has one, redacted."""
    reason = finish.get("reason")
    if not isinstance(reason, dict) or "failure" not in reason:
        return finish
    from acp_server.turns.redaction import redact_json  # noqa: PLC0415 - only failures pay

    return {**finish, "reason": {**reason, "failure": redact_json(reason["failure"])}}


def _split(chunk: StreamChunk) -> Iterator[StreamChunk]:
    """Yield a delta in pieces that each fit one frame (load-replays-before-response)."""
    if len(chunk["text"]) <= MAX_DELTA_CHARS:
        yield chunk
        return
    for piece in pieces(chunk["text"]):
        yield {**chunk, "text": piece}

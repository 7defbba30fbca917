"""The model port: what the model loop needs of a language model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from session_core import Message

StreamChunk = Mapping[str, Any]
"""One chunk, e.g. `{"type": "text-delta", "index": 0, "text": "hi"}`.

Rule: stream-chunks-have-fixed-shapes.
"""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One request: the recorded header and the messages, the prefix included.

    Rule: requests-are-rebuilt-from-log.
    """

    header: Mapping[str, Any]
    messages: Sequence[Message]


class Model(Protocol):
    """A language model that streams one answer per request.

    The messages of a request are the history as it is; `model_messages.model_messages` turns them
    into what a provider takes.

    Attributes:
        provider: Non-empty name of the provider, recorded as provenance.
        name: Non-empty name of the model.
    """

    provider: str
    name: str

    def stream(self, request: ModelRequest) -> AsyncIterator[StreamChunk]:
        """Yield the answer's chunks; the last is `finish`.

        Raises:
            ModelError: The request failed for good.
        """

"""The scripted model: plays responses, so that tests and demonstrations need no provider.

What a response may be is in `script_file`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from acp_server.models.script_file import ScriptError, chunks_of, failure_of, hangs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from acp_server.models.model import ModelRequest, StreamChunk
    from acp_server.models.script_file import Response


class ScriptedModel:
    """Answers each request with the next response of a list.

    Args:
        responses: The list, checked.
        name: Name of the model.
        source: Named in errors.
    """

    provider = "script"

    def __init__(self, responses: Sequence[Response], name: str, source: str) -> None:
        self.name = name
        self._source = source
        self._responses = responses
        self._next = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamChunk]:
        """Yield the next response's chunks.

        Raises:
            ScriptError: All responses have been played.
            ModelError: The script says that this request fails.
        """
        del request
        if self._next >= len(self._responses):
            message = f"exhausted after {len(self._responses)} responses"
            raise ScriptError(self._source, message)
        response = self._responses[self._next]
        position, self._next = self._next, self._next + 1
        for chunk in chunks_of(response, position):
            yield chunk
        if hangs(response):
            await anyio.sleep_forever()
        failure = failure_of(response)
        if failure is not None:
            raise failure

"""One tool call of a turn: announced, perhaps asked about, run, and always closed (Z2, Z3)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Self

import anyio

from acp_server.agents.content import clean_text, result_content
from acp_server.agents.errors import CheckpointError, PermissionDenied, TurnClosedError
from acp_server.agents.turn_log import ABORTED, ABORTED_BEFORE_DISPATCH, OpenCall

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from acp_server.agents.turn import Turn
    from session_core import CallId

_DENIED = {"name": "PermissionDeniedError", "code": "PERMISSION_DENIED"}
_STORE_FAILED = {"name": "StoreError", "code": "STORE_FAILED"}
_ALLOWED = ("allowed-once", "allowed-always")


class ToolCall:
    """A call as an async context manager; see `Turn.tool`.

    Attributes:
        call_id: Identity of the call in the log and on the wire.
        refusal_text: What the model reads when the user refuses.
        keep_step: The step stays open after the call; the model loop has more calls to run.
    """

    def __init__(
        self,
        turn: Turn,
        *,
        call_id: CallId,
        name: str,
        title: str | None,
        kind: str,
        arguments: Mapping[str, Any] | None,
        locations: Sequence[str | tuple[str, int]],
        diff: tuple[str, str | None, str] | None,
        ask: bool | str,
    ) -> None:
        raw = "{}" if arguments is None else json.dumps(dict(arguments), ensure_ascii=False)
        self.call_id = call_id
        self.refusal_text = "The user did not allow this call."
        self.keep_step = False
        self._turn = turn
        self._call = OpenCall(call_id, name, clean_text(raw))
        self._raw_input = None if arguments is None else json.loads(self._call.arguments)
        self._title = clean_text(title or name)
        self._kind = kind
        self._locations = [self._location(item) for item in locations]
        self._diffs = [] if diff is None else [self._diff(*diff)]
        self._ask = ask
        self._content: list[dict[str, Any]] = []
        self._streamed = False

    @classmethod
    def of_model(
        cls, turn: Turn, block: Mapping[str, Any], *, title: str, kind: str, ask: bool = False
    ) -> ToolCall:
        """Return the call for a tool-call block that a model has put into its message."""
        call = cls(
            turn,
            call_id=block["id"],
            name=block["name"],
            title=title,
            kind=kind,
            arguments=None,
            locations=(),
            diff=None,
            ask=ask,
        )
        call._call.arguments = block["arguments"]
        call._raw_input = _object_or_none(block["arguments"])
        call._streamed = True
        return call

    # -- for the body -----------------------------------------------------------------------

    def result(self, value: str | Sequence[Mapping[str, Any]] | None) -> None:
        """Set the call's result: a text or content blocks. The last one counts."""
        self._content = result_content(value)

    def diff(self, path: str, old: str | None, new: str) -> None:
        """Show a change of a file on the card; `old` is None for a new file."""
        self._require_open()
        self._diffs.append(self._diff(path, old, new))
        self._show()

    def update(
        self,
        *,
        title: str | None = None,
        locations: Sequence[str | tuple[str, int]] | None = None,
    ) -> None:
        """Change the card's title or locations."""
        self._require_open()
        if title is not None:
            self._title = clean_text(title)
        if locations is not None:
            self._locations = [self._location(item) for item in locations]
        self._show()

    # -- life -------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        log = self._turn.log
        if not self._streamed:
            log.tool_call_block(self.call_id, self._call.name, self._call.arguments)
            log.finish_stream("tool-calls")
        log.announce(self._call, self._view())
        if self._ask:
            await self._seek_permission()
        log.start_call(self._call)
        try:
            await self._turn.checkpoint()
        except CheckpointError as error:
            # Fail-closed (Z8): the intent is not on disk, so the body does not run.
            self._end(result_content(str(error)), _STORE_FAILED)
            raise
        except anyio.get_cancelled_exc_class():
            self._end_aborted(ABORTED_BEFORE_DISPATCH)
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if exc_type is not None and issubclass(exc_type, anyio.get_cancelled_exc_class()):
            self._end_aborted(ABORTED)
            return
        if self._turn.log.closed:
            return
        if exc is None:
            self._end(self._content)
        else:
            error = {"name": type(exc).__name__, "code": "TOOL_FAILED"}
            text = clean_text(f"{type(exc).__name__}: {exc}")
            self._end(result_content(text), error)
        await self._turn.checkpoint()

    # -- inside -----------------------------------------------------------------------------

    async def _seek_permission(self) -> None:
        log = self._turn.log
        approval_id = self._turn.new_approval_id()
        reason = clean_text(self._ask) if isinstance(self._ask, str) else None
        log.approval_asked(approval_id, self._call, reason)
        try:
            await self._turn.checkpoint()
            outcome = await self._turn.request_permission(self.call_id)
        except anyio.get_cancelled_exc_class():
            if not log.closed:
                log.approval_decided(approval_id, "cancelled")
            self._end_aborted(ABORTED_BEFORE_DISPATCH)
            raise
        log.approval_decided(approval_id, outcome)
        if outcome == "cancelled":
            # The user stopped the turn instead of answering (Z19).
            self._end_aborted(ABORTED_BEFORE_DISPATCH)
            await self._turn.abort()
        if outcome not in _ALLOWED:
            self._end(result_content(self.refusal_text), _DENIED)
            await self._turn.checkpoint()
            raise PermissionDenied(self._call.name)

    def _end_aborted(self, error: Mapping[str, str]) -> None:
        # An abandoned body may come back after the runner has closed the turn (Z19).
        if not self._turn.log.closed:
            text = "The turn was cancelled before this call finished."
            self._end(result_content(text), error)

    def _end(self, content: list[dict[str, Any]], error: Mapping[str, str] | None = None) -> None:
        self._turn.log.end_call(self._call, content, error=error, keep_step=self.keep_step)

    def _require_open(self) -> None:
        if self._turn.log.closed or self.call_id not in self._turn.log.open_calls:
            raise TurnClosedError

    def _show(self) -> None:
        self._turn.log.card(self.call_id, self._view())

    def _view(self) -> dict[str, Any]:
        view: dict[str, Any]
        if self._diffs:
            view = {"type": "diff-call", "title": self._title, "diffs": self._diffs}
        else:
            view = {"type": "generic-call", "title": self._title, "kind": self._kind}
            if self._raw_input is not None:
                view["rawInput"] = self._raw_input
        if self._locations:
            view["locations"] = self._locations
        return view

    def _location(self, item: str | tuple[str, int]) -> dict[str, Any]:
        if isinstance(item, str):
            return {"path": self._turn.absolute(item)}
        return {"path": self._turn.absolute(item[0]), "line": item[1]}

    def _diff(self, path: str, old: str | None, new: str) -> dict[str, Any]:
        return {
            "path": self._turn.absolute(path),
            "oldText": None if old is None else clean_text(old),
            "newText": clean_text(new),
        }


def _object_or_none(arguments: str) -> dict[str, Any] | None:
    """Return the parsed arguments if they are a JSON object, as `rawInput` must be (Z26)."""
    try:
        value = json.loads(arguments or "{}")
    except ValueError:
        return None
    return value if isinstance(value, dict) else None

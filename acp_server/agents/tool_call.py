"""One tool call of a turn: announced, perhaps asked about, run, and always closed.

Rules: call-is-announced-first, permission-precedes-the-call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import anyio
import anyio.to_thread

from acp_server.agents.files_on_disk import path_outside
from acp_server.turns.bounds import bounded_blocks, bounded_text
from acp_server.turns.content import clean_text, result_content
from acp_server.turns.errors import CheckpointError, PermissionDenied, TurnClosedError
from acp_server.turns.permissions import effect_from_outcome, standing_decision
from acp_server.turns.ports import GrantScope
from acp_server.turns.turn_log import ABORTED, ABORTED_BEFORE_DISPATCH

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from acp_server.agents.call_card import CallCard
    from acp_server.agents.terminals import Terminal
    from acp_server.turns.ports import PermissionOutcome
    from acp_server.turns.run import TurnRun
    from acp_server.turns.turn_log import OpenCall
    from session_core import CallId

_DENIED = {"name": "PermissionDeniedError", "code": "PERMISSION_DENIED"}
_STORE_FAILED = {"name": "StoreError", "code": "STORE_FAILED"}
_ALLOWED = ("allowed-once", "allowed-always")


class ToolCall:
    """A call as an async context manager; see `Turn.tool`.

    Attributes:
        call_id: Identity of the call in the log and on the wire.
        refusal_text: What the model reads when the user refuses.
    """

    def __init__(
        self,
        run: TurnRun,
        call_id: CallId,
        name: str,
        arguments: str,
        card: CallCard,
        *,
        ask: bool | str = False,
        grant: str | None = None,
        path: str | None = None,
    ) -> None:
        self.call_id = call_id
        self.refusal_text = "The user did not allow this call."
        self._run = run
        self._name = name
        self._arguments = arguments
        self._call: OpenCall | None = None
        self._card = card
        self._ask = ask
        self._grant = None if grant is None else GrantScope(name, clean_text(grant))
        self._path = None if path is None else run.absolute(clean_text(path))
        self._content: list[dict[str, Any]] | None = None

    @classmethod
    def of_model(
        cls,
        run: TurnRun,
        call: OpenCall,
        card: CallCard,
        *,
        ask: bool = False,
        grant: str | None = None,
        path: str | None = None,
    ) -> ToolCall:
        """Return the call that a model has put into its message, which is in the log.

        Its card is shown even if it is never entered. For the rest see `Turn.tool`.
        """
        made = cls(
            run, call.call_id, call.name, call.arguments, card, ask=ask, grant=grant, path=path
        )
        made._call = call
        call.view = card.view()
        return made

    # -- for the body -----------------------------------------------------------------------

    def result(
        self,
        value: str | Sequence[Mapping[str, Any]] | None,
        *,
        raw: Mapping[str, Any] | None = None,
    ) -> None:
        """Set the call's result. The last one counts.

        What is larger than the bounds of `bounds` is cut, with a note that names its size: the
        client and the model get the same.

        Args:
            value: A text or content blocks.
            raw: The result as a JSON object, for clients that show it; the model does not get it.

        Raises:
            ValueError: `raw` is not lossless JSON.
        """
        self._content = bounded_blocks(result_content(value))
        if raw is not None:
            self._card.set_raw_output(raw)

    def diff(self, path: str, old: str | None, new: str) -> None:
        """Show a change of a file on the card; `old` is None for a new file."""
        self._require_open()
        self._card.add_diff(path, old, new)
        self._show()

    def update(
        self,
        *,
        title: str | None = None,
        locations: Sequence[str | tuple[str, int]] | None = None,
        content: str | Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Change what the card shows while the call runs.

        Args:
            title: Its title.
            locations: Paths, or `(path, line)` pairs; they replace the former ones.
            content: A text or blocks; they replace the former ones, and the result replaces them.
        """
        self._require_open()
        if title is not None:
            self._card.title = clean_text(title)
        if locations is not None:
            self._card.set_locations(locations)
        if content is not None:
            self._card.set_content(content)
        self._show()

    def terminal(self, terminal: Terminal) -> None:
        """Show a terminal on the card; its output is the result unless `result` sets another."""
        self._require_open()
        self._card.set_terminal(terminal)
        self._show()

    def console(
        self, output: str, *, exit_code: int | None = None, signal: str | None = None
    ) -> None:
        """Set the result of a command that the agent has run itself; see `Turn.tool(console=)`.

        Args:
            output: What the command has put out, cut like any result.
            exit_code: How it ended, if it did.
            signal: What ended it, instead.
        """
        self._require_open()
        self._card.end_console(output, exit_code, signal)

    # -- life -------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        log = self._run.log
        outside = await self._path_outside()
        call = self._call
        if call is None:
            call = self._call = log.call(self.call_id, self._name, self._arguments)
        log.announce(call, self._card.view())
        if self._ask or outside is not None:
            await self._seek_permission(call, outside)
        log.start_call(call)
        try:
            await self._run.checkpoint()
        except CheckpointError as error:
            # Fail-closed (failed-checkpoint-ends-turn): the intent is not on disk, so the body does
            # not run.
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
        if self._run.log.closed:
            return
        if exc is None:
            self._end(self._result())
        else:
            error = {"name": type(exc).__name__, "code": "TOOL_FAILED"}
            self._end(result_content(bounded_text(f"{type(exc).__name__}: {exc}")), error)
        await self._run.checkpoint()

    # -- inside -----------------------------------------------------------------------------

    async def _path_outside(self) -> str | None:
        """Return where the call's path leads if that is outside the roots, and show it.

        Rule: presets-end-at-the-roots.
        """
        if self._path is None:
            return None
        # Not before the call begins: an earlier one may have changed what the path means.
        roots = self._run.settings.roots
        outside = await anyio.to_thread.run_sync(path_outside, self._path, roots)
        if outside is None:
            return None
        outside = clean_text(outside)
        self._card.title = f"{self._card.title} (outside the session's folders: {outside})"
        return outside

    async def _seek_permission(self, call: OpenCall, outside: str | None) -> None:
        run, log = self._run, self._run.log
        # What "always" would cover is inside the roots; for the rest there is no always.
        grant = self._grant if outside is None else None
        approval_id = run.ids.approval_id()
        reason = clean_text(self._ask) if isinstance(self._ask, str) else None
        if outside is not None:
            reason = f"{outside} is outside the session's folders"
        log.approval_asked(approval_id, call, reason)
        standing = standing_decision(
            run.session, run.settings, self._card.kind, self._grant, outside=outside is not None
        )
        try:
            outcome = standing or await self._asked(grant)
        except anyio.get_cancelled_exc_class():
            if not log.closed:
                log.approval_decided(approval_id, "cancelled")
            self._end_aborted(ABORTED_BEFORE_DISPATCH)
            raise
        log.approval_decided(approval_id, outcome)
        effect = effect_from_outcome(outcome)
        if standing is None and grant is not None and effect is not None:
            log.grant(grant.tool_name, grant.key, effect)
        if outcome == "cancelled":
            # The user stopped the turn instead of answering (ended-turn-refuses-its-handle).
            self._end_aborted(ABORTED_BEFORE_DISPATCH)
            await run.abort()
        if outcome not in _ALLOWED:
            self._end(result_content(self.refusal_text), _DENIED)
            await run.checkpoint()
            raise PermissionDenied(self._name)

    async def _asked(self, grant: GrantScope | None) -> PermissionOutcome:
        # What the answer will be about must be durable before it is asked
        # (checkpoints-stand-before-effects).
        await self._run.checkpoint()
        return await self._run.client.request_permission(self.call_id, grant)

    def _result(self) -> list[dict[str, Any]]:
        if self._content is not None:
            return self._content
        return result_content(self._card.console_text())

    def _end_aborted(self, error: Mapping[str, str]) -> None:
        # An abandoned body may come back after the runner has closed the turn
        # (ended-turn-refuses-its-handle).
        if not self._run.log.closed:
            text = "The turn was cancelled before this call finished."
            output = self._card.console_text()
            self._end(result_content(f"{output}\n{text}" if output else text), error)

    def _end(self, content: list[dict[str, Any]], error: Mapping[str, str] | None = None) -> None:
        view = self._card.result_view()
        if error is not None and view is not None and view["type"] != "terminal-result":
            view = None
        if self._call is not None:
            self._run.log.end_call(self._call, content, error=error, view=view)

    def _require_open(self) -> None:
        if self._run.log.closed or self.call_id not in self._run.log.open_calls:
            raise TurnClosedError

    def _show(self) -> None:
        self._run.log.card(self.call_id, self._card.view())

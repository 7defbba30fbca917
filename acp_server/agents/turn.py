"""The handle an agent drives a turn through: everything it does becomes events first (Z1-Z3)."""

from __future__ import annotations

import os.path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from acp_server.agents.bounds import MAX_TITLE_BYTES, bounded_text, bounded_texts
from acp_server.agents.call_card import CallCard
from acp_server.agents.content import MAX_DELTA_CHARS, clean_text, pieces, text_of
from acp_server.agents.elicitation import UrlVisit
from acp_server.agents.errors import PermissionDenied, TurnClosedError
from acp_server.agents.files import TurnFiles
from acp_server.agents.terminals import Terminal
from acp_server.agents.tool_call import ToolCall, arguments_text, object_or_none
from session_core import CORE_VOCABULARY, CallId, SurfaceIntent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from acp_server.agents.ids import IdSource
    from acp_server.agents.ports import (
        ClientPort,
        DurabilityPort,
        GrantScope,
        NoticeSeverity,
        PacePort,
        PermissionOutcome,
    )
    from acp_server.agents.settings import SessionSettings
    from acp_server.agents.turn_log import TextKind, TurnLog
    from session_core import HeaderRecorder, Message

_APPEND = SurfaceIntent("append")

YIELD_EVERY = 64
"""Updates between two looks at the event loop. An agent that never waits still shares the process,
and what it made meanwhile leaves in one write."""


class Turn:
    """One turn, as its agent sees it.

    Every coroutine method raises `TurnClosedError` after the turn's end and anyio's cancellation
    when the turn is cancelled. A turn and its methods belong to one event loop, which serves all
    sessions of the process: what burns CPU, a large diff for example, belongs into
    `anyio.to_process.run_sync(..., cancellable=True)`, where a cancel can end it.

    Attributes:
        prompt: Text of the prompt: its text blocks, joined.
        blocks: All blocks of the prompt, as the client sent them.
        history: The derived messages up to and including this prompt (contract 3.2).
        cwd: Working directory of the session, absolute, or None.
        files: The workspace, through the editor where it offers that.
    """

    def __init__(
        self,
        log: TurnLog,
        *,
        blocks: Sequence[Mapping[str, Any]],
        client: ClientPort,
        durability: DurabilityPort,
        pace: PacePort,
        ids: IdSource,
        prompt_seq: int,
        recorder: HeaderRecorder,
        settings: SessionSettings,
        cancel: Callable[[], None],
    ) -> None:
        self.blocks = tuple(blocks)
        self.prompt = text_of(blocks)
        self.cwd = log.session.header.cwd
        self.history: list[Message] = log.session.derive_messages()
        self.files = TurnFiles(client, self.cwd, log.require_open)
        self._log = log
        self._client = client
        self._durability = durability
        self._pace = pace
        self._ids = ids
        self._prompt_seq = prompt_seq
        self._recorder = recorder
        self._settings = settings
        self._cancel = cancel
        self._since_yield = 0

    # -- what the user has set ---------------------------------------------------------------

    @property
    def mode(self) -> str | None:
        """The permission preset as it is now; None for an agent without modes."""
        return self._settings.mode

    def option(self, option_id: str) -> Any:
        """Return the value of one of the agent's config options as it is now.

        Raises:
            KeyError: The agent has declared no such option.
        """
        return self._settings.option(option_id)

    @property
    def additional_directories(self) -> tuple[str, ...]:
        """Absolute directories besides `cwd` that the client named for this opening."""
        return self._settings.additional_directories

    # -- what the user sees -----------------------------------------------------------------

    async def text(self, text: str) -> None:
        """Show a piece of the answer. Pieces are shown as they come and join to one message."""
        await self._stream("text-delta", text)

    async def thought(self, text: str) -> None:
        """Show a piece of reasoning."""
        await self._stream("reasoning-delta", text)

    async def todos(self, items: Iterable[str | tuple[str, str]]) -> None:
        """Replace the todo list, which the client shows as its plan.

        Args:
            items: The whole list: texts (`pending`) or `(text, status)` pairs with status
                `pending`, `in_progress` or `completed`. An empty list clears the plan.
        """
        pairs = [(item, "pending") if isinstance(item, str) else item for item in items]
        texts = bounded_texts([text for text, _status in pairs])
        statuses = [status for _text, status in pairs]
        todos = [
            {"content": text, "status": status}
            for text, status in zip(texts, statuses, strict=True)
        ]
        self._log.append("todo/write", {"todos": todos})
        await self._breathe()

    async def title(self, title: str) -> None:
        """Name the session, as its list shows it."""
        title = bounded_text(title, MAX_TITLE_BYTES)
        data = {"title": title, "messageSeqs": [], "source": {"kind": "agent"}}
        self._log.append("session/title", data)
        await self._breathe()

    # -- calls ------------------------------------------------------------------------------

    def tool(
        self,
        name: str,
        *,
        title: str | None = None,
        kind: str = "other",
        arguments: Mapping[str, Any] | None = None,
        locations: Sequence[str | tuple[str, int]] = (),
        diff: tuple[str, str | None, str] | None = None,
        ask: bool | str = False,
        grant: str | None = None,
        console: bool | str = False,
    ) -> ToolCall:
        """Return a call to be entered with `async with`; the block is its body.

        Args:
            name: Name of the tool, for the model's history.
            title: What the card says; the name by default.
            kind: ACP tool kind: read, edit, delete, move, search, execute, think, fetch,
                switch_mode or other.
            arguments: JSON object shown as the call's input.
            locations: Paths, or `(path, line)` pairs with 1-based lines.
            diff: `(path, old text or None for a new file, new text)` to show with the question.
            ask: Ask the user before the block is entered; a text is the reason shown.
            grant: What the answers "always" cover in this session: the exact command, or the tool's
                name for the whole tool. Without it the user can answer for this call only.
            console: The call runs a command by itself and shows its output as a terminal does; a
                text describes the command. Its body ends with `call.console`.

        Raises:
            PermissionDenied: On entering, when the user refuses.
            ValueError: There is no such kind, or a line is below 1.
        """
        raw = arguments_text(arguments)
        raw_input = None if arguments is None else object_or_none(raw)
        card = CallCard(clean_text(title or name), kind, raw_input, self.absolute, console=console)
        card.set_locations(locations)
        if diff is not None:
            card.add_diff(*diff)
        return ToolCall(
            self,
            call_id=CallId(self._ids.call_id()),
            name=name,
            arguments=raw,
            card=card,
            ask=ask,
            grant=grant,
        )

    async def ask(self, question: str) -> bool:
        """Ask the user a yes-or-no question; False when refused or when nobody can answer."""
        question = clean_text(question)
        call = self.tool("ask", title=question, arguments={"question": question}, ask=True)
        call.refusal_text = "rejected"
        try:
            async with call:
                call.result("allowed")
        except PermissionDenied:
            return False
        return True

    # -- the client -------------------------------------------------------------------------

    @property
    def can_use_terminals(self) -> bool:
        """Whether the client runs commands for the agent."""
        return self._client.can_use_terminals

    def terminal(
        self,
        command: str,
        *,
        args: Sequence[str] = (),
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Terminal:
        """Return a command in a terminal of the client, to be entered with `async with`.

        It is started on entering. Leaving the block ends it if it still runs, and releases the
        terminal whatever happens, a cancel included. `call.terminal` shows it on a card.

        Args:
            command: The program.
            args: Its arguments.
            cwd: Working directory; the session's by default.
            env: Variables besides those of the client.

        Raises:
            NotOfferedError: On entering, when the client has no terminals.
            OSError: On entering, when the client refuses.
        """
        return Terminal(
            self._client,
            command,
            args=args,
            cwd=self.cwd if cwd is None else self.absolute(cwd),
            env=dict(env or {}),
            require_open=self._log.require_open,
            checkpoint=self.checkpoint,
        )

    async def elicit(self, message: str, schema: Mapping[str, Any]) -> dict[str, Any] | None:
        """Ask the user to fill in a form.

        Args:
            message: What it is for.
            schema: JSON schema of one flat object, e.g. `{"type": "object", "properties":
                {"name": {"type": "string"}}, "required": ["name"]}`. Never ask for secrets.

        Returns:
            What the user has entered; None when the user declines or the client has no forms.
        """
        await self.checkpoint()
        if not self._client.can_elicit_forms:
            return None
        return await self._client.elicit_form(clean_text(message), schema)

    async def elicit_url(self, message: str, url: str) -> UrlVisit | None:
        """Ask the user to visit a page, to sign in somewhere for example.

        Returns:
            The visit, whose `complete` is to be called when its purpose is reached; None when the
            user declines or the client opens no pages.
        """
        await self.checkpoint()
        if not self._client.can_elicit_urls:
            return None
        elicitation_id = self._ids.approval_id()
        agreed = await self._client.elicit_url(clean_text(message), url, elicitation_id)
        return UrlVisit(self._client, elicitation_id) if agreed else None

    async def usage(self, used: int, size: int) -> None:
        """Report how full the model's context is.

        Args:
            used: Tokens in it.
            size: Tokens it can hold.
        """
        self._log.append("usage/report", {"used": used, "size": size})
        await self._breathe()

    async def notice(
        self, title: str, description: str | None = None, *, severity: NoticeSeverity = "info"
    ) -> None:
        """Show a notice beside the conversation, if the client takes notices; it is not stored."""
        self._log.require_open()
        about = None if description is None else clean_text(description)
        self._client.notice(severity, clean_text(title), about)
        await self._breathe()

    # -- state ------------------------------------------------------------------------------

    async def record(self, event_type: str, data: Mapping[str, Any]) -> None:
        """Store an event of the agent's own (Z39): log-only, there after a load.

        Raises:
            ValueError: The type is one of the log's own, whose events the turn writes itself.
        """
        if CORE_VOCABULARY.knows(event_type):
            message = f"turn.record takes a type of your own; {event_type!r} is one of the log's"
            raise ValueError(message)
        self._log.append(event_type, data)
        await self._breathe()

    def events(self, event_type: str) -> list[Mapping[str, Any]]:
        """Return the data of all events of a type in this session, oldest first."""
        return [event.data for event in self._log.session.events if event.type == event_type]

    async def context(
        self,
        content: str,
        *,
        source: Mapping[str, Any] | None = None,
        envelope: str = "context",
    ) -> None:
        """Tell the model something that the user did not say (Z15); the client is not shown it.

        Args:
            content: The text.
            source: Message source; `{"kind": "plugin", "plugin": <agent name>}` by default.
            envelope: `context` frames the text in a tag that names the source's kind, `raw` not.
        """
        self._log.append(
            "context/message",
            {
                "content": [{"type": "text", "text": clean_text(content)}],
                "source": dict(source or {"kind": "plugin", "plugin": "agent"}),
                "envelope": envelope,
            },
            _APPEND,
        )
        self.history = self._log.session.derive_messages()
        await self._breathe()

    # -- model requests ---------------------------------------------------------------------

    async def begin_request(self, header: Mapping[str, Any]) -> list[Message]:
        """Open the step of a model request and return its messages: prefix, then history (Z38).

        Args:
            header: Request header, contract 1.10.

        Raises:
            CheckpointError: What led to the request is not durable, so it must not be sent (Z7).
        """
        # What an open stream holds is part of the request.
        self._log.end_step()
        messages = self._log.session.derive_messages()
        self._log.begin_request(header, self._recorder)
        if self._log.requests > 1:
            await self._durability.flush()
        return [*header.get("messagePrefix", ()), *messages]

    def refuse(
        self,
        provenance: Mapping[str, Any] | None = None,
        usage: Mapping[str, Any] | None = None,
    ) -> None:
        """Record that the model refused: the turn ends `refusal` and leaves the model's view.

        Args:
            provenance: `{"provider", "model"}` of the model; the agent itself by default.
            usage: Token counts of the refused request, contract 1.7.
        """
        self._log.refuse(self._prompt_seq, provenance, usage)

    # -- inside the room --------------------------------------------------------------------

    @property
    def settings(self) -> SessionSettings:
        """What is set in the session; for `ToolCall`, not for authors."""
        return self._settings

    @property
    def log(self) -> TurnLog:
        """The writer behind the handle; for the model loop and `ToolCall`, not for authors."""
        return self._log

    async def checkpoint(self) -> None:
        """Return when all that was appended so far is durable, then see to a pending cancel.

        Raises:
            CheckpointError: The store failed.
        """
        self._log.require_open()
        await self._durability.flush()
        await anyio.lowlevel.checkpoint_if_cancelled()

    async def request_permission(
        self, call_id: CallId, grant: GrantScope | None
    ) -> PermissionOutcome:
        """Ask the client about an announced call."""
        self._log.require_open()
        return await self._client.request_permission(call_id, grant)

    async def abort(self) -> None:
        """Cancel this turn from inside; does not return."""
        self._cancel()
        await anyio.lowlevel.checkpoint()

    def new_approval_id(self) -> str:
        """Return an id for one question."""
        return self._ids.approval_id()

    def absolute(self, path: str) -> str:
        """Return `path` below the session's working directory, or as it is when absolute (Z2)."""
        return path if self.cwd is None else os.path.normpath(os.path.join(self.cwd, path))  # noqa: PTH118 - text rule of the log, no file system

    async def breathe(self) -> None:
        """Let other tasks run when it is time, or when the client is slow."""
        await self._breathe()

    async def _stream(self, kind: TextKind, text: str) -> None:
        text = clean_text(text)
        if len(text) > MAX_DELTA_CHARS:
            for piece in pieces(text):
                self._log.delta(kind, piece)
                await self._breathe()
            return
        if text:
            self._log.delta(kind, text)
        self._since_yield += 1
        if self._since_yield >= YIELD_EVERY or self._pace.congested:
            await self._breathe()

    async def _breathe(self) -> None:
        if self._log.closed:
            raise TurnClosedError
        self._since_yield += 1
        if self._pace.congested:
            await self._pace.room()
        elif self._since_yield >= YIELD_EVERY:
            self._since_yield = 0
            await anyio.lowlevel.checkpoint()

"""The handle an agent drives a turn through: everything it does becomes events first.

Rules: step-is-message-and-calls, body-changes-update-the-card, permission-precedes-the-call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acp_server.agents.call_card import CallCard
from acp_server.agents.client_calls import ClientCalls
from acp_server.agents.files import TurnFiles
from acp_server.agents.tool_call import ToolCall
from acp_server.turns.arguments import arguments_text, parse_arguments
from acp_server.turns.bounds import MAX_TITLE_BYTES, bounded_text, bounded_texts
from acp_server.turns.content import clean_text, text_of
from acp_server.turns.errors import PermissionDenied
from session_core import APPEND, CORE_VOCABULARY, CallId, clean_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from acp_server.turns.run import TurnRun
    from session_core import Message


class Turn(ClientCalls):
    """One turn, as its agent sees it.

    Every coroutine method raises `TurnClosedError` after the turn's end and anyio's cancellation
    when the turn is cancelled. A turn and its methods belong to one event loop, which serves all
    sessions of the process: what burns CPU, a large diff for example, belongs into
    `anyio.to_process.run_sync(..., cancellable=True)`, where a cancel can end it.

    Attributes:
        prompt: Text of the prompt: its text blocks, joined.
        blocks: All blocks of the prompt, as the client sent them.
        history: The derived messages up to and including this prompt (derivation-is-incremental).
        cwd: Working directory of the session, absolute, or None.
        files: The workspace, through the editor where it offers that.
    """

    def __init__(self, run: TurnRun) -> None:
        super().__init__(run)
        self.blocks = run.blocks
        self.prompt = text_of(run.blocks)
        self.cwd = run.cwd
        self.history: list[Message] = run.session.derive_messages()
        self.files = TurnFiles(run.client, run.cwd, run.log.require_open)

    # -- what the user has set ---------------------------------------------------------------

    @property
    def mode(self) -> str | None:
        """The permission preset as it is now; None for an agent without modes."""
        return self._run.settings.mode

    def option(self, option_id: str) -> Any:
        """Return the value of one of the agent's config options as it is now.

        Raises:
            KeyError: The agent has declared no such option.
        """
        return self._run.settings.option(option_id)

    @property
    def additional_directories(self) -> tuple[str, ...]:
        """Absolute directories besides `cwd` that the client named for this opening."""
        return self._run.settings.additional_directories

    # -- what the user sees -----------------------------------------------------------------

    async def text(self, text: str) -> None:
        """Show a piece of the answer. Pieces are shown as they come and join to one message."""
        await self._run.write("text-delta", text)

    async def thought(self, text: str) -> None:
        """Show a piece of reasoning."""
        await self._run.write("reasoning-delta", text)

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
        self._run.log.append("todo/write", {"todos": todos})
        await self._run.yield_to_loop()

    async def title(self, title: str) -> None:
        """Name the session, as its list shows it."""
        title = bounded_text(title, MAX_TITLE_BYTES)
        data = {"title": title, "messageSeqs": [], "source": {"kind": "agent"}}
        self._run.log.append("session/title", data)
        await self._run.yield_to_loop()

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
        path: str | None = None,
        console: bool | str = False,
    ) -> ToolCall:
        """Return a call to be entered with `async with`; the block is its body.

        Args:
            name: Name of the tool, for the model's history.
            title: Title of the card; the name by default.
            kind: ACP tool kind: read, edit, delete, move, search, execute, think, fetch,
                switch_mode or other.
            arguments: JSON object shown as the call's input.
            locations: Paths, or `(path, line)` pairs with 1-based lines.
            diff: `(path, old text or None for a new file, new text)` to show with the question.
            ask: Ask the user before the block is entered; a text is the reason shown.
            grant: What the answers "always" cover in this session: the exact command, or the tool's
                name for the whole tool. Without it the user can answer for this call only.
            path: The file that the call touches. If it leads outside the session's folders, the
                user is asked whatever `ask` and the preset say, but for `full-access`.
            console: The call runs a command by itself and shows its output as a terminal does; a
                text describes the command. Its body ends with `call.console`.

        Raises:
            PermissionDenied: On entering, when the user refuses.
            ToolArgumentsError: The arguments are not lossless JSON.
            ValueError: There is no such kind, or a line is below 1.
        """
        run, name = self._run, clean_text(name)
        raw = arguments_text(arguments)
        raw_input = None if arguments is None else parse_arguments(raw)
        card = CallCard(clean_text(title or name), kind, raw_input, run.absolute, console=console)
        card.set_locations(locations)
        if diff is not None:
            card.add_diff(*diff)
        call_id = CallId(run.ids.call_id())
        return ToolCall(run, call_id, name, raw, card, ask=ask, grant=grant, path=path)

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

    async def usage(self, used: int, size: int) -> None:
        """Report how full the model's context is.

        Args:
            used: Tokens in it.
            size: Tokens that fit into it.
        """
        self._run.log.append("usage/report", {"used": used, "size": size})
        await self._run.yield_to_loop()

    # -- state ------------------------------------------------------------------------------

    async def record(self, event_type: str, data: Mapping[str, Any]) -> None:
        """Store an event of the agent's own: log-only, there after a load.

        Rule: authors-register-log-only-types.

        Raises:
            ValueError: The type is one of the log's own, whose events the turn writes itself.
        """
        if CORE_VOCABULARY.knows(event_type):
            message = f"turn.record takes a type of your own; {event_type!r} is one of the log's"
            raise ValueError(message)
        self._run.log.append(clean_text(event_type), clean_json(dict(data)))
        await self._run.yield_to_loop()

    def events(self, event_type: str) -> list[Mapping[str, Any]]:
        """Return the data of all events of a type in this session, oldest first."""
        return [event.data for event in self._run.session.events if event.type == event_type]

    async def context(
        self,
        content: str,
        *,
        source: Mapping[str, Any] | None = None,
        envelope: str = "context",
    ) -> None:
        """Tell the model something that the user did not say; the client is not shown it.

        Rule: injected-messages-part-no-call.

        Args:
            content: The text.
            source: Message source; `{"kind": "plugin", "plugin": <agent name>}` by default.
            envelope: `context` frames the text in a tag that names the source's kind, `raw` not.
        """
        self._run.log.append(
            "context/message",
            {
                "content": [{"type": "text", "text": clean_text(content)}],
                "source": clean_json(dict(source or {"kind": "plugin", "plugin": "agent"})),
                "envelope": envelope,
            },
            APPEND,
        )
        self.history = self._run.session.derive_messages()
        await self._run.yield_to_loop()

    def refuse(
        self,
        provenance: Mapping[str, Any] | None = None,
        usage: Mapping[str, Any] | None = None,
    ) -> None:
        """Record that the model refused: the turn ends `refusal` and leaves the model's view.

        Args:
            provenance: `{"provider", "model"}` of the model; the agent itself by default.
            usage: Token counts of the refused request (token-counts-are-disjoint).
        """
        made_by = None if provenance is None else clean_json(dict(provenance))
        self._run.log.refuse(self._run.prompt_seq, made_by, usage)


def run_of(turn: Turn) -> TurnRun:
    """Return the running turn behind a handle, for what this server brings itself."""
    return turn._run  # noqa: SLF001 - so that the handle shows authors nothing but their own

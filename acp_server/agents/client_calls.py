"""What a turn asks of its client, beside permissions: commands, forms, pages, notices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acp_server.agents.terminals import Terminal
from acp_server.turns.content import clean_text
from session_core import clean_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from acp_server.turns.ports import ClientPort, NoticeSeverity
    from acp_server.turns.run import TurnRun


class UrlVisit:
    """The user has agreed to visit a page; see `Turn.elicit_url`."""

    def __init__(self, client: ClientPort, elicitation_id: str) -> None:
        self._client = client
        self._elicitation_id = elicitation_id
        self._done = False

    def complete(self) -> None:
        """Tell the client that what the page was visited for is done; the first call counts."""
        if not self._done:
            self._done = True
            self._client.complete_elicitation(self._elicitation_id)


class ClientCalls:
    """The part of `Turn` that talks to the client."""

    def __init__(self, run: TurnRun) -> None:
        self._run = run

    @property
    def can_use_terminals(self) -> bool:
        """Whether the client runs commands for the agent."""
        return self._run.client.can_use_terminals

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
        run = self._run
        return Terminal(
            run.client,
            clean_text(command),
            args=clean_json(list(args)),
            cwd=run.cwd if cwd is None else clean_text(run.absolute(cwd)),
            env=clean_json(dict(env or {})),
            require_open=run.log.require_open,
            checkpoint=run.checkpoint,
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
        await self._run.checkpoint()
        if not self._run.client.can_elicit_forms:
            return None
        return await self._run.client.elicit_form(clean_text(message), clean_json(dict(schema)))

    async def elicit_url(self, message: str, url: str) -> UrlVisit | None:
        """Ask the user to visit a page, to sign in somewhere for example.

        Returns:
            The visit, whose `complete` is to be called when its purpose is reached; None when the
            user declines or the client opens no pages.
        """
        await self._run.checkpoint()
        client = self._run.client
        if not client.can_elicit_urls:
            return None
        elicitation_id = self._run.ids.approval_id()
        agreed = await client.elicit_url(clean_text(message), clean_text(url), elicitation_id)
        return UrlVisit(client, elicitation_id) if agreed else None

    async def notice(
        self, title: str, description: str | None = None, *, severity: NoticeSeverity = "info"
    ) -> None:
        """Show a notice beside the conversation, if the client takes notices; it is not stored."""
        self._run.log.require_open()
        about = None if description is None else clean_text(description)
        self._run.client.notice(severity, clean_text(title), about)
        await self._run.yield_to_loop()

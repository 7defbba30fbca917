"""Commands in the client's terminals: started, waited for, and always released."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Self

import anyio

from acp_server.agents.errors import NotOfferedError
from acp_server.turns.bounds import MAX_TEXT_BYTES, bounded_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from acp_server.turns.ports import ClientPort, TerminalExit

_log = logging.getLogger(__name__)

LEAVE_S = 0.5
"""How long leaving may wait for the last output, and again for the release: together well within
the 2 s in which a cancelled prompt must be answered, also by a client that answers nothing."""


class Terminal:
    """A command in a terminal of the client, as an async context manager; see `Turn.terminal`.

    Leaving the block ends the command if it still runs, and releases the terminal in any case.

    Attributes:
        terminal_id: Identity of the terminal; "" before the block is entered.
        output: What it has shown, as of the last `wait` or `refresh`, bounded like a result.
        exit: How the command ended; None while it runs.
    """

    def __init__(
        self,
        client: ClientPort,
        command: str,
        *,
        args: Sequence[str],
        cwd: str | None,
        env: Mapping[str, str],
        require_open: Callable[[], None],
        checkpoint: Callable[[], Awaitable[None]],
    ) -> None:
        self.terminal_id = ""
        self.output = ""
        self.exit: TerminalExit | None = None
        self.cwd = cwd
        self._client = client
        self._command = command
        self._args = args
        self._env = env
        self._require_open = require_open
        self._checkpoint = checkpoint

    async def wait(self, timeout_s: float | None = None) -> TerminalExit:
        """Return how the command ended, with its whole output in `output`.

        Args:
            timeout_s: Then the command is killed, and what it has shown is its output.

        Raises:
            OSError: The client refuses, or gives no answer.
        """
        self._require_open()
        with anyio.move_on_after(timeout_s):
            self.exit = await self._client.wait_for_terminal_exit(self.terminal_id)
        if self.exit is None:
            await self.kill()
            self.exit = await self._client.wait_for_terminal_exit(self.terminal_id)
        await self.refresh()
        return self.exit

    async def refresh(self) -> str:
        """Fetch what the terminal has shown so far into `output`, and return it.

        Raises:
            OSError: The client refuses, or gives no answer.
        """
        self._require_open()
        return await self._fetch()

    async def _fetch(self) -> str:
        shown = await self._client.terminal_output(self.terminal_id)
        self.output = bounded_text(shown.text)
        self.exit = self.exit or shown.exit
        return self.output

    async def kill(self) -> None:
        """End the command; its output can still be read.

        Raises:
            OSError: The client refuses.
        """
        self._require_open()
        await self._client.kill_terminal(self.terminal_id)

    async def __aenter__(self) -> Self:
        if not self._client.can_use_terminals:
            raise NotOfferedError("terminals")
        # A command has effects: what led to it must be durable before it starts
        # (checkpoints-stand-before-effects).
        await self._checkpoint()
        self.terminal_id = await self._client.create_terminal(
            self._command,
            args=self._args,
            env=self._env,
            cwd=self.cwd,
            output_byte_limit=MAX_TEXT_BYTES,
        )
        return self

    async def __aexit__(self, *_exc: object) -> None:
        # Shielded, since a cancelled turn must not leave a command behind; bounded, since the
        # client may never answer.
        if self.exit is None:
            await self._in_time(self._stop)
        await self._in_time(self._release)

    async def _stop(self) -> None:
        await self._client.kill_terminal(self.terminal_id)
        await self._fetch()

    async def _release(self) -> None:
        await self._client.release_terminal(self.terminal_id)

    async def _in_time(self, step: Callable[[], Awaitable[None]]) -> None:
        with anyio.move_on_after(LEAVE_S, shield=True):
            try:
                await step()
            except Exception:  # noqa: BLE001 - leaving must not hide why the block was left
                _log.debug("terminal %s was not left in order", self.terminal_id, exc_info=True)

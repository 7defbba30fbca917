"""What a turn needs from the outside, as the turn engine sees it.

The bridge implements these over ACP and the store; tests implement them in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from anyio.abc import TaskGroup

    from acp_server.turns.ids import IdSource
    from acp_server.turns.presets import PermissionRule

PermissionOutcome = Literal[
    "allowed-once", "allowed-always", "rejected", "rejected-always", "cancelled", "unavailable"
]
"""The outcome that `approval/decided` records."""


NoticeSeverity = Literal["info", "warning", "error"]


class GrantScope(NamedTuple):
    """What a standing permission would cover (grants-cover-their-key-only).

    Attributes:
        tool_name: The tool.
        key: The exact command of a shell, or the tool's name: then the whole tool is meant.
    """

    tool_name: str
    key: str


@dataclass(frozen=True, slots=True)
class TerminalExit:
    """How a command ended; both are None if the client does not know."""

    code: int | None = None
    signal: str | None = None


@dataclass(frozen=True, slots=True)
class TerminalOutput:
    """What a terminal has shown so far.

    Attributes:
        text: The output, cut by the client if it was long.
        exit: How the command ended; None while it runs.
    """

    text: str
    exit: TerminalExit | None = None


class ClientPort(Protocol):
    """What a turn may ask of the client of its session.

    A method whose `can_` property is false is never called. Those about files and terminals raise
    `OSError` when the client refuses, answers nonsense, or gives no answer in time.
    """

    @property
    def can_read_files(self) -> bool:
        """Whether the client offers `fs/read_text_file`."""

    @property
    def can_write_files(self) -> bool:
        """Whether the client offers `fs/write_text_file`."""

    @property
    def can_use_terminals(self) -> bool:
        """Whether the client offers `terminal/*`."""

    @property
    def can_elicit_forms(self) -> bool:
        """Whether the client offers `elicitation/create` of mode `form`."""

    @property
    def can_elicit_urls(self) -> bool:
        """Whether the client offers `elicitation/create` of mode `url`."""

    async def request_permission(
        self, call_id: str, grant: GrantScope | None = None
    ) -> PermissionOutcome:
        """Ask the user about an announced call; a client that is gone answers `unavailable`.

        Args:
            call_id: The call; one that was never announced is not asked about.
            grant: What `always` would cover; None offers no `always`.
        """

    async def read_text_file(
        self, path: str, *, line: int | None = None, limit: int | None = None
    ) -> str:
        """Read a file as the editor shows it; `path` is absolute, `line` counts from 1."""

    async def write_text_file(self, path: str, content: str) -> None:
        """Write a file through the editor; `path` is absolute."""

    async def create_terminal(
        self,
        command: str,
        *,
        args: Sequence[str],
        env: Mapping[str, str],
        cwd: str | None,
        output_byte_limit: int,
    ) -> str:
        """Start a command and return the id of its terminal at once."""

    async def terminal_output(self, terminal_id: str) -> TerminalOutput:
        """Return what the terminal has shown so far."""

    async def wait_for_terminal_exit(self, terminal_id: str) -> TerminalExit:
        """Wait until the command has ended, however long it takes."""

    async def kill_terminal(self, terminal_id: str) -> None:
        """End the command; the terminal stays."""

    async def release_terminal(self, terminal_id: str) -> None:
        """End the command if it runs, and give the terminal up."""

    async def elicit_form(self, message: str, schema: Mapping[str, Any]) -> dict[str, Any] | None:
        """Ask the user to fill in a form; None when the user declines or nobody can answer."""

    async def elicit_url(self, message: str, url: str, elicitation_id: str) -> bool:
        """Ask the user to visit a page; whether the user agreed."""

    def complete_elicitation(self, elicitation_id: str) -> None:
        """Say that what a page was visited for is done."""

    def notice(self, severity: NoticeSeverity, title: str, description: str | None) -> None:
        """Show a notice beside the conversation; a client that takes none shows nothing."""


class PermissionRules(Protocol):
    """What the session's preset allows of the calls that want permission."""

    def permission_rule(self, kind: str, *, outside: bool) -> PermissionRule:
        """Return what is to be done about a call of an ACP kind, see `presets`."""


class DurabilityPort(Protocol):
    """The checkpoint of the session's log, and the right to write it."""

    async def hold(self, *, wait: bool = True) -> None:
        """Return when nobody else can write the log, and all that others wrote has been read.

        Rule: looking-takes-no-lock.

        Args:
            wait: Whether to wait a moment for another process.

        Raises:
            CheckpointError: Another process has the session; or it went on with the session, and
                something of ours is not stored.
        """

    async def flush(self) -> None:
        """Return when all that was appended is durable.

        Raises:
            CheckpointError: It is not.
        """


class PacePort(Protocol):
    """Back-pressure of the connection the session's updates go to."""

    @property
    def congested(self) -> bool:
        """Whether updates should wait; read once per update, so it must be cheap."""

    async def room(self) -> None:
        """Return when updates may go on."""


@dataclass(frozen=True, slots=True)
class RunnerPorts:
    """What the turns of a session need from outside."""

    client: ClientPort
    durability: DurabilityPort
    pace: PacePort
    ids: IdSource
    tasks: TaskGroup

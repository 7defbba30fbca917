"""An ACP client for tests, tools and the demo.

It drives an agent over a subprocess (`AcpClient.spawn`) or over a transport of this process
(`AcpClient.over`), keeps every frame, checks each with a `FrameChecker`, and answers the agent's
requests as it is told. Leaving its block closes the agent's stdin, waits for the exit and raises
what was wrong.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from acp_server.testing.checks import FrameChecker, Transcript, fold_transcript
from acp_server.testing.client.channels import ProcessChannel, TransportChannel
from acp_server.testing.client.client_results import (
    CANCELLED_OUTCOME,
    Answer,
    DiskFiles,
    PermissionQueue,
    answer_with,
)
from acp_server.testing.client.connection import NeverAnswer, Params
from acp_server.testing.client.prompts import PromptHandle, PromptResult, Update
from acp_server.testing.client.raw_client import DEFAULT_TIMEOUT_S, RawClient

FILE_CAPABILITIES: Mapping[str, Any] = MappingProxyType(
    {"fs": {"readTextFile": True, "writeTextFile": True}}
)


class SessionUpdate(NamedTuple):
    """One `session/update`."""

    session_id: str
    update: Update


class AcpClient(RawClient):
    """An ACP client; an async context manager, made by `spawn` or `over`.

    Args of both:
        permissions: Option kinds for permission requests, first in first out, `cancelled` when
            exhausted; or a function of the request's params that returns the result, maybe async.
        answers: Functions for further methods of the client, or instead of the built-in ones.
        never_answer: Methods of the client whose requests stay open for ever.
        checker: Sees all frames; by default one that uses the SDK if it is installed.
        timeout: Seconds that each wait may take unless it says otherwise.

    Attributes:
        updates: All updates, in order.
        on_update: Called with each of them, if set.
        never_answer: May be changed at any time.
        checker: The checker of this connection.
    """

    def __init__(
        self,
        channel: ProcessChannel | TransportChannel,
        *,
        permissions: Iterable[str] | Answer = (),
        answers: Mapping[str, Answer] | None = None,
        never_answer: Iterable[str] = (),
        checker: FrameChecker | None = None,
        timeout: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        super().__init__(channel, checker=checker, timeout=timeout)
        self.updates: list[SessionUpdate] = []
        self.on_update: Callable[[str, Update], None] | None = None
        self.never_answer = set(never_answer)
        self._files = DiskFiles()
        self._permissions = permissions if callable(permissions) else PermissionQueue(permissions)
        self._answers: dict[str, Answer] = {
            "session/request_permission": self._permissions,
            **(answers or {}),
        }
        self._by_session: dict[str, list[Update]] = {}
        self._prompts: dict[str, list[PromptHandle]] = {}
        self._last_session = ""

    # What passed.

    @property
    def problems(self) -> list[str]:
        """Permission requests that did not offer the kind to choose."""
        queue = self._permissions
        return queue.problems if isinstance(queue, PermissionQueue) else []

    @property
    def transcript(self) -> Transcript:
        """What has been seen of the session that was opened last."""
        return self.transcript_of(self._last_session)

    def transcript_of(self, session_id: str) -> Transcript:
        """What has been seen of a session; a load begins it anew."""
        return fold_transcript(self.updates_of(session_id))

    def updates_of(self, session_id: str) -> tuple[Update, ...]:
        """Updates of a session; a load begins them anew."""
        return tuple(self._by_session.get(session_id, ()))

    # Methods of the agent.

    async def initialize(
        self, capabilities: Mapping[str, Any] | None = None, *, protocol_version: int = 1
    ) -> dict[str, Any]:
        """Send `initialize`; file capabilities are served from the disk, see `DiskFiles`."""
        capabilities = dict(capabilities or {})
        files = capabilities.get("fs", {})
        if files.get("readTextFile"):
            self._answers.setdefault("fs/read_text_file", self._files.read)
        if files.get("writeTextFile"):
            self._answers.setdefault("fs/write_text_file", self._files.write)
        params = {
            "protocolVersion": protocol_version,
            "clientCapabilities": capabilities,
            "clientInfo": {"name": "acp-server-testing", "version": "1"},
        }
        return await self._call("initialize", params)

    async def authenticate(self, method_id: str) -> dict[str, Any]:
        """Send `authenticate`."""
        return await self._call("authenticate", {"methodId": method_id})

    async def new_session(self, cwd: str | Path, **params: Any) -> str:
        """Open a new session and return its id; `params` are further members, by wire name."""
        members = {"cwd": str(cwd), "mcpServers": [], **params}
        result = await self._call("session/new", members)
        session_id: str = result["sessionId"]
        self.note_session(session_id, cwd)
        return session_id

    async def load_session(self, session_id: str, cwd: str | Path, **params: Any) -> dict[str, Any]:
        """Load a session; its transcript and updates begin anew with the replay."""
        self._by_session[session_id] = []
        members = {"sessionId": session_id, "cwd": str(cwd), "mcpServers": [], **params}
        self.note_session(session_id, cwd)
        return await self._call("session/load", members)

    async def resume_session(
        self, session_id: str, cwd: str | Path, **params: Any
    ) -> dict[str, Any]:
        """Resume a session, which replays nothing."""
        members = {"sessionId": session_id, "cwd": str(cwd), "mcpServers": [], **params}
        self.note_session(session_id, cwd)
        return await self._call("session/resume", members)

    async def list_sessions(
        self, cwd: str | Path | None = None, cursor: str | None = None
    ) -> dict[str, Any]:
        """Return one page of sessions."""
        given = {"cwd": None if cwd is None else str(cwd), "cursor": cursor}
        members = {name: value for name, value in given.items() if value is not None}
        return await self._call("session/list", members)

    async def close_session(self, session_id: str) -> dict[str, Any]:
        """Close a session."""
        return await self._call("session/close", {"sessionId": session_id})

    async def delete_session(self, session_id: str) -> dict[str, Any]:
        """Delete a session."""
        return await self._call("session/delete", {"sessionId": session_id})

    async def set_mode(self, session_id: str, mode_id: str) -> dict[str, Any]:
        """Set the mode."""
        return await self._call("session/set_mode", {"sessionId": session_id, "modeId": mode_id})

    async def set_config_option(
        self, session_id: str, config_id: str, value: str | bool
    ) -> dict[str, Any]:
        """Set a config option."""
        members = {"sessionId": session_id, "configId": config_id, "value": value}
        tag = {"type": "boolean"} if isinstance(value, bool) else {}
        return await self._call("session/set_config_option", {**members, **tag})

    async def prompt(
        self,
        session_id: str,
        prompt: str | Sequence[Mapping[str, Any]],
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> PromptResult:
        """Send a prompt, text or blocks, and wait for the end of its turn."""
        handle = await self.start_prompt(session_id, prompt)
        return await handle.result(self._seconds(timeout))

    async def start_prompt(
        self,
        session_id: str,
        prompt: str | Sequence[Mapping[str, Any]],
        *,
        checked: bool = True,
    ) -> PromptHandle:
        """Send a prompt and return once it is written; it may be wrong unless `checked`."""
        blocks = [{"type": "text", "text": prompt}] if isinstance(prompt, str) else list(prompt)
        members = {"sessionId": session_id, "prompt": blocks}
        handle = PromptHandle(session_id, self._connection.new_request("session/prompt"))
        # Before it is sent: updates may come while the write is still waited for.
        self._prompts.setdefault(session_id, []).append(handle)
        await self._connection.send_request(handle.pending, members, checked=checked)
        return handle

    async def cancel(self, session_id: str) -> None:
        """Send `session/cancel`, and answer the session's open permission requests `cancelled`."""
        await self.notify("session/cancel", {"sessionId": session_id})
        for opened in list(self._connection.open_requests.values()):
            asks = opened.method == "session/request_permission"
            if asks and opened.params.get("sessionId") == session_id:
                opened.settle({"result": CANCELLED_OUTCOME})

    async def cancel_request(self, request_id: int | str) -> None:
        """Send `$/cancel_request`."""
        await self.notify("$/cancel_request", {"requestId": request_id})

    async def wait_for_update(
        self,
        predicate: Callable[[Update], bool],
        timeout: float | None = None,  # noqa: ASYNC109
        *,
        after: int = 0,
    ) -> Update:
        """Return the first update, come or to come, that fits.

        Args:
            predicate: Called once with each update.
            timeout: Seconds.
            after: So many of `updates` are passed over.
        """
        position = after

        def find() -> Update | None:
            nonlocal position
            while position < len(self.updates):
                position += 1
                if predicate(self.updates[position - 1].update):
                    return self.updates[position - 1].update
            return None

        return await self._wait_for(find, "update that fits", timeout)

    async def _call(self, method: str, params: Params) -> dict[str, Any]:
        result: Any = await self.request(method, params, checked=True)
        return result if isinstance(result, dict) else {}

    async def _respond(self, method: str, params: Params) -> Any:
        if method in self.never_answer:
            raise NeverAnswer
        answer = self._answers.get(method)
        if answer is None:
            return await super()._respond(method, params)
        return await answer_with(answer, params)

    def _take_notification(self, method: str, params: Params) -> None:
        if method != "session/update":
            return
        session_id, update = params.get("sessionId"), params.get("update")
        if not isinstance(session_id, str) or not isinstance(update, dict):
            return  # the checker has it
        self.updates.append(SessionUpdate(session_id, update))
        self._by_session.setdefault(session_id, []).append(update)
        for handle in self._prompts.get(session_id, ()):
            if not handle.done:
                handle.updates.append(update)
                break
        if self.on_update is not None:
            self.on_update(session_id, update)

    def note_session(self, session_id: str, cwd: str | Path) -> None:
        """Take a session as the last one opened, and serve its files below `cwd`.

        For sessions that were opened by `request`; the methods of this class do it themselves.
        """
        self._last_session = session_id
        self._files.roots[session_id] = Path(cwd)

"""Four servers on one session, each loading, prompting, closing and dying at random.

`ACP_INTERLEAVINGS` sets how many such steps there are, `ACP_INTERLEAVE_SEED` which.
"""

import os
import random
import sys
from pathlib import Path

import anyio
import pytest

from acp_server.testing import AcpClient, AcpError
from persistence import SessionRepository, open_backend, verify
from session_core import Event, SessionStore

STEPS = int(os.environ.get("ACP_INTERLEAVINGS", "16"))
SEED = int(os.environ.get("ACP_INTERLEAVE_SEED", "0"))
SERVERS = 4

AGENTS = Path(__file__).parents[2] / "fixtures" / "agents" / "worker.py"


class Shared:
    """What all editors know: the session, what was acknowledged, and how many steps are left."""

    def __init__(self, spec: str, cwd: Path) -> None:
        self.spec = spec
        self.cwd = cwd
        self.session_id = ""
        self.steps = STEPS
        self.acknowledged: list[str] = []
        self.refused = 0

    def server(self) -> AcpClient:
        argv = [sys.executable, "-m", "acp_server", "serve", "--agent", f"{AGENTS}:patient"]
        return AcpClient.spawn([*argv, "--store", self.spec], timeout=60)

    async def see_that_it_is_sound(self) -> None:
        backend = open_backend(self.spec)
        try:
            assert (await verify(backend, self.session_id)).problems == ()
        finally:
            await backend.close()


class Editor:
    """A client with one server after another, which does something at random."""

    def __init__(self, shared: Shared, name: str) -> None:
        self._shared = shared
        self._name = name
        self._random = random.Random(f"{SEED} {name}")
        self._prompts = 0

    async def run(self) -> None:
        while self._shared.steps > 0:
            async with self._shared.server() as client:
                await client.initialize()
                await self._use(client)

    async def _use(self, client: AcpClient) -> None:
        """Do one thing after another until the server is killed, or all is done."""
        shared, is_open = self._shared, False
        while shared.steps > 0:
            shared.steps -= 1
            step = self._random.choices(("load", "prompt", "close", "kill"), (3, 6, 1, 1))[0]
            if step == "kill":
                if is_open and self._random.random() < 0.7:
                    await self._begin(client)
                client.kill()
                await client.ended()
                return
            if step == "close":
                await client.close_session(shared.session_id)
                is_open = False
            elif step == "load" or not is_open:
                await client.load_session(shared.session_id, shared.cwd)
                is_open = True
            else:
                is_open = await self._prompt(client)
            await shared.see_that_it_is_sound()

    async def _prompt(self, client: AcpClient) -> bool:
        """Prompt, and return whether the session is still open."""
        self._prompts += 1
        text = f"{self._name}-{self._prompts}"
        handle = await client.start_prompt(self._shared.session_id, text)
        refusal: AcpError | None = None
        try:
            result = await handle.result(60)
        except AcpError as error:
            refusal = error
        if refusal is not None:
            assert refusal.code == -32603, refusal
            assert isinstance(refusal.data, dict), refusal
            assert refusal.data.keys() == {"sessionId", "pid"}
            self._shared.refused += 1
            return "load it again" not in refusal.message
        assert result.stop_reason == "end_turn"
        assert result.text.endswith(f"{text} (ask). ")
        self._shared.acknowledged.append(text)
        return True

    async def _begin(self, client: AcpClient) -> None:
        """Begin a turn that does not end, unless another process has the session."""
        seen = len(client.updates)
        handle = await client.start_prompt(self._shared.session_id, "wait")

        async def watch() -> None:
            await client.wait_for_update(lambda u: u["sessionUpdate"] == "tool_call", after=seen)
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            await handle.pending.answered.wait()
            tasks.cancel_scope.cancel()


def prompts_of(events: list[Event]) -> list[str]:
    return [e.data["content"][0]["text"] for e in events if e.type == "user/message"]


@pytest.mark.rule("taken-lock-catches-up")
@pytest.mark.parametrize("place", ["jsonl:{}/store", "sqlite:{}/store.db"])
async def test_whatever_four_servers_do_no_acknowledged_turn_is_lost(
    place: str, tmp_path: Path
) -> None:
    shared = Shared(place.format(tmp_path), tmp_path)
    async with shared.server() as first:
        await first.initialize()
        shared.session_id = await first.new_session(tmp_path)
        await first.prompt(shared.session_id, "first")
    async with anyio.create_task_group() as tasks:
        for number in range(SERVERS):
            tasks.start_soon(Editor(shared, f"e{number}").run)
    await shared.see_that_it_is_sound()
    async with SessionRepository(open_backend(shared.spec), SessionStore()) as persistence:
        loaded = await persistence.load(shared.session_id)
    events = list(loaded.log)
    prompts = [text for text in prompts_of(events) if text != "wait"]
    assert sorted(prompts) == sorted({"first", *shared.acknowledged, *prompts})
    assert {"first", *shared.acknowledged} <= set(prompts)
    turns = [event.data["turn"] for event in events if event.type == "turn/start"]
    assert turns == list(range(1, len(turns) + 1))

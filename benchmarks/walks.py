"""Follow three pieces of data through the code, and count the way.

Run: python benchmarks/walks.py [--calls]
Prints, for each walk, how many of our functions are called, in how many files, and how often the
way changes from one package to another; `--calls` lists the calls. The walks: one text chunk from
`turn.text` to the outgoing buffer, `session/load` of a log of ten events from the request to its
response, and `session/cancel` to the answer of the prompt that it ends. The server runs in this
process, over memory; the client's own code is not counted. No clock is read, so that two runs of
one version give the same numbers.
"""

from __future__ import annotations

import itertools
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

import anyio

from acp_server import agent
from acp_server.testing import running_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

ROOT = Path(__file__).parent.parent
PRODUCT = ("acp_server", "persistence", "session_core")
NOT_PRODUCT = ("acp_server/testing/", "persistence/testing/")


class Walk(NamedTuple):
    """The calls of one walk, each as `file:function`, in order."""

    name: str
    calls: list[str]

    @property
    def files(self) -> int:
        return len({call.split(":")[0] for call in self.calls})

    @property
    def package_changes(self) -> int:
        packages = [call.rpartition("/")[0] for call in self.calls]
        return sum(a != b for a, b in itertools.pairwise(packages))


class Recorder:
    """Notes the calls of our functions in all threads, while it is on."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._on = False

    def install(self) -> None:
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    @contextmanager
    def recording(self) -> Iterator[None]:
        self.calls.clear()
        self._on = True
        try:
            yield
        finally:
            self._on = False

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        if not self._on or event != "call":
            return
        code = frame.f_code
        path = Path(code.co_filename)
        if not path.is_relative_to(ROOT):
            return
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(PRODUCT) and not name.startswith(NOT_PRODUCT):
            self.calls.append(f"{name}:{code.co_qualname}")


async def chunk_walk(recorder: Recorder) -> Walk:
    @agent
    async def writer(turn):
        await turn.text("the first piece opens step, stream and block")
        with recorder.recording():
            await turn.text("x")

    async with running_server(writer) as client:
        session = await client.new_session("/")
        await client.prompt(session, "go")
    arrival = next(n for n, call in enumerate(recorder.calls) if "/outbox.py:" in call)
    return Walk("one text chunk, turn.text to the outgoing buffer", recorder.calls[: arrival + 1])


async def load_walk(recorder: Recorder) -> Walk:
    @agent
    async def speaker(turn):
        await turn.text("hello")

    with TemporaryDirectory() as folder:
        store = f"jsonl:{folder}/store"
        async with running_server(speaker, store=store) as client:
            session = await client.new_session(folder)
            await client.prompt(session, "go")
        async with running_server(speaker, store=store, series=1) as client:
            # What is imported late must not count.
            await client.new_session(folder)
            with recorder.recording():
                await client.load_session(session, folder)
            return Walk("session/load of ten events, request to response", list(recorder.calls))


async def cancel_walk(recorder: Recorder) -> Walk:
    @agent
    async def sleeper(turn):
        await turn.text("working")
        await anyio.sleep_forever()

    async with running_server(sleeper) as client:
        session = await client.new_session("/")
        handle = await client.start_prompt(session, "go")
        await client.wait_for_update(
            lambda update: update["sessionUpdate"] == "agent_message_chunk"
        )
        with recorder.recording():
            await client.cancel(session)
            await handle.result()
        return Walk("session/cancel to the answer of its prompt", list(recorder.calls))


async def main() -> None:
    recorder = Recorder()
    recorder.install()
    for walk in (chunk_walk, load_walk, cancel_walk):
        found = await walk(recorder)
        print(
            f"{found.name}: {len(found.calls)} calls, {found.files} files, "
            f"{found.package_changes} changes of package"
        )
        if "--calls" in sys.argv:
            print(*(f"    {call}" for call in found.calls), sep="\n")


if __name__ == "__main__":
    anyio.run(main)

"""What a client saw live and what a load replays fold to the same transcript.

Rule: updates-are-what-was-stored.
"""

from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acp_server.agents.agent import Agent
from acp_server.agents.turn import Turn
from acp_server.testing import AcpError, running_server
from acp_server.turns.errors import PermissionDenied
from persistence import open_backend

Action = tuple[Any, ...]

texts = st.text(alphabet=st.characters(codec="utf-8"), max_size=12)
statuses = st.sampled_from(["pending", "in_progress", "completed"])
outputs = st.one_of(
    st.tuples(st.just("text"), texts),
    st.tuples(st.just("thought"), texts),
    st.tuples(st.just("todos"), st.lists(st.tuples(texts, statuses), max_size=3)),
    st.tuples(st.just("title"), texts),
    st.tuples(st.just("context"), texts),
    st.tuples(st.just("record"), texts),
    st.tuples(st.just("usage"), st.integers(0, 9)),
    st.tuples(st.just("notice"), texts),
)
bodies = st.lists(
    st.one_of(
        outputs,
        st.tuples(st.just("result"), texts),
        st.tuples(st.just("blocks"), texts),
        st.tuples(st.just("huge"), st.sampled_from(["a", "é", "\x01"])),
        st.tuples(st.just("progress"), texts),
        st.tuples(st.just("diff"), st.none() | texts, texts),
        st.tuples(st.just("retitle"), texts),
        st.tuples(st.just("locate"), st.integers(1, 9)),
    ),
    max_size=4,
)
calls = st.tuples(
    st.just("call"),
    st.sampled_from(["read", "edit", "execute", "other"]),
    st.sampled_from(["", "ask", "grant", "console"]),
    bodies,
    st.booleans(),
)
ends = st.sampled_from([("return",), ("raise",), ("cancel",), ("nested",), ("parallel",)])
turns = st.tuples(st.lists(st.one_of(outputs, calls), max_size=6), ends)
talks = st.lists(turns, min_size=1, max_size=3)
answers = st.lists(
    st.sampled_from(["allow_once", "allow_always", "reject_once", "reject_always", "cancelled"]),
    max_size=6,
)


async def act(turn: Turn, action: Action, call: Any = None) -> None:
    match action:
        case ("text" | "thought" | "todos" | "title" | "context" | "notice" as method, argument):
            await getattr(turn, method)(argument)
        case ("record", text):
            await turn.record("test/record", {"text": text})
        case ("usage", used):
            await turn.usage(used, 10)
        case ("call", kind, form, body, fails):
            await run_call(turn, kind, form=form, body=body, fails=fails)
        case _:
            act_on_call(call, action)


def act_on_call(call: Any, action: Action) -> None:
    match action:
        case ("result", text):
            call.result(text, raw={"text": text})
        case ("blocks", text):
            call.result([{"type": "foo", "text": text}, {"type": "text", "text": text}, None])
        case ("huge", letter):
            call.result(letter * 100_000)
        case ("progress", text):
            call.update(content=text)
        case ("diff", old, new):
            call.diff("a/b.txt", old, new)
        case ("retitle", text):
            call.update(title=text)
        case ("locate", line):
            call.update(locations=[("x.py", line)])


async def run_call(
    turn: Turn, kind: str, *, form: str, body: Sequence[Action], fails: bool
) -> None:
    try:
        async with turn.tool(
            "tool",
            kind=kind,
            arguments={"n": 1},
            ask=form in ("ask", "grant"),
            grant="tool" if form == "grant" else None,
            console=form == "console",
        ) as call:
            for action in body:
                await act(turn, action, call)
            if form == "console":
                call.console("out\n", exit_code=len(body))
            if fails:
                message = "the body fails"
                raise LookupError(message)
    except (PermissionDenied, LookupError):
        return


class Scripted:
    """Plays one script a turn."""

    def __init__(self, talk: Sequence[tuple[Sequence[Action], Action]]) -> None:
        self._turns = iter(talk)
        self.cancel_now = anyio.Event()

    async def drive(self, turn: Turn) -> None:
        actions, end = next(self._turns)
        for action in actions:
            await act(turn, action)
        match end:
            case ("raise",):
                message = "the agent fails"
                raise ValueError(message)
            case ("cancel",):
                async with turn.tool("wait", kind="execute"):
                    await turn.text("now")
                    self.cancel_now.set()
                    await anyio.sleep_forever()
            case ("nested",):
                async with turn.tool("outer") as outer:
                    await turn.text("inside")
                    async with turn.tool("inner") as inner:
                        inner.result("in")
                    outer.result("out")
            case ("parallel",):
                async with anyio.create_task_group() as tasks:
                    for number in range(3):
                        tasks.start_soon(one_of_many, turn, number)


async def one_of_many(turn: Turn, number: int) -> None:
    async with turn.tool(f"tool {number}") as call:
        await turn.text(f"{number}")
        await anyio.lowlevel.checkpoint()
        call.result(f"{number}")


class Answers:
    """Answers permission requests in order, then allows."""

    def __init__(self, kinds: Sequence[str]) -> None:
        self._kinds = list(kinds)

    def __call__(self, params: Any) -> Any:
        kind = self._kinds.pop(0) if self._kinds else "allow_once"
        if kind == "cancelled":
            return {"outcome": {"outcome": "cancelled"}}
        offered = {option["kind"]: option for option in params["options"]}
        option = offered.get(kind, offered["allow_once"])
        return {"outcome": {"outcome": "selected", "optionId": option["optionId"]}}


async def first_of(*events: anyio.Event) -> None:
    async with anyio.create_task_group() as tasks:

        async def wait(event: anyio.Event) -> None:
            await event.wait()
            tasks.cancel_scope.cancel()

        for event in events:
            tasks.start_soon(wait, event)


async def talk_and_load(talk: Any, permissions: list[str], tmp_path: str) -> tuple[Any, Any]:
    backend = open_backend("memory:")
    script = Scripted(talk)
    async with running_server(
        Agent("scripted", script.drive), store=backend, permissions=Answers(permissions)
    ) as client:
        session_id = await client.new_session(tmp_path)
        for _actions, end in talk:
            script.cancel_now = anyio.Event()
            handle = await client.start_prompt(session_id, "go on")
            if end == ("cancel",):
                await first_of(script.cancel_now, handle.pending.answered)
                await client.cancel(session_id)
            try:
                await handle.result()
            except AcpError:
                assert end == ("raise",)
        live = client.transcript
    async with running_server(Agent("scripted", script.drive), store=backend, series=1) as client:
        await client.load_session(session_id, tmp_path)
        return live, client.transcript


@pytest.mark.rule(
    "body-changes-update-the-card", "updates-are-what-was-stored", "events-project-to-updates"
)
@given(talk=talks, permissions=answers)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_live_and_replayed_frames_fold_to_the_same_transcript(
    talk: Any, permissions: list[str]
) -> None:
    async def run() -> tuple[Any, Any]:
        with anyio.fail_after(20):
            return await talk_and_load(talk, list(permissions), "/tmp/w")

    live, loaded = anyio.run(run)
    assert live.difference(loaded) == ""
    assert live == loaded

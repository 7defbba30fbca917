"""Running scenarios: what makes one fail whatever it expects."""

import json
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from acp_server.testing.client import RecordedFrame, connection
from acp_server.testing.kit.accepting import update
from acp_server.testing.kit.checks import log_faults
from acp_server.testing.kit.live import RecordError, record
from acp_server.testing.kit.recording import Recording
from acp_server.testing.kit.runner import Variant, Verdict, run_scenario
from acp_server.testing.kit.scenario import ScenarioDirectory, load_scenario
from acp_server.testing.kit.workspace import StoredSession
from session_core import EventLogBuilder

MEMORY = Variant("memory", "memory")
OPENING = [{"op": "initialize"}, {"op": "newSession"}]
PROMPT = {"op": "prompt", "text": "hi"}

ASKER = """
from acp_server import agent


@agent
async def asker(turn):
    await turn.text("yes" if await turn.ask("May I?") else "no")
"""


def scenario(
    suite: Path,
    *steps: Mapping[str, Any],
    model: Any = None,
    agent: str | None = None,
    name: str = "one",
    **members: Any,
) -> ScenarioDirectory:
    path = suite / name
    path.mkdir()
    text = {"about": "x", "steps": [*OPENING, *steps], **members}
    if agent is not None:
        (path / "agent.py").write_text(textwrap.dedent(agent), "utf-8")
        text["agent"] = "agent.py:asker"
    if model is not None:
        (path / "model.json").write_text(json.dumps(model), "utf-8")
        # The class of all scripted agents; its pin is of no interest here.
        text["pinsHeader"] = True
    (path / "scenario.json").write_text(json.dumps(text), "utf-8")
    return load_scenario(path)


def passed_after_update(directory: ScenarioDirectory, variant: Variant = MEMORY) -> Verdict:
    first = run_scenario(directory, variant)
    assert first.hard_faults == []
    assert first.snapshot is not None
    update(directory.path, first.snapshot, "all")
    second = run_scenario(directory, variant)
    assert second.passed, second.report()
    return second


def faults_of(directory: ScenarioDirectory, variant: Variant = MEMORY) -> list[str]:
    return list(run_scenario(directory, variant).hard_faults)


def test_a_first_run_has_nothing_to_compare_with_and_says_so(tmp_path: Path) -> None:
    verdict = run_scenario(scenario(tmp_path, PROMPT, model=[{"text": "hello"}]), MEMORY)
    assert not verdict.passed
    assert verdict.sentence() == ("one: nothing is expected yet, there is no frames.expected.jsonl")


@pytest.mark.rule("scenario-runs-on-each-store", "unchanged-run-writes-nothing")
def test_the_same_frames_and_logs_over_memory_and_a_process_on_each_store(tmp_path: Path) -> None:
    directory = scenario(tmp_path, PROMPT, model=[{"text": "hello"}])
    expected = passed_after_update(directory).snapshot
    for variant in (
        Variant("memory", "jsonl"),
        Variant("memory", "sqlite"),
        Variant("subprocess", "jsonl"),
        Variant("subprocess", "sqlite"),
    ):
        verdict = run_scenario(directory, variant)
        assert verdict.passed, verdict.report()
        assert verdict.snapshot == expected


def test_what_differs_is_reported(tmp_path: Path) -> None:
    directory = scenario(tmp_path, PROMPT, model=[{"text": "hello"}])
    passed_after_update(directory)
    (directory.path / "model.json").write_text('[{"text": "goodbye"}]', "utf-8")
    verdict = run_scenario(directory, MEMORY)
    assert verdict.sentence() == (
        "one: frames.expected.jsonl: agent_message_chunk a5, line 5 of 6, has "
        '`params.update.content.text` "goodbye" where "hello" is expected'
    )
    assert [difference.file for difference in verdict.differences] == [
        "frames.expected.jsonl",
        "session.expected.jsonl",
    ]
    assert "<- event 6 assistant/chunk" not in verdict.report()
    assert "<- event 5 assistant/chunk" in verdict.report()


@pytest.mark.rule("live-agent-is-recorded-once")
def test_a_live_agent_is_recorded_and_played_again(tmp_path: Path) -> None:
    live = """
    async def asker(turn):
        async with turn.tool("read", kind="read", arguments={"path": f"{turn.cwd}/a.txt"}) as call:
            call.result(await turn.files.read("a.txt"))
        await turn.text("alive")
    """
    directory = scenario(
        tmp_path,
        {"op": "writeFile", "path": "a.txt", "text": "A"},
        PROMPT,
        agent=live,
        recorded="agent.py:asker",
    )
    text = json.loads((directory.path / "scenario.json").read_text("utf-8"))
    script = {**text, "agent": "script", "pinsHeader": True}
    (directory.path / "scenario.json").write_text(json.dumps(script), "utf-8")
    assert record(load_scenario(directory.path), Variant("memory", "jsonl")) == ["model.jsonl"]
    assert "{{cwd}}/a.txt" in (directory.path / "model.jsonl").read_text("utf-8")
    verdict = passed_after_update(load_scenario(directory.path))
    assert verdict.snapshot is not None
    shown = orjson.dumps(verdict.snapshot.files["frames.expected.jsonl"]).decode()
    assert '"text":"alive"' in shown
    assert '"rawInput":{"path":"{{cwd}}/a.txt"}' in shown


@pytest.mark.rule("live-agent-is-recorded-once")
def test_a_live_agent_that_fails_leaves_no_script(tmp_path: Path) -> None:
    agent = "async def asker(turn): raise ValueError"
    directory = scenario(tmp_path, PROMPT, agent=agent, recorded="agent.py:asker")
    with pytest.raises(RecordError, match="ValueError"):
        record(directory, MEMORY)
    assert not (directory.path / "model.jsonl").exists()


@pytest.mark.rule("recorded-log-is-a-script")
def test_an_expected_log_is_a_script_too(tmp_path: Path) -> None:
    model = [
        {"text": "I look", "calls": [{"name": "read", "arguments": {"path": "a"}}]},
        {"text": "ok"},
    ]
    first = scenario(tmp_path, PROMPT, model=model)
    passed_after_update(first)
    again = scenario(tmp_path, PROMPT, model=[], name="two")
    (again.path / "model.json").unlink()
    log = (first.path / "session.expected.jsonl").read_bytes()
    (again.path / "model.jsonl").write_bytes(log)
    passed_after_update(again)
    played = (again.path / "session.expected.jsonl").read_bytes()
    assert played.replace(b"model.jsonl", b"model.json") == log


@pytest.mark.rule("exhausted-script-is-loud")
def test_an_exhausted_script_fails_even_where_the_error_is_expected(tmp_path: Path) -> None:
    failing = {"op": "promptExpectError", "text": "hi"}
    (fault,) = faults_of(scenario(tmp_path, PROMPT, failing, model=[{"text": "one"}]))
    assert "asked the model once more than the script answers" in fault


@pytest.mark.rule("runs-check-more-than-expected")
def test_a_script_that_is_not_played_to_its_end_fails(tmp_path: Path) -> None:
    directory = scenario(tmp_path, PROMPT, model=[{"text": "one"}, {"text": "two"}])
    assert faults_of(directory) == ["the script has 2 responses, and only 1 were asked for"]


@pytest.mark.rule("exhausted-script-is-loud")
def test_more_sessions_than_scripts_fail(tmp_path: Path) -> None:
    steps = [PROMPT, {"op": "newSession"}, {"op": "promptExpectError", "text": "hi"}]
    (fault,) = faults_of(scenario(tmp_path, *steps, model={"sessions": [[{"text": "one"}]]}))
    assert "asked the model once more" in fault


@pytest.mark.rule("unused-or-missing-answers-fail")
def test_a_permission_kind_that_is_not_offered_fails(tmp_path: Path) -> None:
    directory = scenario(tmp_path, PROMPT, agent=ASKER, permissionAnswers=["allow_always"])
    assert faults_of(directory) == [
        "permission 'allow_always' was not offered, only allow_once, reject_once"
    ]


@pytest.mark.rule("unused-or-missing-answers-fail")
def test_a_permission_without_an_answer_is_cancelled(tmp_path: Path) -> None:
    verdict = passed_after_update(scenario(tmp_path, PROMPT, agent=ASKER))
    assert verdict.snapshot is not None
    assert verdict.snapshot.files["frames.expected.jsonl"][-1]["result"] == {
        "stopReason": "cancelled"
    }


def test_answers_that_nobody_asked_for_fail(tmp_path: Path) -> None:
    answers = ["allow_once", "allow_once", "reject_once"]
    directory = scenario(tmp_path, PROMPT, agent=ASKER, permissionAnswers=answers)
    assert faults_of(directory) == ["permissionAnswers: the last 2 were never asked for"]


@pytest.mark.rule("steps-are-client-actions")
@pytest.mark.parametrize(
    ("step", "fault"),
    [
        ({"op": "promptExpectError", "text": "hi"}, "it succeeded, and should have been refused"),
        (
            {"op": "promptExpectError", "text": "", "code": -1},
            "it was refused with -32602 (Invalid params: prompt: it is empty), not -1",
        ),
        ({"op": "prompt", "text": ""}, "Invalid params: prompt: it is empty (-32602)"),
        ({"op": "loadSession", "session": 2}, "no such session has been opened"),
        ({"op": "awaitPrompt"}, "there is no such prompt to wait for"),
        ({"op": "cancelRequest"}, "there is no such prompt to cancel"),
        ({"op": "expectFile", "path": "a", "text": "x"}, "the file 'a' has the text None, not 'x'"),
        (
            {"op": "waitForFile", "path": "a", "timeoutMs": 30},
            "waited 30 ms for the file 'a' in vain",
        ),
    ],
)
def test_a_step_that_comes_out_otherwise_is_named(
    tmp_path: Path, step: Mapping[str, Any], fault: str
) -> None:
    agent = "async def asker(turn): await turn.text(turn.prompt)"
    assert faults_of(scenario(tmp_path, step, agent=agent)) == [f"step 3 ({step['op']}): {fault}"]


def test_steps_behind_the_end_of_the_server_fail(tmp_path: Path) -> None:
    directory = scenario(tmp_path, {"op": "closeInput"}, PROMPT, model=[])
    assert faults_of(directory)[0] == "step 4 (prompt): no server runs; `restart` starts one"


@pytest.mark.rule("runs-check-more-than-expected")
def test_a_tool_that_is_not_there_fails_unless_that_is_the_point(tmp_path: Path) -> None:
    model = [{"calls": [{"name": "fly", "arguments": {}}]}, {"text": "no"}]
    directory = scenario(tmp_path, PROMPT, model=model)
    (fault,) = faults_of(directory)
    assert "is the result of a tool that is not there" in fault
    meant = scenario(
        tmp_path, PROMPT, model=model, name="two", without={"unknown-tools": "it is the point"}
    )
    passed_after_update(meant)


@pytest.mark.rule("runs-check-more-than-expected")
def test_a_line_on_stdout_that_is_no_json_fails(tmp_path: Path) -> None:
    agent = """
    import os

    # What a careless library does: the wire's own descriptor, found by number.
    async def asker(turn):
        for number in range(3, 30):
            try:
                if os.readlink(f"/proc/self/fd/{number}").startswith("pipe:"):
                    os.write(number, b"oops\\n")
                    return
            except OSError:
                pass
    """
    if not Path("/proc/self/fd").exists():
        pytest.skip("descriptors are looked up in /proc")
    verdict = run_scenario(scenario(tmp_path, PROMPT, agent=agent), Variant("subprocess", "jsonl"))
    assert "no JSON" in verdict.sentence() or "is not JSON" in verdict.sentence()


def recorded(*events: Mapping[str, Any]) -> Recording:
    builder = EventLogBuilder()
    for seq, event in enumerate(events):
        builder.add({"seq": seq, "time": 1, **event})
    recording = Recording(Path("/x"), Path("/"))
    recording.stored.append(StoredSession({"version": 0, "id": "s-1"}, builder.build()))
    return recording


START = {
    "type": "turn/start",
    "data": {"turn": 1, "trigger": {"kind": "message", "source": {"kind": "user"}}},
}


@pytest.mark.rule("runs-check-more-than-expected")
def test_a_log_that_ends_in_an_open_turn_fails_unless_it_was_killed(tmp_path: Path) -> None:
    directory = scenario(tmp_path, agent=ASKER)
    recording = recorded(START)
    assert list(log_faults(directory, recording)) == [
        "the log of session s-1 is not balanced: its last turn is open"
    ]
    recording.killed = True
    assert list(log_faults(directory, recording)) == []


def test_a_call_without_a_result_fails(tmp_path: Path) -> None:
    step = {"turn": 1, "step": 1}
    call = {"callId": "c-1", "name": "n", "arguments": "{}"}
    recording = recorded(
        START,
        {"type": "step/start", "data": step},
        {"type": "tool/call", "data": {**step, **call}},
        {"type": "step/end", "data": step},
        {"type": "turn/end", "data": {"turn": 1, "reason": {"kind": "completed"}}},
    )
    assert list(log_faults(scenario(tmp_path, agent=ASKER), recording)) == [
        "the log of session s-1 is not balanced: the call c-1 of event 2 has no result"
    ]


@pytest.mark.rule("runs-check-more-than-expected")
def test_a_log_that_breaks_the_invariants_fails(tmp_path: Path) -> None:
    directory = scenario(tmp_path, agent=ASKER)
    end = {"type": "turn/end", "data": {"turn": 1, "reason": {"kind": "completed"}}}
    (fault,) = log_faults(directory, recorded(end))
    assert fault.startswith("the log of session s-1 breaks the invariants: ")


@pytest.mark.rule("runs-check-more-than-expected")
def test_frames_that_break_the_protocol_fail_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = {
        "jsonrpc": "2.0",
        "method": "session/update",
        "params": {"sessionId": "nobody", "update": {"sessionUpdate": "plan", "entries": []}},
    }

    def take(
        self: Any, line: bytes, tasks: Any, take: Any = connection.ClientConnection._take
    ) -> None:
        take(self, line, tasks)
        if b"stopReason" in line:
            self.frames.append(RecordedFrame("agent", orjson.dumps(late)))
            self._checker.from_agent(orjson.dumps(late) + b"\n")

    monkeypatch.setattr(connection.ClientConnection, "_take", take)
    (fault,) = faults_of(scenario(tmp_path, PROMPT, model=[{"text": "x"}]))
    assert "breaks `unknown-session`" in fault
    assert "breaks `idle`" in fault

"""The conformance cases themselves: a good agent passes, a bad one fails where it is bad."""

import json
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from acp_server.testing.conformance.case import CaseResult
from acp_server.testing.conformance.catalog import CASES
from acp_server.testing.conformance.harness import Harness
from acp_server.testing.conformance.running import run_case

# What a shell of an agent needs; `answers` says how it answers each method.
BAD_AGENT = """
import json
import sys

MESSAGE = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "OK"}}


def say(**members):
    print(json.dumps({"jsonrpc": "2.0", **members}), flush=True)


def update(session_id):
    say(method="session/update", params={"sessionId": session_id, "update": MESSAGE})


for line in sys.stdin:
    frame = json.loads(line)
    method, params, request = frame.get("method"), frame.get("params", {}), frame.get("id")
    if method == "initialize":
        say(id=request, result={"protocolVersion": params.get("protocolVersion")})
    elif method == "session/new":
        say(id=request, result={"sessionId": "only-one"})
    elif method == "session/prompt":
        say(id=request, result={"stopReason": "end_turn"})
        update("only-one")
    elif request is not None:
        say(id=request, result={})
print("goodbye")
sys.exit(3)
"""


def server(agent: str = "demo") -> str:
    return shlex.join(
        [sys.executable, "-m", "acp_server.testing.serve", "--store", "memory:", "--agent", agent]
    )


async def results(harness: Harness, *ids: str) -> dict[str, CaseResult]:
    return {case.id: await run_case(case, harness) for case in CASES if case.id in ids}


@pytest.mark.rule("conformance-cases-have-stable-ids")
def test_ids_are_unique_and_lead_into_the_specification() -> None:
    assert len({case.id for case in CASES}) == len(CASES) >= 40
    assert all(case.spec.startswith("https://agentclientprotocol.com/protocol/") for case in CASES)


@pytest.mark.rule("conformance-cases-have-stable-ids")
def test_ids_that_others_may_name_stay() -> None:
    stable = {
        "initialize.handshake",
        "session.new.basic",
        "prompt.single_turn",
        "update.termination",
        "cancel.in_flight",
        "cancel.idle",
        "cancel.followup_prompt",
        "prompt.multi_turn",
        "prompt.echo_empty",
        "prompt.unrecognized",
        "prompt.structured_blocks",
        "prompt.background_completion",
        "errors.invalid_params",
        "errors.invalid_params.cwd_null",
        "errors.invalid_prompt_session_type",
        "errors.unknown_session",
        "errors.permission_denied",
        "errors.permission_denied.write",
        "permissions.read.approved",
        "permissions.write.approved",
    }
    assert stable - {case.id for case in CASES} == set()


@pytest.mark.rule("conformance-cases-have-stable-ids")
async def test_our_server_passes() -> None:
    ids = (
        "initialize.version_negotiation",
        "errors.unknown_notification",
        "prompt.single_turn",
        "cancel.in_flight",
        "errors.permission_denied.write",
        "session.resume.silent",
        "session.delete.basic",
        "frames.schema",
        "lifecycle.exit",
    )
    found = await results(Harness(server()), *ids)
    assert {name: (one.outcome, one.reason) for name, one in found.items()} == dict.fromkeys(
        ids, ("passed", "")
    )


@pytest.mark.rule("conformance-cases-have-stable-ids")
async def test_an_agent_fails_where_it_is_bad_and_is_skipped_where_it_offers_nothing(
    tmp_path: Path,
) -> None:
    (tmp_path / "bad.py").write_text(textwrap.dedent(BAD_AGENT), "utf-8")
    harness = Harness(shlex.join([sys.executable, str(tmp_path / "bad.py")]), timeout_s=5)
    expected = {
        "initialize.handshake": ("passed", ""),
        "initialize.version_negotiation": ("failed", "answered with 65535"),
        "errors.unknown_method": ("failed", "was accepted"),
        "errors.invalid_params": ("failed", "was accepted"),
        "prompt.single_turn": ("failed", "no update of the session came"),
        "update.session": ("failed", "two sessions have the same id"),
        "prompt.background_completion": ("failed", "agent_message_chunk while no prompt"),
        "update.termination": ("failed", "breaks `idle`"),
        "frames.json": ("failed", "the line is not JSON"),
        "permissions.options": ("skipped", "did not ask for a permission"),
        "session.load.unknown": ("skipped", "does not advertise loadSession"),
        "session.list.basic": ("skipped", "does not advertise session/list"),
        "session.set_mode.basic": ("skipped", "has no modes"),
        "lifecycle.exit": ("failed", "exited with code 3"),
    }
    found = await results(harness, *expected)
    assert {name: one.outcome for name, one in found.items()} == {
        name: outcome for name, (outcome, _) in expected.items()
    }
    for name, (_, reason) in expected.items():
        assert reason in found[name].reason, name


@pytest.mark.rule("conformance-cases-have-stable-ids")
async def test_an_agent_that_answers_no_prompt_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text("async def silent(turn): raise ValueError\n", "utf-8")
    harness = Harness(server(f"{tmp_path / 'agent.py'}:silent"))
    found = await results(harness, "prompt.single_turn", "prompt.multi_turn", "session.list.basic")
    assert [one.outcome for one in found.values()] == ["failed", "skipped", "skipped"]
    assert "the agent answers no prompt: " in found["session.list.basic"].reason


CANNOT_START = [
    ("/no/such/agent", "No such file"),
    (f"{sys.executable} -c 'raise SystemExit(\"no key\")'", "no key"),
    ("agent 'without an end", "No closing quotation"),
]


@pytest.mark.parametrize(("command", "reason"), CANNOT_START)
@pytest.mark.parametrize(
    "runner",
    [["-m", "acp_server.testing.conformance"], ["-m", "pytest", "-q", "--acp-agent"]],
    ids=["command", "pytest"],
)
def test_an_agent_that_cannot_be_started_is_one_error(
    runner: list[str], command: str, reason: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, *runner, command], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == (4 if "pytest" in runner else 2)
    assert done.stderr.count("cannot be started") == 1
    assert reason in done.stderr
    assert "failed" not in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize("wants_json", [True, False])
def test_the_command_reports_without_pytest(wants_json: bool) -> None:
    command = [sys.executable, "-m", "acp_server.testing.conformance", server()]
    cases = ["--case", "initialize.handshake", "--case", "errors.unknown_method"]
    done = subprocess.run(
        [*command, *cases, *(["--json"] if wants_json else [])],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    if wants_json:
        report = json.loads(done.stdout)
        assert report["summary"] == {"passed": 2, "failed": 0, "skipped": 0}
        assert report["agentInfo"]["name"] == "acp-session-server"
        assert report["cases"][0] == {
            "id": "initialize.handshake",
            "title": "initialize is answered with a numeric version and capabilities",
            "spec": "https://agentclientprotocol.com/protocol/initialization",
            "outcome": "passed",
        }
    else:
        assert done.stdout.splitlines()[-1] == "2 passed, 0 failed, 0 skipped"

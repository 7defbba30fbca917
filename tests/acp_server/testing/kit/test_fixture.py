"""The synchronous fixture `acp`."""

import contextlib
from pathlib import Path

import pytest

from acp_server import PermissionDenied, Turn
from acp_server.testing.errors import AcpClientError, AcpError, FrameViolationError
from acp_server.testing.kit.fixture import AcpFixture
from tests.acp_server.helpers import echo

WORKER = str(Path(__file__).parents[4] / "fixtures" / "agents" / "worker.py")


@pytest.mark.rule("fixture-acp-is-synchronous")
def test_a_turn_is_one_call(acp: AcpFixture) -> None:
    with acp(f"{WORKER}:worker") as run:
        turn = run.prompt("work")
    assert turn.stop_reason == "end_turn"
    assert turn.tools["Read a file"].status == "completed"
    assert [card.title for card in turn.tools] == ["Read a file", "write"]
    assert turn.plan == [("first", "completed"), ("second", "in_progress")]
    assert turn.text.startswith("before 0 ")


def test_permissions_are_answered_by_kind(acp: AcpFixture) -> None:
    with acp(f"{WORKER}:asker", permissions=["reject_once", "allow_once"]) as run:
        assert run.prompt("one").text == "refused"
        assert run.prompt("two").text == "allowed"
        assert [frame["method"] for frame in run.requests] == ["session/request_permission"] * 2


def test_a_killed_server_is_loaded_again_with_what_was_seen(acp: AcpFixture) -> None:
    with acp(f"{WORKER}:worker") as run:
        run.prompt("work")
        run.kill()
        assert run.load().transcript == run.transcript
        run.prompt("again")
        run.stop()
        assert run.load().transcript == run.transcript
        assert run.log[-1]["type"] == "turn/end"


def test_a_running_turn_can_be_cancelled(acp: AcpFixture) -> None:
    with acp(f"{WORKER}:endless") as run:
        running = run.start("go")
        run.wait_for(lambda update: "messageId" in update)
        run.cancel()
        assert running.result().stop_reason == "cancelled"


def test_an_agent_of_the_test_itself_runs_in_its_process(acp: AcpFixture) -> None:
    with acp(echo, workspace={"a/b.txt": "text"}) as run:
        assert run.prompt("hi").text == "hi"
        assert (run.cwd / "a" / "b.txt").read_text("utf-8") == "text"


def test_two_runs_are_independent(acp: AcpFixture) -> None:
    with acp(echo) as one, acp(echo) as other:
        assert (one.prompt("one").text, other.prompt("other").text) == ("one", "other")
        assert one.cwd != other.cwd


def test_an_error_of_the_agent_is_raised(acp: AcpFixture) -> None:
    with acp(f"{WORKER}:failing") as run, pytest.raises(AcpError, match="ValueError"):
        run.prompt("go")


def test_a_tool_that_is_not_there_is_named_with_those_that_are(acp: AcpFixture) -> None:
    with acp(f"{WORKER}:worker") as run, pytest.raises(KeyError, match="Read a file"):
        run.prompt("go").tools["Read"]


@pytest.mark.rule("fixture-acp-is-synchronous")
def test_bad_frames_fail_the_run(acp: AcpFixture) -> None:
    with pytest.raises(FrameViolationError), acp(echo) as run:
        run.client.checker.from_agent(b"no json\n")


def test_the_failure_of_the_test_itself_comes_first(acp: AcpFixture) -> None:
    def fail() -> None:
        with acp(echo) as run:
            run.client.checker.from_agent(b"no json\n")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()


def test_an_unknown_permission_kind_is_refused(acp: AcpFixture) -> None:
    with pytest.raises(ValueError, match="no permission kind 'alow_once'; there are allow_once"):
        acp(echo, permissions=["reject_once", "alow_once"])


def test_a_permission_kind_that_was_not_offered_fails_the_run(acp: AcpFixture) -> None:
    async def ask(turn: Turn) -> None:
        with contextlib.suppress(PermissionDenied):
            async with turn.tool("write", ask=True):
                pass

    def play() -> None:
        with acp(ask, permissions=["reject_always"]) as run:
            run.prompt("go")

    with pytest.raises(AcpClientError, match="permission 'reject_always' was not offered, only"):
        play()

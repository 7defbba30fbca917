"""The synchronous fixture `acp`."""

from pathlib import Path

import pytest

from acp_server.agents.turn import Turn
from acp_server.testing.errors import AcpError, FrameViolationError
from acp_server.testing.kit.fixture import AcpTalks

WORKER = str(Path(__file__).parents[4] / "fixtures" / "agents" / "worker.py")


async def echo(turn: Turn) -> None:
    await turn.text(turn.prompt)


def test_a_turn_is_one_call(acp: AcpTalks) -> None:
    with acp(f"{WORKER}:worker") as talk:
        turn = talk.prompt("work")
    assert turn.stop_reason == "end_turn"
    assert turn.tools["Read a file"].status == "completed"
    assert [card.title for card in turn.tools] == ["Read a file", "write"]
    assert turn.plan == [("first", "completed"), ("second", "in_progress")]
    assert turn.text.startswith("before 0 ")


def test_permissions_are_answered_by_kind(acp: AcpTalks) -> None:
    with acp(f"{WORKER}:asker", permissions=["reject_once", "allow_once"]) as talk:
        assert talk.prompt("one").text == "refused"
        assert talk.prompt("two").text == "allowed"
        assert [frame["method"] for frame in talk.requests] == ["session/request_permission"] * 2


def test_a_killed_server_is_loaded_again_with_what_was_seen(acp: AcpTalks) -> None:
    with acp(f"{WORKER}:worker") as talk:
        talk.prompt("work")
        talk.kill()
        assert talk.load().transcript == talk.transcript
        talk.prompt("again")
        talk.stop()
        assert talk.load().transcript == talk.transcript
        assert talk.log[-1]["type"] == "turn/end"


def test_a_running_turn_can_be_cancelled(acp: AcpTalks) -> None:
    with acp(f"{WORKER}:endless") as talk:
        running = talk.start("go")
        talk.wait_for(lambda update: "messageId" in update)
        talk.cancel()
        assert running.result().stop_reason == "cancelled"


def test_an_agent_of_the_test_itself_runs_in_its_process(acp: AcpTalks) -> None:
    with acp(echo, workspace={"a/b.txt": "text"}) as talk:
        assert talk.prompt("hi").text == "hi"
        assert (talk.cwd / "a" / "b.txt").read_text("utf-8") == "text"


def test_two_talks_have_nothing_to_do_with_each_other(acp: AcpTalks) -> None:
    with acp(echo) as one, acp(echo) as other:
        assert (one.prompt("one").text, other.prompt("other").text) == ("one", "other")
        assert one.cwd != other.cwd


def test_an_error_of_the_agent_is_raised(acp: AcpTalks) -> None:
    with acp(f"{WORKER}:failing") as talk, pytest.raises(AcpError, match="ValueError"):
        talk.prompt("go")


def test_a_tool_that_is_not_there_is_named_with_those_that_are(acp: AcpTalks) -> None:
    with acp(f"{WORKER}:worker") as talk, pytest.raises(KeyError, match="Read a file"):
        talk.prompt("go").tools["Read"]


def test_bad_frames_fail_the_talk(acp: AcpTalks) -> None:
    with pytest.raises(FrameViolationError), acp(echo) as talk:
        talk.client.checker.from_agent(b"no json\n")


def test_the_failure_of_the_test_itself_comes_first(acp: AcpTalks) -> None:
    def fail() -> None:
        with acp(echo) as talk:
            talk.client.checker.from_agent(b"no json\n")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

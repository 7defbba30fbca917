"""The replay tool: what a load of a log shows, and whether that is what a client saw."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from acp_server.testing.checks import fold_transcript
from acp_server.testing.replay import differing, shown_lines, transcript_of_log, updates_of_frames

SCENARIOS = Path(__file__).parents[3] / "fixtures" / "scenarios"
PACKED = SCENARIOS / "packed-chunks" / "packed.jsonl"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "acp_server.testing.replay", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.rule("replay-command-shows-a-load")
def test_it_prints_what_a_load_shows() -> None:
    done = run(str(PACKED), "--json")
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        ["reasoning", "Let me see"],
        ["text", "I look now."],
        ["call", ["call_9", "completed"]],
    ]


@pytest.mark.rule("replay-command-shows-a-load")
def test_frames_that_fold_to_the_same_are_as_expected(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    shutil.copy(SCENARIOS / "todo-plan" / "session.expected.jsonl", log)
    done = run(str(log), "--expect", str(SCENARIOS / "todo-plan" / "frames.expected.jsonl"))
    assert (done.returncode, done.stdout) == (0, "log.jsonl: 4 things shown, all as expected\n")


def test_what_differs_is_said_thing_by_thing(tmp_path: Path) -> None:
    frames = tmp_path / "frames.jsonl"
    text = (SCENARIOS / "todo-plan" / "frames.expected.jsonl").read_text("utf-8")
    frames.write_text(text.replace("write the fix", "break it"), "utf-8")
    done = run(str(SCENARIOS / "todo-plan" / "session.expected.jsonl"), "--expect", str(frames))
    assert done.returncode == 1
    assert done.stdout == (
        '3: expected plan [["in_progress", "read the code"], ["pending", "break it"], '
        '["completed", "run the tests"]], shown plan [["in_progress", "read the code"], '
        '["pending", "write the fix"], ["completed", "run the tests"]]\n'
    )


@pytest.mark.parametrize("text", ["", "{}\n", '{"type":"session","version":0,"id":"a"}\n'])
def test_what_is_no_log_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "log.jsonl").write_text(text, "utf-8")
    done = run(str(tmp_path / "log.jsonl"))
    assert done.returncode == 2
    assert done.stderr.startswith(f"{tmp_path}/log.jsonl")
    assert "Traceback" not in done.stderr


UPDATE_OF_NOTHING = '{"method":"session/update","params":{"sessionId":"s","update":5}}'


@pytest.mark.parametrize(
    "text", ["{", "no json", "[]", '{"method":"session/update","params":5}', UPDATE_OF_NOTHING]
)
def test_what_is_not_a_file_of_frames_is_refused(tmp_path: Path, text: str) -> None:
    frames = tmp_path / "frames.jsonl"
    frames.write_text(f"{{}}\n{text}\n", "utf-8")
    done = run(str(PACKED), "--expect", str(frames))
    assert done.returncode == 2
    assert done.stderr.startswith(f"{frames}:2: is not a frame: ")
    assert "Traceback" not in done.stderr
    absent = run(str(PACKED), "--expect", str(tmp_path / "absent.jsonl"))
    assert absent.returncode == 2
    assert "No such file" in absent.stderr
    assert "Traceback" not in absent.stderr


WHOLE = sorted(
    path.parent
    for path in SCENARIOS.glob("*/session.expected.jsonl")
    # One session, one process: then all its frames are in one file, in the order of its log.
    if not (path.parent / "session.1.expected.jsonl").exists()
    and '"process":2' not in (path.parent / "frames.expected.jsonl").read_text("utf-8")
    and '"loadSession"' not in (path.parent / "scenario.json").read_text("utf-8")
    and "/help" not in (path.parent / "scenario.json").read_text("utf-8")
    and "/title" not in (path.parent / "scenario.json").read_text("utf-8")
)


@pytest.mark.parametrize("directory", WHOLE, ids=[path.name for path in WHOLE])
def test_expected_logs_replay_as_their_expected_frames(directory: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    shutil.copy(directory / "session.expected.jsonl", log)
    frames = updates_of_frames(directory / "frames.expected.jsonl")
    shown = shown_lines(transcript_of_log(log))
    assert list(differing(shown_lines(fold_transcript(frames)), shown)) == []

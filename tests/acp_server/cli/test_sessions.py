"""`acp-server sessions`: what it prints, and how it ends."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from acp_server.cli import main
from persistence.testing.harness import turn_events

ESCAPE = "\x1b[31mred\x1b[0m"


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def values(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delenv("ACP_SERVER_STORE", raising=False)

    def run(*arguments: object) -> Ran:
        try:
            code = main(["sessions", *map(str, arguments)])
        except SystemExit as stop:
            code = int(str(stop.code))
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


@pytest.fixture(params=["jsonl:{}/store", "sqlite:{}/store.db"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(request.param).format(tmp_path)


def log_file(folder: Path, session_id: str, time: int = 2000, text: str = "hello") -> Path:
    header = {"type": "session", "version": 0, "id": session_id, "createdAt": 5, "cwd": "/work"}
    events = [event.to_json() for event in turn_events(1, 0, time=time, text=text)]
    path = folder / f"{session_id}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in [header, *events]))
    return path


@pytest.fixture
def filled(run: Any, store: str, tmp_path: Path) -> str:
    names = {"alpha": 2000, "alps": 4000, "beta": 3000}
    logs = [log_file(tmp_path, name, time, f"{name} {ESCAPE}") for name, time in names.items()]
    assert run("import", "--store", store, *logs).code == 0
    return store


def test_a_store_that_is_not_there_has_no_sessions(run: Any, store: str, tmp_path: Path) -> None:
    assert run("list", "--store", store) == Ran(0, "", "")
    assert run("verify", "--store", store) == Ran(0, "", "")
    assert list(tmp_path.iterdir()) == []


def test_sessions_are_listed_for_people(run: Any, filled: str) -> None:
    ran = run("list", "--store", filled)
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert [line.split()[2] for line in lines] == ["alps", "beta", "alpha"]
    assert lines[0].startswith("1970-01-0")
    assert "1 turns  /work  alps" in lines[0]
    assert "\x1b" not in ran.out


@pytest.mark.rule("bad-entries-hide-no-others")
def test_a_time_that_no_calendar_has_is_listed_as_a_number(
    run: Any, filled: str, tmp_path: Path
) -> None:
    assert run("import", "--store", filled, log_file(tmp_path, "late", 2**53 - 3)).code == 0
    ran = run("list", "--store", filled)
    assert ran.code == 0
    assert ran.out.splitlines()[0].startswith(f"{2**53 - 1}  late")
    assert len(ran.out.splitlines()) == 4


@pytest.mark.rule("bad-entries-hide-no-others")
@pytest.mark.parametrize("place", ["createdAt", "time", "time0"])
def test_an_import_says_that_a_time_is_negative(
    run: Any, store: str, tmp_path: Path, place: str
) -> None:
    log = log_file(tmp_path, "early")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    if place == "time0":
        part = {"turn": 1, "step": 1, "index": 0, "dt": [], "texts": ["x"]}
        lines.append({"type": "text-chunks", "seq0": 3, "time0": -5, "data": part})
    else:
        lines[place == "time"][place] = -5
    log.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    ran = run("import", "--store", store, log)
    assert ran.code == 1
    assert place.rstrip("0") in ran.err
    assert "negative" in ran.err


def test_sessions_are_listed_for_scripts(run: Any, filled: str) -> None:
    values = run("list", "--store", filled, "--json").values
    assert [value["id"] for value in values] == ["alps", "beta", "alpha"]
    assert values[0].pop("revision")
    assert values[0] == {
        "id": "alps",
        "cwd": "/work",
        "createdAt": 5,
        "updatedAt": 4002,
        "title": None,
        "firstPrompt": f"alps {ESCAPE}",
        "events": 3,
        "turns": 1,
    }
    assert len(run("list", "--store", filled, "--json", "--limit", "2").values) == 2
    assert run("list", "--store", filled, "--cwd", "/elsewhere").out == ""


def test_an_import_says_what_it_did(run: Any, store: str, tmp_path: Path) -> None:
    good, bad = log_file(tmp_path, "good"), tmp_path / "bad.jsonl"
    bad.write_text("garbage\n")
    ran = run("import", "--store", store, bad, good)
    assert ran.code == 1
    assert "good  3 events imported" in ran.out
    assert "bad.jsonl' is damaged" in ran.err
    ran = run("import", "--store", store, "--json", bad, good, tmp_path / "nothing")
    assert ran.code == 1
    assert [value.keys() for value in ran.values] == [{"file", "error"}] * 3
    assert "already" in ran.values[1]["error"]
    ran = run("import", "--store", store, "--json", "--id", "other", "--cwd", "/x", good)
    moved = {"id": "other", "events": 3, "torn": None, "problems": [], "file": str(good)}
    assert (ran.code, ran.values) == (0, [moved])


def test_sessions_are_copied_by_id_by_prefix_and_all(run: Any, filled: str, tmp_path: Path) -> None:
    other = f"sqlite:{tmp_path}/other.db"
    ran = run("convert", "--store", filled, "--to", other, "--json", "latest", "b", "alpha")
    assert (ran.code, [value["id"] for value in ran.values]) == (0, ["alps", "beta", "alpha"])
    again = run("convert", "--store", filled, "--to", other, "--all")
    assert again.code == 1
    assert again.err.count("stored already") == 3
    back = f"jsonl:{tmp_path}/back"
    assert run("convert", "--store", other, "--to", back, "--all").code == 0
    listed = [run("list", "--store", spec, "--json").values for spec in (filled, other, back)]
    for values in listed:
        for value in values:
            value.pop("revision")
    assert listed[0] == listed[1] == listed[2]


def test_sound_sessions_are_verified(run: Any, filled: str) -> None:
    ran = run("verify", "--store", filled)
    assert (ran.code, len(ran.out.splitlines())) == (0, 3)
    assert "alps  sound, 3 events" in ran.out
    ran = run("verify", "--store", filled, "--json", "latest")
    sound: dict[str, Any] = {"id": "alps", "events": 3, "problems": [], "notes": []}
    assert (ran.code, ran.values) == (0, [sound])


def test_a_damaged_session_is_named(run: Any, tmp_path: Path) -> None:
    store = f"jsonl:{tmp_path}/store"
    run("import", "--store", store, log_file(tmp_path, "good"), log_file(tmp_path, "bad"))
    (log,) = (tmp_path / "store").glob("*/bad/session.jsonl")
    log.write_bytes(log.read_bytes().replace(b"hello", b"hellO"))
    ran = run("verify", "--store", store)
    assert ran.code == 1
    assert "good  sound" in ran.out
    assert "bad  damaged" in ran.out
    ran = run("verify", "--store", store, "--json", "bad")
    assert [problem["kind"] for problem in ran.values[0]["problems"]] == ["damage"]
    assert run("convert", "--store", store, "--to", "memory:", "bad").code == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["list", "--store", "nosuch:x"], "names no store"),
        (["convert", "--to", "memory:"], "--all"),
        (["convert", "--to", "memory:", "--all", "x"], "--all"),
        (["convert", "x"], "--to"),
        (["import", "--id", "x", "a", "b"], "one file"),
        (["nosuch"], "invalid choice"),
        ([], "required"),
        (["list", "--limit", "x"], "invalid int"),
    ],
)
def test_a_command_that_makes_no_sense_ends_with_two(
    run: Any, tmp_path: Path, arguments: list[str], words: str
) -> None:
    if arguments and "--store" not in arguments:
        arguments = [*arguments, "--store", f"jsonl:{tmp_path}/store"]
    ran = run(*arguments)
    assert ran.code == 2
    assert words in ran.err
    assert "Traceback" not in ran.err


def test_an_ambiguous_prefix_is_a_usage_error_and_an_unknown_id_is_not(
    run: Any, filled: str
) -> None:
    ran = run("verify", "--store", filled, "al")
    assert ran.code == 2
    assert "'alpha', 'alps'" in ran.err
    ran = run("verify", "--store", filled, "nobody")
    assert (ran.code, ran.err) == (1, "acp-server: session 'nobody' is not stored\n")


def test_the_latest_of_none_is_not_there(run: Any, store: str) -> None:
    ran = run("verify", "--store", store, "latest")
    assert (ran.code, ran.err) == (1, "acp-server: session 'latest' is not stored\n")


def test_a_foreign_store_is_an_error_in_one_sentence(run: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a store\n" * 100)
    for scheme in ("jsonl", "sqlite"):
        ran = run("list", "--store", f"{scheme}:{tmp_path}/file")
        assert ran.code == 1
        assert ran.err.startswith("acp-server: ")
        assert len(ran.err.splitlines()) == 1


def test_the_environment_names_the_store(
    run: Any, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACP_SERVER_STORE", filled)
    assert len(run("list", "--json").values) == 3


def test_a_reader_that_goes_away_gets_no_traceback(tmp_path: Path, run: Any) -> None:
    store = f"jsonl:{tmp_path}/store"
    log = log_file(tmp_path, "s", text="x" * 150)
    for k in range(12):
        run("import", "--store", store, "--id", f"{k}" + "i" * 150, log)
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        command = [sys.executable, "-m", "acp_server", "sessions", "list", "--store", store]
        ran = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, text=True, timeout=20)
    assert (ran.returncode, ran.stderr) == (1, "")

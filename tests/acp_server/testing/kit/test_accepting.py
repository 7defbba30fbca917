"""Writing expected files: what each mode writes, and that CI writes nothing."""

from pathlib import Path

import pytest

from acp_server.testing.kit.accepting import accept, leave_new, update, writing_is_allowed
from acp_server.testing.kit.snapshot import Snapshot, read_expected, write_lines

SAME = [{"jsonrpc": "2.0", "id": 1, "result": {}}]
OLD = [{"type": "session", "id": "old"}]
NEW = [{"type": "session", "id": "new"}]
RUN = Snapshot(
    {
        "frames.expected.jsonl": SAME,
        "session.expected.jsonl": NEW,
        "session.1.expected.jsonl": NEW,
    }
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    write_lines(tmp_path / "frames.expected.jsonl", SAME)
    write_lines(tmp_path / "session.expected.jsonl", OLD)
    write_lines(tmp_path / "session.2.expected.jsonl", OLD)
    return tmp_path


@pytest.mark.rule("failed-run-leaves-new-files")
def test_new_writes_what_is_missing_and_leaves_what_differs(directory: Path) -> None:
    assert update(directory, RUN, "new") == ["session.1.expected.jsonl"]
    assert read_expected(directory)["session.expected.jsonl"] == OLD


@pytest.mark.rule("failed-run-leaves-new-files")
def test_changed_writes_what_differs_too(directory: Path) -> None:
    written = update(directory, RUN, "changed")
    assert written == ["session.expected.jsonl", "session.1.expected.jsonl"]
    assert read_expected(directory)["session.2.expected.jsonl"] == OLD


@pytest.mark.rule("failed-run-leaves-new-files")
def test_all_removes_what_the_run_does_not_give(directory: Path) -> None:
    update(directory, RUN, "all")
    assert read_expected(directory) == RUN.files


@pytest.mark.rule("unchanged-run-writes-nothing")
def test_an_unchanged_run_touches_no_file(directory: Path) -> None:
    update(directory, RUN, "all")
    before = {path: path.stat() for path in directory.iterdir()}
    assert update(directory, RUN, "all") == []
    assert {path: path.stat() for path in directory.iterdir()} == before


@pytest.mark.rule("failed-run-leaves-new-files")
def test_a_failed_run_leaves_only_what_differs_beside(directory: Path) -> None:
    left = [path.name for path in leave_new(directory, RUN)]
    assert sorted(left) == [
        "session.1.expected.jsonl.new",
        "session.2.expected.jsonl.new",
        "session.expected.jsonl.new",
    ]
    assert read_expected(directory)["session.expected.jsonl"] == OLD


@pytest.mark.rule("failed-run-leaves-new-files")
def test_accepting_makes_them_the_expected_ones(directory: Path) -> None:
    leave_new(directory, RUN)
    assert accept(directory) == [
        "session.1.expected.jsonl",
        "session.2.expected.jsonl",
        "session.expected.jsonl",
    ]
    assert read_expected(directory) == RUN.files
    assert not list(directory.glob("*.new"))
    assert accept(directory) == []


def test_an_update_forgets_what_a_failed_run_left(directory: Path) -> None:
    leave_new(directory, RUN)
    update(directory, RUN, "all")
    assert not list(directory.glob("*.new"))


@pytest.mark.rule("unchanged-run-writes-nothing")
@pytest.mark.parametrize(
    ("value", "allowed"),
    [
        (None, True),
        ("", True),
        ("0", True),
        ("false", True),
        ("1", False),
        ("true", False),
        ("yes", False),
    ],
)
def test_nothing_may_be_written_while_ci_is_set(value: str | None, allowed: bool) -> None:
    assert writing_is_allowed({} if value is None else {"CI": value}) is allowed

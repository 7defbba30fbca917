"""Guards of scenario directories: what lies around is found, not passed over.

Rule: nothing-lies-around-in-suites.
"""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import orjson

from acp_server.testing.client import RecordedFrame
from acp_server.testing.kit.normalize import (
    Identities,
    ImpureOutputError,
    normalize_frame_lines,
    normalize_log,
)
from acp_server.testing.kit.recording import Recording
from acp_server.testing.kit.scenario import (
    HEADER_FILE,
    MODEL_FILES,
    OVERRIDE_FILE,
    SCENARIO_FILE,
    WORKSPACE,
    ScenarioDirectory,
    ScenarioFault,
    load_scenario,
)
from acp_server.testing.kit.snapshot import (
    EXPECTED_PATTERN,
    FRAMES_FILE,
    NEW_SUFFIX,
    header_texts_of,
    read_expected,
    read_lines,
)
from acp_server.testing.kit.steps import LoadSession, Restart, ResumeSession

_SESSION_FILE = re.compile(r"session(?:\.(\d+))?\.expected\.jsonl")
_CHILD_FILE = re.compile(r"(?P<stem>.+)\.(?P<number>\d+)\.jsonl")
_NO_SCENARIO = ("__pycache__",)


def suite_faults(suite: Path) -> Iterator[str]:
    """Yield what is wrong with a directory of scenarios as a whole, one sentence each."""
    pins: Counter[str] = Counter()
    classes: set[str] = set()
    for path in sorted(suite.iterdir()):
        if not path.is_dir() or path.name.startswith(".") or path.name in _NO_SCENARIO:
            continue
        if not (path / SCENARIO_FILE).is_file():
            yield f"{path.name} has no {SCENARIO_FILE}"
            continue
        try:
            directory = load_scenario(path)
            yield from directory_faults(directory)
            if any(read_request_headers(path)):
                classes.add(directory.scenario.header_class)
        except ScenarioFault as error:
            yield str(error)
            continue
        pins[directory.scenario.header_class] += directory.scenario.pins_header
    for name in sorted(classes | {name for name, count in pins.items() if count}):
        if pins[name] != 1:
            yield f"header class {name!r} is pinned by {pins[name]} scenarios, not by one"


def directory_faults(directory: ScenarioDirectory) -> Iterator[str]:
    """Yield what is wrong with the files of one scenario, one sentence each."""
    scenario, path = directory.scenario, directory.path
    # What a failed run leaves beside is no fault of the directory.
    files = {file.name for file in path.iterdir() if file.is_file() and file.suffix != NEW_SUFFIX}
    for name in sorted(files - set(_known_files(directory))):
        yield f"{directory.name}: nothing names the file {name}"
    model = directory.model_file
    override = OVERRIDE_FILE if model is None else f"{model.stem}.override.json"
    for name, declared in ((override, scenario.overridden), (HEADER_FILE, scenario.pins_header)):
        if declared and name not in files:
            yield f"{directory.name}: {name} is declared and not there"
        elif not declared and name in files:
            yield f"{directory.name}: {name} is there and not declared"
    if FRAMES_FILE not in files:
        yield f"{directory.name}: there is no {FRAMES_FILE}"
    numbers = sorted(
        int(match[1] or 0) for name in files if (match := _SESSION_FILE.fullmatch(name))
    )
    if numbers != list(range(len(numbers))):
        yield f"{directory.name}: the expected logs are numbered {numbers}, which leaves gaps"
    if scenario.log != "nothing" and not numbers and directory.model_file is not None:
        yield f"{directory.name}: the model answers, and no log is expected"
    yield from _unscrubbed(directory)


def header_faults(directory: ScenarioDirectory, recording: Recording) -> Iterator[str]:
    """Compare the request headers of a run with the ones that are pinned for their class."""
    scenario = directory.scenario
    found = header_texts_of(recording)
    if scenario.pins_header or not found:
        return
    for path in sorted(directory.path.parent.glob(f"*/{HEADER_FILE}")):
        pin = load_scenario(path.parent).scenario
        if pin.pins_header and pin.header_class == scenario.header_class:
            pinned = [orjson.dumps(line) for line in read_lines(path)]
            if any(orjson.dumps(texts) not in pinned for texts in found):
                yield (
                    "system prompt or tools of a request are not those that "
                    f"{path.parent.name} pins for header class {scenario.header_class!r}"
                )
            return
    yield f"no scenario pins the header class {scenario.header_class!r}"


def read_request_headers(path: Path) -> Iterator[str]:
    """Yield the reason of each request header in the expected logs of a scenario."""
    for name, lines in read_expected(path).items():
        if _SESSION_FILE.fullmatch(name):
            for line in lines:
                if line.get("type") == "request/header":
                    yield line["data"]["reason"]


def _known_files(directory: ScenarioDirectory) -> Iterator[str]:
    """Yield the names of files that something names, and of those that are recognised."""
    scenario, path = directory.scenario, directory.path
    yield SCENARIO_FILE
    yield "README.md"
    yield from (given.log for given in scenario.given)
    specs = [scenario.agent]
    for step in scenario.steps:
        if isinstance(step, LoadSession | ResumeSession) and isinstance(step.session, str):
            yield step.session
        if isinstance(step, Restart) and step.agent is not None:
            specs.append(step.agent)
    for spec in specs:
        yield from _files_of_agent(spec, path)
    yield from (file.name for file in path.glob(EXPECTED_PATTERN) if file.suffix != NEW_SUFFIX)


def _files_of_agent(spec: str, path: Path) -> Iterator[str]:
    if spec == "script" or spec.startswith("script:"):
        names = MODEL_FILES if spec == "script" else (spec.removeprefix("script:"),)
        for name in names:
            yield name
            yield f"{Path(name).stem}.override.json"
            stem = Path(name).stem
            children = (_CHILD_FILE.fullmatch(file.name) for file in path.glob("*.jsonl"))
            yield from (match[0] for match in children if match and match["stem"] == stem)
    elif ".py:" in spec:
        yield spec.rpartition(":")[0]


def _unscrubbed(directory: ScenarioDirectory) -> Iterator[str]:
    """Find expected files that hold what differs from run to run."""
    path = directory.path / FRAMES_FILE
    if not path.is_file():
        return
    lines = read_lines(path)
    raw = [RecordedFrame("agent", orjson.dumps(line)).data for line in lines]
    try:
        normalized = normalize_frame_lines(raw, Identities())
    except ImpureOutputError as error:
        yield f"{directory.name}: {error}"
        return
    if not directory.scenario.by_session and normalized != lines:
        yield f"{directory.name}: {FRAMES_FILE} is not normalized; was it edited by hand?"
    for name, log in read_expected(directory.path).items():
        if _SESSION_FILE.fullmatch(name) and normalize_log(log[0], log[1:], Identities()) != log:
            yield f"{directory.name}: {name} is not normalized; was it edited by hand?"


__all__ = ["WORKSPACE", "directory_faults", "header_faults", "read_request_headers", "suite_faults"]

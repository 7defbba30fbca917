"""The expected files of a scenario: what a run makes of them, and what is on disk."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import orjson

from acp_server.testing.kit.normalize import (
    Identities,
    Places,
    normalize_frames,
    normalize_log,
    request_header_texts,
)
from acp_server.testing.kit.recording import Recording
from acp_server.testing.kit.scenario import HEADER_FILE, ScenarioDirectory, ScenarioFault

Json: TypeAlias = dict[str, Any]

FRAMES_FILE = "frames.expected.jsonl"
EXPECTED_PATTERN = "*.expected.json*"
NEW_SUFFIX = ".new"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Lines by file name, frames first.

    Attributes:
        files: The expected files.
        logs: The normalized logs among them, for reports.
    """

    files: Mapping[str, list[Json]]
    logs: tuple[list[Json], ...] = ()


def log_file(position: int) -> str:
    """Return the name of the n-th session's expected log, from 0."""
    return f"session{f'.{position}' if position else ''}.expected.jsonl"


def snapshot_of(directory: ScenarioDirectory, recording: Recording) -> Snapshot:
    """Return what a run would have the expected files be.

    Raises:
        ImpureOutputError: The agent wrote a line that is no JSON object.
    """
    scenario = directory.scenario
    identities = Identities(Places(recording.cwd, recording.root))
    frames = normalize_frames(recording.conversations, identities)
    logs: list[list[Json]] = []
    header_texts: list[Json] = []
    for stored in recording.stored:
        events = [orjson.loads(orjson.dumps(event.to_json())) for event in stored.events]
        records = stored.records if scenario.log == "stored" else events
        logs.append(normalize_log(stored.header, records, identities))
        header_texts += request_header_texts(events)
    files = {FRAMES_FILE: _session_by_session(frames) if scenario.by_session else frames}
    if scenario.log != "nothing":
        files |= {log_file(position): log for position, log in enumerate(logs)}
    if scenario.pins_header:
        files[HEADER_FILE] = [identities.scrub(texts) for texts in _distinct(header_texts)]
    return Snapshot(files, tuple(logs))


def read_expected(directory: Path) -> dict[str, list[Json]]:
    """Return the expected files of a scenario, those of the frames first.

    Raises:
        ScenarioFault: A line is no JSON object.
    """
    paths = sorted(directory.glob(EXPECTED_PATTERN), key=lambda path: path.name != FRAMES_FILE)
    return {path.name: read_lines(path) for path in paths if path.suffix != NEW_SUFFIX}


def read_lines(path: Path) -> list[Json]:
    """Return the objects of a file, one a line.

    Raises:
        ScenarioFault: A line is no JSON object.
    """
    lines: list[Json] = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise ScenarioFault(path, number, f"is no JSON: {error}") from error
        if not isinstance(value, dict):
            raise ScenarioFault(path, number, "is no JSON object")
        lines.append(value)
    return lines


def write_lines(path: Path, lines: list[Json]) -> None:
    """Write a file whole or not at all."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    temporary.replace(path)


def header_texts_of(recording: Recording) -> list[Json]:
    """Return the distinct system prompts, tools and prefixes of a run's request headers."""
    identities = Identities(Places(recording.cwd, recording.root))
    found: list[Json] = []
    for stored in recording.stored:
        given = recording.given.get(stored.header["id"], 0)
        events = [orjson.loads(orjson.dumps(e.to_json())) for e in stored.events[given:]]
        found += request_header_texts(events)
    return [identities.scrub(texts) for texts in _distinct(found)]


def _distinct(values: list[Json]) -> list[Json]:
    return list({orjson.dumps(value): value for value in values}.values())


def _session_by_session(frames: list[Json]) -> list[Json]:
    """Sort frames by session, each session's in their order; what has none stays in front.

    Responses name no session: they stand with the updates before them in no fixed order, so all of
    them come last, by their ids.
    """

    def place(frame: Json) -> tuple[int, Any]:
        params = frame.get("params")
        session = params.get("sessionId") if isinstance(params, dict) else None
        if isinstance(session, str):
            return 1, session
        return (2, str(frame.get("id")).zfill(6)) if "id" in frame else (0, "")

    return sorted(frames, key=place)

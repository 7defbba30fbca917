"""`python -m acp_server.testing.replay LOG [--expect FRAMES]`: what a load of a log shows.

Puts a session log, packed or not, into a fresh store, loads it through the server and prints the
transcript. With `--expect` the frames of a file, as a client has seen them live, must fold to the
same: text and thoughts, plans, titles, and tool calls with their final status, in order.

In LOG `{{cwd}}` may stand for the working directory, `{{sessionId}}` and `{{session.N}}` for ids.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import anyio
import orjson

from acp_server.agents.agent import Agent
from acp_server.agents.turn import Turn
from acp_server.testing.checks import Card, Message, Plan, Transcript, fold_transcript
from acp_server.testing.errors import AcpClientError
from acp_server.testing.kit.launchers import opened_server
from acp_server.testing.kit.scenario import ScenarioFault
from acp_server.testing.kit.workspace import Workspace

Line: TypeAlias = tuple[str, Any]
"""One thing that was shown: its sort and what it says."""

# A load shows why a prompt was blocked; frames of other servers do not (markers-have-exact-texts).
_BLOCKED = "\n\n[Prompt blocked: "


def main() -> int:
    """Replay and compare; return 0, 1 if the frames differ, 2 if a file cannot be read."""
    parser = argparse.ArgumentParser(prog="acp_server.testing.replay", description=_first_line())
    parser.add_argument("log", type=Path, metavar="LOG", help="a session log, JSON lines")
    parser.add_argument("--expect", type=Path, metavar="FRAMES", help="frames of a client")
    parser.add_argument("--json", action="store_true", help="print one JSON array a line")
    options = parser.parse_args()
    try:
        shown = transcript_of_log(options.log)
    except (AcpClientError, ScenarioFault, OSError) as error:
        sys.stderr.write(f"{options.log}: {error}\n")
        return 2
    lines = list(shown_lines(shown))
    if options.expect is None:
        for line in lines:
            sys.stdout.write((json.dumps(line) if options.json else _readable(line)) + "\n")
        return 0
    try:
        expected = list(shown_lines(fold_transcript(updates_of_frames(options.expect))))
    except (ScenarioFault, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    faults = list(differing(expected, lines))
    for fault in faults:
        sys.stdout.write(f"{fault}\n")
    if not faults:
        sys.stdout.write(f"{options.log.name}: {len(lines)} things shown, all as expected\n")
    return 1 if faults else 0


def transcript_of_log(log: Path) -> Transcript:
    """Return what a load of a stored log shows.

    Raises:
        ScenarioFault: It is no session log.
        AcpError: The server refuses to load it.
    """
    with TemporaryDirectory(prefix="acp-replay-") as root:
        return anyio.run(_load, log, Path(root))


def updates_of_frames(path: Path) -> list[Mapping[str, Any]]:
    """Return the updates of the session that a file of frames speaks of first.

    Raises:
        ScenarioFault: A line is not a frame.
    """
    updates: list[tuple[str, Mapping[str, Any]]] = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            frame = orjson.loads(line)
            if frame.get("method") == "session/update":
                params = frame["params"]
                updates.append((params["sessionId"], params["update"]))
                fold_transcript([params["update"]])  # fails here, where its line is known
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            raise ScenarioFault(path, number, f"is not a frame: {error}") from error
    return [update for session_id, update in updates if session_id == updates[0][0]]


def shown_lines(transcript: Transcript) -> Iterator[Line]:
    """Yield what a transcript shows, texts that follow each other joined."""
    singles = (line for entry in transcript.entries if (line := _line(entry)) is not None)
    for sort, group in groupby(singles, key=lambda line: line[0]):
        if sort in ("text", "reasoning"):
            yield sort, "".join(said for _, said in group)
        else:
            yield from group


def differing(expected: Iterable[Line], found: Iterable[Line]) -> Iterator[str]:
    """Yield one sentence for each place in which two transcripts differ."""
    left, right = list(expected), list(found)
    for position in range(max(len(left), len(right))):
        one = left[position] if position < len(left) else None
        other = right[position] if position < len(right) else None
        if one != other:
            yield f"{position + 1}: expected {_readable(one)}, shown {_readable(other)}"


async def _load(log: Path, root: Path) -> Transcript:
    workspace = Workspace(log.parent, root, "jsonl")
    session_id = await workspace.put(log.name)
    header = orjson.loads((await anyio.Path(log).read_bytes()).partition(b"\n")[0])
    cwd = str(header.get("cwd", "")).replace("{{cwd}}", str(workspace.cwd))
    agent = Agent(name="nobody", drive=_no_turn)
    async with opened_server("memory", workspace, agent, 0, {}) as client:
        await client.initialize({})
        await client.load_session(session_id, cwd)
        return client.transcript_of(session_id)


async def _no_turn(_turn: Turn) -> None:
    """Drive nothing: the server only loads."""


def _line(entry: object) -> Line | None:
    match entry:
        case Message(kind=kind, text=text):
            return None if text.startswith(_BLOCKED) else (kind, text)
        case Card():
            return "call", [entry.call_id, entry.status]
        case Plan(entries=entries):
            return "plan", [[item["status"], item["content"]] for item in entries]
        case _:
            return "title", getattr(entry, "title", None)


def _readable(line: Line | None) -> str:
    if line is None:
        return "nothing"
    text = json.dumps(line[1], ensure_ascii=False)
    return f"{line[0]} {text if len(text) < 300 else text[:300] + '…'}"


def _first_line() -> str:
    return (__doc__ or "").splitlines()[0]


if __name__ == "__main__":
    sys.exit(main())

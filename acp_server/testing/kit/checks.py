"""What every scenario checks by itself, whatever it expects.

Frames are judged while they pass, by the `FrameChecker`. Here are the logs: that they keep the
invariants, that nothing in them is left open, that the script was played as it is, and that a load
shows again what the client has seen (updates-are-what-was-stored).
"""

from collections.abc import Iterable, Iterator

from acp_server.agents.agent import Agent
from acp_server.agents.turn import Turn
from acp_server.models.script_file import ScriptError, read_script
from acp_server.testing.checks import Message, Transcript, fold_transcript
from acp_server.testing.errors import AcpClientError
from acp_server.testing.kit import steps
from acp_server.testing.kit.launchers import opened_server
from acp_server.testing.kit.recording import Recording, Update
from acp_server.testing.kit.scenario import ScenarioDirectory
from acp_server.testing.kit.workspace import StoredSession, Workspace
from session_core import InvariantViolationError, is_turn_open, trace_of

_LATE_SERIES = 90  # ids and times of the checking server: behind those of any restart


def log_faults(directory: ScenarioDirectory, recording: Recording) -> Iterator[str]:
    """Yield what is wrong with the stored logs of a run, one sentence each."""
    without = directory.scenario.without
    for stored in recording.stored:
        name = f"the log of session {stored.header['id']}"
        if stored.damage is not None:
            if "damage" not in without:
                yield f"{name} cannot be read: {stored.damage}"
            continue
        try:
            trace_of(stored.log)
        except InvariantViolationError as error:
            yield f"{name} breaks the invariants: {error}"
        if "balance" not in without and not recording.killed:
            yield from (f"{name} is not balanced: {fault}" for fault in _open_ends(stored))
        yield from (f"{name}: {fault}" for fault in _script_ends(stored))
        if "unknown-tools" not in without:
            yield from (f"{name}: {fault}" for fault in _unknown_tools(stored))
    if "model-rest" not in without:
        yield from _unplayed(directory, recording)


async def fold_faults(
    directory: ScenarioDirectory, recording: Recording, workspace: Workspace
) -> list[str]:
    """Load each session that was seen whole and compare what is replayed with what was seen.

    To be called after the logs were read: a load may repair them.
    """
    if "fold" in directory.scenario.without:
        return []
    faults = [
        fault for load in recording.loads for fault in _fold_fault(load.session_id, *load[1:])
    ]
    stored = {one.header["id"]: one.header for one in recording.stored if one.damage is None}
    seen = {name: updates for name, updates in recording.views.items() if name in stored}
    if not seen:
        return faults
    nobody = Agent(name="nobody", drive=_no_turn)
    try:
        async with opened_server("memory", workspace, nobody, _LATE_SERIES, {}) as client:
            await client.initialize(recording.capabilities)
            for session_id, updates in seen.items():
                await client.load_session(session_id, stored[session_id]["cwd"])
                faults += _fold_fault(session_id, updates, client.updates_of(session_id))
    except AcpClientError as error:
        faults.append(f"a load of what was stored fails: {error}")
    return faults


def _fold_fault(
    session_id: str, seen: Iterable[Update], replayed: Iterable[Update]
) -> Iterator[str]:
    live, loaded = _stored_part(fold_transcript(seen)), fold_transcript(replayed)
    if live != loaded:
        yield (
            f"a load of session {session_id} shows something else than was seen:\n"
            f"{live.difference(loaded)}"
        )


def _stored_part(transcript: Transcript) -> Transcript:
    """Leave out the output of commands, which is not stored and has no message id.

    Rules: updates-are-what-was-stored, commands-leave-no-log.
    """
    entries = (
        entry
        for entry in transcript.entries
        if not isinstance(entry, Message) or entry.message_id is not None
    )
    return Transcript(tuple(entries), transcript.user)


async def _no_turn(_turn: Turn) -> None:
    """Drive nothing: the checking server only loads."""


def _open_ends(stored: StoredSession) -> Iterator[str]:
    if is_turn_open(stored.log):
        yield "its last turn is open"
    called = {e.data["callId"]: e.seq for e in stored.events if e.type == "tool/call"}
    answered = {e.data["callId"] for e in stored.events if e.type == "tool/result"}
    for call_id, seq in called.items():
        if call_id not in answered:
            yield f"the call {call_id} of event {seq} has no result"


def _script_ends(stored: StoredSession) -> Iterator[str]:
    """Find turns that failed because the script does not fit: no scenario is about that."""
    for event in stored.events:
        reason = event.data["reason"] if event.type == "turn/end" else {}
        if f"({ScriptError.__name__})" in str(reason.get("message", "")):
            yield f"turn {event.data['turn']} asked the model once more than the script answers"


def _unknown_tools(stored: StoredSession) -> Iterator[str]:
    for event in stored.events:
        if event.type == "tool/result" and event.data["isError"]:
            text = "".join(block.get("text", "") for block in event.data["content"])
            if "there is no tool named" in text:
                yield f"event {event.seq} is the result of a tool that is not there"


def _unplayed(directory: ScenarioDirectory, recording: Recording) -> Iterator[str]:
    restarts = any(isinstance(step, steps.Restart) for step in directory.scenario.steps)
    if directory.model_file is None or restarts or recording.killed:
        return  # a script begins anew in each process
    asked = 0
    for stored in recording.stored:
        given = recording.given.get(stored.header["id"], 0)
        asked += sum(event.type == "step/start" for event in stored.events[given:])
    length = read_script(directory.model_file).length
    if asked < length:
        yield f"the script has {length} responses, and only {asked} were asked for"

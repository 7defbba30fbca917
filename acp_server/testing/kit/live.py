"""`--acp-record`: runs the live agent of a scenario and keeps its log as the model script.

What it costs money or luck to get is got once; from then on the scenario plays it again.
"""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import orjson

from acp_server.testing.kit.driver import play
from acp_server.testing.kit.recording import Recording
from acp_server.testing.kit.runner import Variant
from acp_server.testing.kit.scenario import ScenarioDirectory
from acp_server.testing.kit.workspace import Workspace

MODEL_STEM = "model"


class RecordError(Exception):
    """A live run that is no script."""


def record(directory: ScenarioDirectory, variant: Variant) -> list[str]:
    """Run a scenario with its live agent and write its logs as `model.jsonl`, `model.1.jsonl`, ….

    Returns:
        The names of the files.

    Raises:
        RecordError: The run went wrong, or it stored nothing.
        ScenarioFault: The scenario cannot be played as it is written.
    """
    with TemporaryDirectory(prefix="acp-record-") as root:
        recording = anyio.run(_play, directory, variant, Path(root))
    if recording.faults:
        raise RecordError(recording.faults[0])
    if not recording.stored:
        message = "the live agent left no log"
        raise RecordError(message)
    names: list[str] = []
    for position, stored in enumerate(recording.stored):
        name = f"{MODEL_STEM}{f'.{position}' if position else ''}.jsonl"
        lines = [{"type": "session", **stored.header}, *(e.to_json() for e in stored.events)]
        text = b"".join(orjson.dumps(line) + b"\n" for line in lines).decode()
        (directory.path / name).write_text(text.replace(str(recording.cwd), "{{cwd}}"), "utf-8")
        names.append(name)
    return names


async def _play(directory: ScenarioDirectory, variant: Variant, root: Path) -> Recording:
    live = directory.scenario.model_copy(update={"agent": directory.scenario.recorded})
    workspace = Workspace(directory.path, root, variant.store)
    return await play(replace(directory, scenario=live), variant.transport, workspace)

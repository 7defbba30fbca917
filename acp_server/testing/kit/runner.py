"""Runs one scenario in one way and judges it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from acp_server.testing.kit.checks import fold_faults, log_faults
from acp_server.testing.kit.compare import FileDifference, differences
from acp_server.testing.kit.driver import play
from acp_server.testing.kit.guards import header_faults
from acp_server.testing.kit.normalize import ImpureOutputError
from acp_server.testing.kit.scenario import ScenarioDirectory, TransportKind
from acp_server.testing.kit.snapshot import FRAMES_FILE, Snapshot, read_expected, snapshot_of
from acp_server.testing.kit.workspace import DEFAULT_STORES, Workspace


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to run a scenario: the transport and the kind of store."""

    transport: TransportKind
    store: str

    @property
    def name(self) -> str:
        """As it stands in test ids, e.g. `jsonl-subprocess`."""
        return f"{self.store}-{self.transport}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a run.

    Attributes:
        directory: The scenario.
        hard_faults: What is wrong whatever is expected; then nothing was compared.
        differences: Where the run is not as expected.
        snapshot: What the run would have the expected files be; None if it could not be made.
    """

    directory: ScenarioDirectory
    hard_faults: Sequence[str] = ()
    differences: Sequence[FileDifference] = ()
    snapshot: Snapshot | None = field(default=None, repr=False)

    @property
    def passed(self) -> bool:
        """Whether all is as it should be."""
        return not self.hard_faults and not self.differences and not self._is_new

    def sentence(self) -> str:
        """Say in one sentence what is wrong."""
        if self.hard_faults:
            first = self.hard_faults[0].splitlines()[0]
        elif self._is_new:
            first = f"nothing is expected yet, there is no {FRAMES_FILE}"
        else:
            first = self.differences[0].sentence()
        return f"{self.directory.name}: {first}"

    def report(self) -> str:
        """Return all that is wrong, for a person to read."""
        lines = [self.sentence(), ""]
        if self.hard_faults:
            lines += [f"- {fault}" for fault in self.hard_faults]
        elif not self._is_new:
            lines += [line for difference in self.differences for line in difference.report()]
        return "\n".join(lines)

    def against(self, path: Path) -> "Verdict":
        """Return the verdict of the same run on the expected files as they are now."""
        if self.snapshot is None:
            return self
        found = differences(read_expected(path), self.snapshot.files, self.snapshot.logs)
        return Verdict(self.directory, self.hard_faults, found, self.snapshot)

    @property
    def _is_new(self) -> bool:
        return not (self.directory.path / FRAMES_FILE).exists()


def variants_of(directory: ScenarioDirectory, stores: Sequence[str] = ()) -> list[Variant]:
    """Return the ways to run a scenario, the first of which writes its expected files.

    A subprocess runs on the first store; the other stores are reached over memory, with the same
    result.

    Args:
        directory: The scenario.
        stores: Kinds of stores; by default all of ours.
    """
    kinds = list(stores) or list(DEFAULT_STORES)
    scenario = directory.scenario
    processes = [kind for kind in kinds if scenario.runs_over("subprocess", kind)]
    if not scenario.needs_process:
        processes = processes[:1]
    in_memory = [kind for kind in kinds if scenario.runs_over("memory", kind)]
    return [
        *(Variant("subprocess", kind) for kind in processes),
        *(Variant("memory", kind) for kind in in_memory),
    ]


def run_scenario(directory: ScenarioDirectory, variant: Variant) -> Verdict:
    """Run a scenario in one way and judge it.

    Raises:
        ScenarioFault: It cannot be run as it is written.
    """
    with TemporaryDirectory(prefix="acp-scenario-") as root:
        return anyio.run(_run, directory, variant, Path(root))


async def _run(directory: ScenarioDirectory, variant: Variant, root: Path) -> Verdict:
    workspace = Workspace(directory.path, root, variant.store)
    recording = await play(directory, variant.transport, workspace)
    faults = list(recording.faults)
    if not faults:
        faults += [*log_faults(directory, recording), *header_faults(directory, recording)]
    try:
        snapshot = snapshot_of(directory, recording)
    except ImpureOutputError as error:
        return Verdict(directory, [str(error), *faults])
    if not faults:
        faults += await fold_faults(directory, recording, workspace)
    return Verdict(directory, faults, (), snapshot).against(directory.path)

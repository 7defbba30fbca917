"""Plays a scenario: starts servers, carries out its steps, collects what came of it."""

import anyio

from acp_server.testing.errors import AcpClientError
from acp_server.testing.kit.misc_steps import MISC_STEPS
from acp_server.testing.kit.prompt_steps import PROMPT_STEPS
from acp_server.testing.kit.recording import Recording
from acp_server.testing.kit.run import ScenarioRun, StepFailed
from acp_server.testing.kit.scenario import Scenario, ScenarioDirectory, TransportKind
from acp_server.testing.kit.session_steps import SESSION_STEPS
from acp_server.testing.kit.workspace import Workspace

SCENARIO_LIMIT_S = 60.0
"""How long a whole scenario may take: most take a fraction of a second."""


async def play(
    directory: ScenarioDirectory, transport: TransportKind, workspace: Workspace
) -> Recording:
    """Play a scenario to its end and return what came of it; what went wrong is in its faults.

    Args:
        directory: The scenario.
        transport: How the client reaches the server.
        workspace: Fresh directories and a fresh store.

    Raises:
        ScenarioFault: The scenario cannot be played as it is written.
    """
    run = ScenarioRun(directory, transport, workspace)
    recording = run.recording
    try:
        with anyio.fail_after(SCENARIO_LIMIT_S):
            await _play(directory.scenario, run)
            recording.stored = await workspace.stored()
    except TimeoutError:
        recording.faults.append(f"it did not end within {SCENARIO_LIMIT_S:.0f} s")
    recording.views, recording.loads = run.views.whole(), run.views.loads
    return recording


async def _play(scenario: Scenario, run: ScenarioRun) -> None:
    for given in scenario.given:
        await run.given(given.log)
        for copy in range(1, given.copies):
            await run.given(given.log, copy)
    await run.start()
    try:
        await _carry_out(scenario, run)
    finally:
        await run.end()
    faults = run.recording.faults
    faults.extend(run.client_results.problems)
    if not faults:
        faults.extend(run.client_results.rest())


async def _carry_out(scenario: Scenario, run: ScenarioRun) -> None:
    handlers = {**SESSION_STEPS, **PROMPT_STEPS, **MISC_STEPS}
    for number, step in enumerate(scenario.steps, 1):
        try:
            await handlers[type(step)](run, step)
        except (StepFailed, AcpClientError) as error:
            run.recording.faults.append(f"step {number} ({step.op}): {error}")
            return

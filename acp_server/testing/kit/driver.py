"""Plays a scenario: starts servers, carries out its steps, collects what came of it."""

import anyio

from acp_server.testing.errors import AcpClientError
from acp_server.testing.kit.misc_steps import OTHER_STEPS
from acp_server.testing.kit.prompt_steps import PROMPT_STEPS
from acp_server.testing.kit.recording import Recording
from acp_server.testing.kit.run import StepFailed, Talk
from acp_server.testing.kit.scenario import Scenario, ScenarioDirectory, TransportKind
from acp_server.testing.kit.session_steps import SESSION_STEPS
from acp_server.testing.kit.workspace import Stage

SCENARIO_LIMIT_S = 60.0
"""How long a whole scenario may take: most take a fraction of a second."""


async def play(directory: ScenarioDirectory, transport: TransportKind, stage: Stage) -> Recording:
    """Play a scenario to its end and return what came of it; what went wrong is in its faults.

    Args:
        directory: The scenario.
        transport: How the client reaches the server.
        stage: Fresh places for this run.

    Raises:
        ScenarioFault: The scenario cannot be played as it is written.
    """
    talk = Talk(directory, transport, stage)
    recording = talk.recording
    try:
        with anyio.fail_after(SCENARIO_LIMIT_S):
            await _play(directory.scenario, talk)
            recording.stored = await stage.stored()
    except TimeoutError:
        recording.faults.append(f"it did not end within {SCENARIO_LIMIT_S:.0f} s")
    recording.views, recording.loads = talk.views.whole(), talk.views.loads
    return recording


async def _play(scenario: Scenario, talk: Talk) -> None:
    for given in scenario.given:
        await talk.given(given.log)
        for copy in range(1, given.copies):
            await talk.given(given.log, copy)
    await talk.start()
    try:
        await _carry_out(scenario, talk)
    finally:
        await talk.end()
    faults = talk.recording.faults
    faults.extend(talk.answers.problems)
    if not faults:
        faults.extend(talk.answers.rest())


async def _carry_out(scenario: Scenario, talk: Talk) -> None:
    handlers = {**SESSION_STEPS, **PROMPT_STEPS, **OTHER_STEPS}
    for number, step in enumerate(scenario.steps, 1):
        try:
            await handlers[type(step)](talk, step)
        except (StepFailed, AcpClientError) as error:
            talk.recording.faults.append(f"step {number} ({step.op}): {error}")
            return

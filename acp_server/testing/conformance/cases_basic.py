"""Cases of the handshake, of errors and of the transport."""

from acp_server.testing.conformance.case import Case
from acp_server.testing.conformance.harness import NO_SESSION, Harness
from acp_server.testing.conformance.outcome import require, skip_unless

_INVALID_PARAMS = -32602
_METHOD_NOT_FOUND = -32601


async def _handshake(harness: Harness) -> None:
    async with harness.started() as probe:
        version = probe.result.get("protocolVersion")
        require(
            isinstance(version, int) and not isinstance(version, bool),
            f"protocolVersion is {version!r}",
        )
        capabilities = probe.result.get("agentCapabilities", {})
        require(isinstance(capabilities, dict), f"agentCapabilities is {capabilities!r}")


async def _version_negotiation(harness: Harness) -> None:
    async with harness.started() as probe:
        params = {"protocolVersion": 65535, "clientCapabilities": {}}
        result = await probe.client.request("initialize", params)
        version = result.get("protocolVersion")
        require(
            isinstance(version, int) and 0 < version < 65535,
            f"a version that nobody has is answered with {version!r}",
        )


async def _unknown_members(harness: Harness) -> None:
    async with harness.started() as probe:
        params = {
            "protocolVersion": 1,
            "clientCapabilities": {"_meta": {"x": 1}, "someday": {"y": True}},
            "_meta": {"z": None},
        }
        result = await probe.client.request("initialize", params)
        require("protocolVersion" in result, f"the result is {result!r:.200}")


async def _unknown_method(harness: Harness) -> None:
    async with harness.started() as probe:
        error = await probe.refused("acp_conformance/no_such_method", {})
        require(error.code == _METHOD_NOT_FOUND, f"it is refused with {error.code}")


async def _unknown_notification(harness: Harness) -> None:
    async with harness.started() as probe:
        before = len(probe.client.frames)
        await probe.client.notify("acp_conformance/no_such_notification", {})
        await probe.lives()
        answers = [f for f in probe.client.frames[before:] if f.sender == "agent"]
        require(len(answers) == 1, f"{len(answers)} frames came back, one of them was asked for")


async def _garbage_line(harness: Harness) -> None:
    async with harness.started() as probe:
        await probe.client.send_raw(b"{this is no json\n")
        await probe.lives()


async def _split_write(harness: Harness) -> None:
    async with harness.started() as probe:
        line = (
            b'{"jsonrpc":"2.0","id":"split","method":"initialize","params":{"protocolVersion":1}}'
        )
        await probe.client.send_raw(line[:31])
        await probe.client.send_raw(line[31:] + b"\n")
        await probe.client.wait_for_frame(lambda frame: frame.get("id") == "split")


async def _invalid_params(harness: Harness) -> None:
    async with harness.started() as probe:
        error = await probe.refused("session/new", {"mcpServers": []})
        require(error.code == _INVALID_PARAMS, f"a missing cwd is refused with {error.code}")


async def _cwd_null(harness: Harness) -> None:
    async with harness.started() as probe:
        error = await probe.refused("session/new", {"cwd": None, "mcpServers": []})
        require(error.code == _INVALID_PARAMS, f"cwd null is refused with {error.code}")


async def _cwd_relative(harness: Harness) -> None:
    async with harness.started() as probe:
        await probe.refused("session/new", {"cwd": "some/where", "mcpServers": []})


async def _prompt_session_type(harness: Harness) -> None:
    async with harness.started() as probe:
        prompt = [{"type": "text", "text": "hello"}]
        error = await probe.refused("session/prompt", {"sessionId": 7, "prompt": prompt})
        require(error.code == _INVALID_PARAMS, f"a sessionId 7 is refused with {error.code}")


async def _unknown_session(harness: Harness) -> None:
    async with harness.started() as probe:
        prompt = [{"type": "text", "text": "hello"}]
        await probe.refused("session/prompt", {"sessionId": NO_SESSION, "prompt": prompt})
        await probe.lives()


async def _exit(harness: Harness) -> None:
    tour = await harness.tour()
    skip_unless(tour.cut_short is None or tour.exit_fault, tour.cut_short or "")
    require(tour.exit_fault is None, f"behind the end of its input the agent {tour.exit_fault}")


BASIC_CASES = (
    Case(
        "initialize.handshake",
        "initialize is answered with a numeric version and capabilities",
        "initialization",
        _handshake,
    ),
    Case(
        "initialize.version_negotiation",
        "a version that the agent does not have is answered with one that it has",
        "initialization#version-negotiation",
        _version_negotiation,
    ),
    Case(
        "initialize.unknown_members",
        "members that nobody knows are no error",
        "extensibility",
        _unknown_members,
    ),
    Case(
        "errors.unknown_method",
        "an unknown method is answered with -32601",
        "extensibility",
        _unknown_method,
    ),
    Case(
        "errors.unknown_notification",
        "an unknown notification is passed over in silence",
        "extensibility",
        _unknown_notification,
    ),
    Case("errors.invalid_params", "a missing cwd is -32602", "session-setup", _invalid_params),
    Case("errors.invalid_params.cwd_null", "cwd null is -32602", "session-setup", _cwd_null),
    Case(
        "errors.invalid_params.cwd_relative",
        "a cwd that is not absolute is refused",
        "session-setup#working-directory",
        _cwd_relative,
    ),
    Case(
        "errors.invalid_prompt_session_type",
        "a sessionId that is no string is -32602",
        "prompt-turn",
        _prompt_session_type,
    ),
    Case(
        "errors.unknown_session",
        "a prompt to an unknown session is an error",
        "prompt-turn",
        _unknown_session,
    ),
    Case(
        "transport.garbage_line",
        "a line that is no JSON does not end the connection",
        "transports",
        _garbage_line,
    ),
    Case(
        "transport.split_write",
        "a message that comes in two writes is one message",
        "transports",
        _split_write,
    ),
)

LAST_CASES = (
    Case(
        "lifecycle.exit",
        "the agent ends with code 0 within 5 s of the end of its input",
        "transports",
        _exit,
    ),
)

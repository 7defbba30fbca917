"""The rule `gate`: the agent uses what the client advertised, and nothing else (ACP v1)."""

from collections.abc import Callable, Mapping
from typing import Any

from acp_server.wire.errors import WireError
from acp_server.wire.handshake import read_initialize

_GATED_METHODS = {
    "fs/read_text_file": "fs_read",
    "fs/write_text_file": "fs_write",
    "terminal/create": "terminal",
    "terminal/output": "terminal",
    "terminal/wait_for_exit": "terminal",
    "terminal/kill": "terminal",
    "terminal/release": "terminal",
}


class CapabilityGate:
    """Remembers what was ever advertised: open sessions keep what they were opened with."""

    def __init__(self, report: Callable[[str, str], None]) -> None:
        self._report = report
        self._granted: set[str] = set()

    def agent_result(
        self, method: str, params: Mapping[str, Any], result: Mapping[str, Any]
    ) -> None:
        """Learn from an accepted `initialize`; check the options in a result."""
        if method == "initialize":
            self._learn(params)
        self._check_options(result)

    def agent_call(self, method: str, params: Mapping[str, Any]) -> None:
        """Check a request or notification of the agent."""
        need = _GATED_METHODS.get(method)
        if method == "elicitation/create":
            need = "elicitation_url" if params.get("mode") == "url" else "elicitation_form"
        update = params.get("update")
        if isinstance(update, dict):
            need = "notices" if update.get("sessionUpdate") == "notice" else need
            self._check_options(update)
        if need is not None:
            self._require(need, method)

    def _learn(self, params: Mapping[str, Any]) -> None:
        try:
            capabilities = read_initialize(params)
        except WireError:
            return  # the agent took what it should not have; a test of the handshake says so
        self._granted.update(
            name for name in capabilities.__slots__ if getattr(capabilities, name) is True
        )

    def _check_options(self, holder: Mapping[str, Any]) -> None:
        options = holder.get("configOptions")
        for option in options if isinstance(options, list) else ():
            if isinstance(option, dict) and option.get("type") == "boolean":
                self._require("boolean_options", f"option {option.get('id')!r}")

    def _require(self, capability: str, what: str) -> None:
        if capability not in self._granted:
            self._report("gate", f"{what} needs the client capability {capability}")

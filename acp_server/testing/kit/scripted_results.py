"""How the client of a scenario answers the agent: by its lists, first in first out."""

from collections.abc import Mapping
from typing import Any

from acp_server.testing.client.client_results import CANCELLED_OUTCOME, Answer, Params
from acp_server.testing.client.connection import NeverAnswer
from acp_server.testing.errors import AcpError
from acp_server.testing.kit.scenario import PermissionAnswer, Scenario

_METHOD_NOT_FOUND = -32601


class ScriptedResults:
    """The answers of one run, over all processes of it.

    Attributes:
        problems: What the agent asked for that the scenario has no answer to.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.problems: list[str] = []
        self._permissions = list(scenario.permission_answers)
        self._lists = {method: list(results) for method, results in scenario.answers.items()}
        self._elicitations = list(scenario.elicitation_answers)

    def methods(self) -> dict[str, Answer]:
        """Return the functions that answer, by method."""
        answers: dict[str, Answer] = {method: self._from_list(method) for method in self._lists}
        answers["session/request_permission"] = self._permission
        answers["elicitation/create"] = self._elicitation
        return answers

    def rest(self) -> list[str]:
        """Say which answers nobody asked for."""
        left = {
            "permissionAnswers": len(self._permissions),
            "elicitationAnswers": len(self._elicitations),
            **{f"answers of {method}": len(rest) for method, rest in self._lists.items()},
        }
        return [
            f"{name}: the last {count} were never asked for"
            for name, count in left.items()
            if count
        ]

    def _permission(self, params: Params) -> Any:
        if not self._permissions:
            return CANCELLED_OUTCOME
        answer = self._permissions.pop(0)
        if answer.never:
            raise NeverAnswer
        option_id = answer.option_id or self._option_of_kind(answer, params)
        if option_id is None:
            return CANCELLED_OUTCOME
        return {"outcome": {"outcome": "selected", "optionId": option_id}}

    def _option_of_kind(self, answer: PermissionAnswer, params: Params) -> str | None:
        if answer.kind == "cancelled":
            return None
        for option in params["options"]:
            if option["kind"] == answer.kind:
                return str(option["optionId"])
        offered = ", ".join(option["kind"] for option in params["options"])
        self.problems.append(f"permission {answer.kind!r} was not offered, only {offered}")
        return None

    def _elicitation(self, _params: Params) -> Mapping[str, Any]:
        return self._elicitations.pop(0) if self._elicitations else {"action": "cancel"}

    def _from_list(self, method: str) -> Answer:
        def answer(_params: Params) -> Any:
            if not self._lists[method]:
                self.problems.append(f"the agent sent {method} once more than it has answers")
                raise AcpError(_METHOD_NOT_FOUND, f"Method not found: {method}")
            result = self._lists[method].pop(0)
            if result.get("never"):
                raise NeverAnswer
            if "error" in result:
                error = result["error"]
                raise AcpError(error["code"], error["message"], error.get("data"))
            return result

        return answer

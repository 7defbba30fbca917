"""Closed string sets of ACP v1 and the type of a JSON object, shared by readers and builders."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

JsonObject: TypeAlias = dict[str, object]
JsonMapping: TypeAlias = Mapping[str, object]

StopReason = Literal["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"]
PlanStatus = Literal["pending", "in_progress", "completed"]
PlanPriority = Literal["high", "medium", "low"]
PermissionKind = Literal["allow_once", "allow_always", "reject_once", "reject_always"]
NoticeSeverity = Literal["info", "warning", "error"]


def without_absent(**fields: object) -> JsonObject:
    """Return the fields that are not None: absent stays absent, a frame carries no null."""
    return {name: value for name, value in fields.items() if value is not None}

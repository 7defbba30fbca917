"""Who decides about a call that wants permission: a preset, a standing grant, or the user.

Rule: decisions-have-an-order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from session_core import GrantKey, current_grants

if TYPE_CHECKING:
    from collections.abc import Mapping

    from acp_server.turns.ports import GrantScope, PermissionOutcome, PermissionRules
    from session_core import Session

_EFFECTS: Final[Mapping[str, str]] = {"allowed-always": "allow", "rejected-always": "reject"}


def standing_decision(
    session: Session,
    rules: PermissionRules,
    kind: str,
    grant: GrantScope | None,
    *,
    outside: bool = False,
) -> PermissionOutcome | None:
    """Return what is decided already, or None if the user must be asked.

    A refusal goes before a permission: a preset that refuses, then a stored `reject`, then a preset
    that allows, then a stored `allow`.

    Args:
        session: Holds the grants; what a fork inherited does not count.
        rules: The preset.
        kind: ACP kind of the call.
        grant: What the asker named; without it there can be no stored grant.
        outside: Whether the call touches a file outside the session's roots, which no stored
            permission covers (presets-end-at-the-roots).
    """
    rule = rules.permission_rule(kind, outside=outside)
    if rule == "refuse":
        return "rejected"
    stored = None if grant is None else _stored_effect(session, grant)
    if stored == "reject":
        return "rejected-always"
    if rule == "allow":
        return "allowed-once"
    return "allowed-always" if stored == "allow" and not outside else None


def effect_from_outcome(outcome: PermissionOutcome) -> str | None:
    """Return what an answer grants for later calls, `allow` or `reject`; None if nothing."""
    return _EFFECTS.get(outcome)


def _stored_effect(session: Session, grant: GrantScope) -> str | None:
    grants = current_grants(session.events, session.header.seed_length)
    return grants.get(GrantKey(grant.tool_name, grant.key))

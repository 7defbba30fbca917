"""Permission presets: what users choose from, and what each allows.

Rules: permission-precedes-the-call, settings-are-logged-at-once.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

Preset = Literal["ask", "auto-edit", "read-only", "full-access"]
"""A permission preset; its ACP view is a mode and the option `mode`."""

PRESETS: Final[tuple[Preset, ...]] = get_args(Preset)

MODE_OPTION_ID: Final = "mode"
"""The config option that is the second view of the modes; no author's option may take it.

Rule: settings-are-logged-at-once.
"""

PermissionRule = Literal["ask", "allow", "refuse"]
"""What is to be done about a call that wants permission, before grants are looked at."""

TOLD_TO_MODEL: Final[dict[str, str]] = {
    "ask": "each change of the user's files or system is put before the user first",
    "auto-edit": "edits of files need no permission any more, everything else does",
    "read-only": "whatever needs the user's permission is refused",
    "full-access": "nothing needs the user's permission any more",
}
"""What the model reads about a new preset (injected-messages-part-no-call)."""


def permission_rule(preset: str | None, kind: str, *, outside: bool) -> PermissionRule:
    """Return what a preset says of a call that wants permission.

    Rules: presets-decide-before-user, presets-end-at-the-roots.

    Args:
        preset: The preset; None for an agent without.
        kind: ACP tool kind of the call.
        outside: Whether the call touches a file outside the session's roots.
    """
    match preset:
        case "full-access":
            return "allow"
        case "read-only":
            return "refuse"
        case "auto-edit" if kind == "edit" and not outside:
            return "allow"
    return "ask"

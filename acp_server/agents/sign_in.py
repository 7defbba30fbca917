"""How a user signs in to an agent that asks for it. Built-in agents do not.

Rule: declared-sign-in-guards-sessions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


@dataclass(frozen=True, slots=True)
class AuthMethod:
    """One way to sign in, as the client offers it to its user.

    Attributes:
        id: What the client sends back.
        name: What the user reads.
        description: One line more.
    """

    id: str
    name: str
    description: str | None = None


@dataclass(frozen=True, slots=True)
class SignIn:
    """What an agent declares that serves nobody before they have signed in.

    Attributes:
        methods: At least one. Some editors show a login as soon as there is any.
        sign_in: Given the id of a method; returns when the user is signed in, and raises
            `RequestRefusedError` when that fails.
        sign_out: Undoes it; without it only this connection forgets.
        is_signed_in: Asked before each request that needs it, so it must be quick; without it a
            connection is signed in once `sign_in` has returned.
    """

    methods: tuple[AuthMethod, ...]
    sign_in: Callable[[str], Awaitable[None]]
    sign_out: Callable[[], Awaitable[None]] | None = None
    is_signed_in: Callable[[], bool] | None = None

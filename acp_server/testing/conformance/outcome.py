"""How a case ends other than by passing, and the conditions it is written with."""


class CaseFailed(Exception):  # noqa: N818 - an outcome
    """The agent does not do what the case asks for; the message says what it did."""


class CaseSkipped(Exception):  # noqa: N818 - an outcome
    """The case is not for this agent, or nothing could be told; the message says why."""


def require(condition: object, otherwise: str) -> None:
    """Fail the case unless a condition is true.

    Raises:
        CaseFailed: It is not.
    """
    if not condition:
        raise CaseFailed(otherwise)


def skip_unless(condition: object, reason: str) -> None:
    """Skip the case unless a condition is true.

    Raises:
        CaseSkipped: It is not.
    """
    if not condition:
        raise CaseSkipped(reason)

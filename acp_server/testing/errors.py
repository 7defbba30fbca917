"""What can go wrong between a test and the agent it drives.

AcpClientError
├── AcpError             the agent answered with a JSON-RPC error
├── AgentGoneError       the agent closed the connection or exited
├── AgentExitError       the agent did not exit as it should
├── AcpTimeoutError      nothing came in time (a TimeoutError, too)
└── FrameViolationError  frames that broke rules of the protocol
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

Sender = Literal["client", "agent"]


class FrameViolation(NamedTuple):
    """One broken rule.

    Attributes:
        number: Position of the frame among all frames of both directions, from 1; 0 if the rule is
            about the end of the conversation.
        sender: Who sent the frame.
        rule: Short name of the rule, see `frames`.
        detail: One sentence.
        frame: The frame, cut to a readable length.
    """

    number: int
    sender: Sender
    rule: str
    detail: str
    frame: str

    def __str__(self) -> str:
        place = f"frame {self.number} of the {self.sender}" if self.number else "at the end"
        return f"{place} breaks `{self.rule}`: {self.detail}" + (
            f"\n  {self.frame}" * bool(self.frame)
        )


class AcpClientError(Exception):
    """Base of this module's errors."""


class AcpError(AcpClientError):
    """The agent refused a request."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code
        self.message = message
        self.data = data


class AgentGoneError(AcpClientError):
    """The connection ended while an answer was awaited."""

    def __init__(self, waiting_for: str, stderr: str) -> None:
        tail = f"; its stderr ends with:\n{stderr[-2000:]}" if stderr else ""
        super().__init__(f"the agent is gone, {waiting_for} will not come{tail}")
        self.waiting_for = waiting_for
        self.stderr = stderr


class AgentExitError(AcpClientError):
    """The agent process did not end with exit code 0 in time after its stdin was closed.

    Rule: bad-input-never-ends-server.
    """

    def __init__(self, reason: str, stderr: str) -> None:
        tail = f"; its stderr ends with:\n{stderr[-2000:]}" if stderr else ""
        super().__init__(f"the agent {reason}{tail}")
        self.reason = reason
        self.stderr = stderr


class AcpTimeoutError(AcpClientError, TimeoutError):
    """What was awaited did not come in time."""

    def __init__(self, waiting_for: str, timeout_s: float) -> None:
        super().__init__(f"no {waiting_for} within {timeout_s} s")
        self.waiting_for = waiting_for
        self.timeout_s = timeout_s


class FrameViolationError(AcpClientError):
    """The conversation broke rules of the protocol."""

    def __init__(self, violations: Sequence[FrameViolation]) -> None:
        super().__init__("\n".join(str(violation) for violation in violations))
        self.violations = tuple(violations)

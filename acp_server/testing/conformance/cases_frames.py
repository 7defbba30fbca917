"""Cases of all frames that the agent sends on a tour of what it offers."""

from acp_server.testing.conformance.case import Case
from acp_server.testing.conformance.harness import Harness
from acp_server.testing.conformance.outcome import require, skip_unless
from acp_server.testing.errors import FrameViolation

# What the specification asks of all frames; the checker's other rules are house rules.
_SCHEMA_RULES = ("envelope", "response", "shape", "method")
_ORDER_RULES = ("unknown-session", "idle", "tool-call")


async def _schema(harness: Harness) -> None:
    _judge((await _seen(harness)), _SCHEMA_RULES)


async def _json(harness: Harness) -> None:
    _judge((await _seen(harness)), ("json",))


async def _order(harness: Harness) -> None:
    _judge((await _seen(harness)), _ORDER_RULES)


async def _gate(harness: Harness) -> None:
    _judge((await _seen(harness)), ("gate",))


async def _seen(harness: Harness) -> list[FrameViolation]:
    tour = await harness.tour()
    skip_unless(tour.cut_short is None or tour.violations, f"cut short: {tour.cut_short}")
    return tour.violations


def _judge(violations: list[FrameViolation], rules: tuple[str, ...]) -> None:
    broken = [violation for violation in violations if violation.rule in rules]
    more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
    require(not broken, f"{broken[0] if broken else ''}{more}")


FRAME_CASES = (
    Case(
        "update.termination",
        "updates belong to an open session and to a turn or load in flight",
        "prompt-turn",
        _order,
    ),
    Case("frames.json", "every line on stdout is one JSON object", "transports", _json),
    Case("frames.schema", "every frame is valid by the schema", "schema", _schema),
    Case(
        "frames.capabilities",
        "the agent calls no method that the client did not offer",
        "initialization#client-capabilities",
        _gate,
    ),
)

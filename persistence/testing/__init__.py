"""The contract that every backend keeps, as checks its author can run.

A test module gives each check a fresh harness:

    @pytest.mark.parametrize("check", CONTRACT, ids=check_name)
    async def test_contract(check, tmp_path):
        await check(MyHarness(tmp_path))

The checks need no test framework: they raise `AssertionError`.
"""

from persistence.testing.harness import BackendHarness, Check, check_name
from persistence.testing.holding_checks import HOLDING_CHECKS
from persistence.testing.listing_checks import LISTING_CHECKS
from persistence.testing.live_checks import LIVE_CHECKS
from persistence.testing.ownership_checks import OWNERSHIP_CHECKS
from persistence.testing.stored_checks import STORED_CHECKS

CONTRACT: tuple[Check, ...] = (
    *STORED_CHECKS,
    *LIVE_CHECKS,
    *OWNERSHIP_CHECKS,
    *HOLDING_CHECKS,
    *LISTING_CHECKS,
)
"""Every check, to be run each on a harness of its own."""

__all__ = ["CONTRACT", "BackendHarness", "Check", "check_name"]

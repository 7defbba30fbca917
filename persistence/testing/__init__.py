"""The contract of a storage backend, as checks that its author runs.

Write a harness: a class with the methods of `BackendHarness`, which opens the storage and damages
it behind the backend's back (`harnesses.JsonlHarness` is an example). Then run each check of
`CONTRACT` on a harness of its own:

    @pytest.mark.parametrize("check", CONTRACT, ids=check_name)
    async def test_contract(check, tmp_path):
        await check(MyHarness(tmp_path))

The checks need no test framework: they raise `AssertionError`. They are grouped by what they are
about: `stored_checks` (what is stored is read back, torn or damaged logs), `live_checks` (sessions
that are being written), `ownership_checks` (who may write), `listing_checks` (finding sessions).

`power_cuts`, `simulated_disk`, `disk_states` and `faulty_files` simulate disks that lose power or
fail, for backends that write files; they are not part of the contract.
"""

from persistence.testing.harness import BackendHarness, Check, check_name
from persistence.testing.holding_checks import HOLDING_CHECKS
from persistence.testing.listing_checks import LISTING_CHECKS
from persistence.testing.live_checks import LIVE_CHECKS
from persistence.testing.ownership_checks import OWNERSHIP_CHECKS
from persistence.testing.reading_checks import READING_CHECKS
from persistence.testing.stored_checks import STORED_CHECKS

CONTRACT: tuple[Check, ...] = (
    *STORED_CHECKS,
    *READING_CHECKS,
    *LIVE_CHECKS,
    *OWNERSHIP_CHECKS,
    *HOLDING_CHECKS,
    *LISTING_CHECKS,
)
"""Every check, to be run each on a harness of its own."""

__all__ = ["CONTRACT", "BackendHarness", "Check", "check_name"]

from uuid import UUID

import pytest

from acp_server.testing import CountingIds, SteppingClock


@pytest.mark.rule("clock-and-ids-are-injected")
def test_a_clock_steps_each_time_it_is_read() -> None:
    clock = SteppingClock(start_ms=100, step_ms=5)
    assert [clock(), clock(), clock()] == [100, 105, 110]


def test_a_clock_can_be_moved_both_ways() -> None:
    clock = SteppingClock(start_ms=100)
    clock.advance(50)
    assert clock() == 150
    clock.advance(-100)
    assert clock() == 51


@pytest.mark.rule("clock-and-ids-are-injected")
def test_ids_are_uuids_of_version_7_that_count_up() -> None:
    ids = CountingIds()
    made = [ids() for _ in range(300)]
    assert made == sorted(set(made))
    assert {UUID(one).version for one in made} == {7}
    assert all(str(UUID(one)) == one for one in made)


def test_two_sources_are_alike_and_two_series_are_not() -> None:
    assert CountingIds()() == CountingIds()()
    assert CountingIds(1)() != CountingIds(2)()

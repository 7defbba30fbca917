"""Session ids: unique, and in the order of their time."""

from uuid import UUID

import pytest

from acp_server.turns.ids import TimeOrderedIds


@pytest.mark.rule("session-ids-are-time-ordered")
def test_session_ids_are_uuids_of_version_7_in_the_order_of_their_time() -> None:
    times = iter(range(1_700_000_000_000, 1_700_000_000_100))
    source = TimeOrderedIds(lambda: next(times))
    ids = [source.session_id() for _ in range(100)]
    assert ids == sorted(ids)
    parsed = [UUID(one) for one in ids]
    assert {(one.version, one.variant) for one in parsed} == {(7, "specified in RFC 4122")}
    assert [one.int >> 80 for one in parsed] == list(range(1_700_000_000_000, 1_700_000_000_100))


def test_two_ids_of_one_moment_differ() -> None:
    source = TimeOrderedIds(lambda: 1_700_000_000_000)
    assert source.session_id() != source.session_id()

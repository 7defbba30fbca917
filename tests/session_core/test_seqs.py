import json
import sys
from typing import Any

import pytest

from session_core import APPEND, Event, Session, SurfaceIntent, event_from_json
from session_core.seqs import SeqSpan, compact_seqs

USER = {"kind": "user"}
SEQS = tuple(range(3, 40))


def test_a_span_is_equal_to_what_it_stands_for() -> None:
    span = compact_seqs(SEQS)
    assert isinstance(span, SeqSpan)
    assert span == SEQS
    assert span == SEQS
    assert span == list(SEQS)
    assert span == SeqSpan(3, 40)
    assert hash(span) == hash(SEQS)
    assert repr(span) == repr(SEQS)
    unlike: list[Any] = [SEQS[1:], SEQS[::-1], SeqSpan(3, 41), (*SEQS[:-1], 40), "3", None]
    for other in unlike:
        assert span != other
    assert (len(span), span[0], span[-1], span[1:3]) == (37, 3, 39, (4, 5))
    assert list(span) == list(SEQS)
    assert 39 in span
    assert 40 not in span


@pytest.mark.parametrize(
    "seqs",
    [
        (),
        (1, 2, 3),
        (*SEQS, 41),
        SEQS[::-1],
        (*SEQS[:-1], 39.0),
        (True, *range(2, 40)),
        tuple(range(-1, 30)),
        ("a",) * 20,
    ],
)
def test_whatever_is_no_span_stays_as_it_is(seqs: tuple[Any, ...]) -> None:
    assert compact_seqs(seqs) is seqs


def test_an_event_keeps_the_sources_of_a_long_stream_small(session: Session) -> None:
    for _ in range(2_000):
        session.append_delta(1, 1, "text-delta", 0, "x")
    content: dict[str, Any] = {"content": [], "source": USER}
    sources = list(range(2_000))
    event = session.append("user/message", content, SurfaceIntent("append", sources))
    assert event.source_event_seqs == tuple(sources)
    assert sys.getsizeof(event.source_event_seqs) < 100
    stored = json.loads(json.dumps(event.to_json()))
    assert stored["sourceEventSeqs"] == sources
    read = event_from_json(stored)
    assert read == event == Event(*event)
    assert isinstance(read.source_event_seqs, SeqSpan)
    assert session.append("user/message", content, APPEND).source_event_seqs is None
    again = Session("again", seed=[e.to_json() for e in session.events])
    assert again.events == session.events

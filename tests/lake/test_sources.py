"""What the lake takes from Kafka, and what a name stands for."""

from __future__ import annotations

from edgewake.cloud.lake.shape import Kind
from edgewake.cloud.lake.sources import Source, newest, source_of, sources_of
from edgewake.protocol import topics

STREAM = Source("ew.s.host", Kind.STREAM, "host")
OLD, NEW = Source("ew.q.host.9", Kind.QUERY, "host"), Source("ew.q.host.10", Kind.QUERY, "host")
HOURS = Source(topics.HOURS, Kind.SUMMARY, "summaries.hour")


def test_readings_results_and_kept_summaries_have_a_source_and_nothing_else() -> None:
    found = ["ew.s.host", "ew.q.host.10", topics.HOURS, topics.UP, "ew.s.", "host", topics.DEVICES]
    assert sources_of(found) == {one.topic: one for one in (STREAM, NEW, HOURS)}
    assert sources_of(found, only=["host"]) == {one.topic: one for one in (STREAM, NEW)}
    assert sources_of(found, leave_out=["host"]) == {HOURS.topic: HOURS}
    assert source_of(topics.MINUTES) is None


def test_a_name_is_the_last_registration_of_its_query_before_a_stream() -> None:
    for found in ([STREAM, OLD, NEW], [NEW, STREAM, OLD]):
        assert newest(found) == {"host": NEW}
    assert newest([STREAM]) == {"host": STREAM}

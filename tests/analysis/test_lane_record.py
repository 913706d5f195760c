"""Where a lane stands, and what it decides at a start."""

from __future__ import annotations

from edgewake.cloud.analysis.lane_record import LaneRecord, begin, is_new, with_queries

RECORD = LaneRecord(stream="s", lane="plain", checkpoint="one", base=10, batch=4, top=99, offsets={0: 50, 1: 60}, late={"q@1": 3})


def test_a_new_lane_begins_before_its_first_batch() -> None:
    assert begin(None, stream="s", lane="plain", checkpoint="one").revision == -1


def test_a_known_checkpoint_goes_on() -> None:
    assert begin(RECORD, stream="s", lane="plain", checkpoint="one") == RECORD


def test_a_new_checkpoint_counts_revisions_on_and_keeps_what_was_final() -> None:
    """Somebody deleted the checkpoint: batches begin with 0 again, revisions must not."""
    found = begin(RECORD, stream="s", lane="plain", checkpoint="two")
    assert (found.base, found.batch, found.top, found.late) == (15, -1, 99, {"q@1": 3})
    assert found.base + 0 > RECORD.revision


def test_readings_that_are_computed_a_second_time_are_not_counted_as_late_again() -> None:
    assert not is_new(RECORD, {0: 50, 1: 20})
    assert is_new(RECORD, {0: 50, 1: 61})
    assert is_new(RECORD, {0: 50, 2: 1})


def test_a_query_is_asked_from_where_the_lane_stands_when_it_joins() -> None:
    joined = with_queries(RECORD, ["a@1"])
    later = with_queries(joined.model_copy(update={"offsets": {0: 80, 1: 90}}), ["a@1", "b@2"])
    assert later.asked_from == {"a@1": {0: 50, 1: 60}, "b@2": {0: 80, 1: 90}}
    assert with_queries(later, ["b@2"]).asked_from == {"b@2": {0: 80, 1: 90}}
    new = begin(None, stream="s", lane="plain", checkpoint="one")
    assert with_queries(new, ["a@1"]).asked_from == {"a@1": {}}, "a new lane computes the stream from its beginning"

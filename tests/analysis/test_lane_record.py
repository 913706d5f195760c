"""What a lane's record keeps of its queries."""

from __future__ import annotations

from edgewake.cloud.analysis.lane_record import LaneRecord, with_queries

NEW = LaneRecord(stream="s", lane="plain")
RECORD = NEW.model_copy(update={"revision": 14, "top": 99, "offsets": {"ew.s.s": {0: 50, 1: 60}}, "late": {"q@1": 3}})


def test_a_query_is_asked_from_where_the_lane_stands_when_it_joins() -> None:
    joined = with_queries(RECORD, ["a@1"])
    later = with_queries(joined.model_copy(update={"offsets": {"ew.s.s": {0: 80, 1: 90}}}), ["a@1", "b@2"])
    assert later.asked_from == {"a@1": {"ew.s.s": {0: 50, 1: 60}}, "b@2": {"ew.s.s": {0: 80, 1: 90}}}
    assert with_queries(later, ["b@2"]).asked_from == {"b@2": {"ew.s.s": {0: 80, 1: 90}}}
    assert with_queries(NEW, ["a@1"]).asked_from == {"a@1": {}}, "a new lane computes the stream from its beginning"


def test_a_query_that_left_is_forgotten_with_its_late_readings() -> None:
    assert with_queries(RECORD, ["b@2"]).late == {}
    assert with_queries(RECORD, ["q@1"]).late == {"q@1": 3}

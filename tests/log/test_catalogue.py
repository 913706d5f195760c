"""Which topic a name stands for."""

from __future__ import annotations

from edgewake.cloud.log.catalogue import Topic, topics_of


def test_a_name_stands_for_its_present_registration_and_never_for_an_earlier_one() -> None:
    found = topics_of({"ew.q.top.100": 1, "ew.q.top.200": 1, "ew.q.top.300": 1}, {"top": 200})
    assert found == {"top": Topic("top", "ew.q.top.200", True, 1)}


def test_after_its_removal_a_name_stands_for_its_last_registration() -> None:
    assert topics_of({"ew.q.top.200": 1, "ew.q.top.1000": 1}, {})["top"].topic == "ew.q.top.1000"


def test_a_stream_has_the_name_of_a_query_that_was_removed_but_not_of_one_that_is_registered() -> None:
    there = {"ew.s.top": 4, "ew.q.top.200": 1}
    assert topics_of(there, {})["top"] == Topic("top", "ew.s.top", False, 4)
    assert topics_of(there, {"top": 200})["top"].is_query


def test_other_topics_are_no_names() -> None:
    others = {"ew.up": 4, "ew.q.top": 1, "ew.q.top.x": 1, "ew.q..5": 1, "ew.s.Top": 1, "ew.s.a.b": 1, "ew.s.gone": 0, "other": 1}
    assert topics_of(others, {}) == {}

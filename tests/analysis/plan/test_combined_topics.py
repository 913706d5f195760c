"""Partitions of several topics, numbered as if they were one's."""

from __future__ import annotations

from edgewake.cloud.analysis.plan.combined_topics import CombinedTopics


def test_each_place_has_one_number_and_each_number_one_place() -> None:
    one, two = CombinedTopics(("a",)), CombinedTopics(("a", "b"))
    offsets = {"a": {0: 5, 1: 6}, "b": {0: 7}, "other": {0: 9}}
    assert one.flat(offsets) == {0: 5, 1: 6}
    assert two.flat(offsets) == {0: 5, 2: 6, 1: 7}
    assert two.by_topic(two.flat(offsets)) == {"a": {0: 5, 1: 6}, "b": {0: 7}}
    assert [two.place(number) for number in range(4)] == [
        ("a", 0),
        ("b", 0),
        ("a", 1),
        ("b", 1),
    ]

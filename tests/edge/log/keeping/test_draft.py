"""The state of a log while a transaction changes it."""

from __future__ import annotations

from collections import deque

from edgewake.edge.log.keeping.draft import Draft
from edgewake.edge.log.tables.schema import BACKLOG_BYTES, RETAINED_BYTES


def draft() -> Draft:
    return Draft({}, {}, deque(), 100, 30, 7, {"a": 5}, {"lost": 1}, {}, dropped=2)


def test_a_copy_that_is_changed_leaves_the_state_that_was_committed() -> None:
    before = draft()
    copy = before.copy()
    copy.wait_more("a", 4)
    copy.wait_more("b", 1)
    copy.add("lost", 3)
    copy.add("new", 1)
    assert (copy.waiting, copy.counters, copy.waiting_bytes) == (
        {"a": 9, "b": 1}, {"lost": 4, "new": 1}, 10,
    )  # fmt: skip
    assert before == draft()


def test_a_copy_begins_with_nothing_made_and_nothing_dropped() -> None:
    copy = draft().copy()
    assert (copy.frames, copy.dropped) == ([], 0)


def test_its_sums_are_what_the_counters_of_the_log_say() -> None:
    assert draft().sums == {BACKLOG_BYTES: 35, RETAINED_BYTES: 7}

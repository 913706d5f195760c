"""Ranges of offsets, cut into pieces."""

from __future__ import annotations

import pytest

from edgewake.cloud.analysis.lanes.batch_range import as_text, ranges


@pytest.mark.parametrize("count", [1, 3, 7, 10, 1000])
def test_pieces_follow_one_another_and_are_the_whole(count: int) -> None:
    start, end = {0: 5, 1: 100, 2: 7}, {0: 12, 1: 103, 2: 7}
    pieces = list(ranges(start, end, count))
    at = dict(start)
    for begin, until in pieces:
        assert begin == {p: at[p] for p in begin}, "nothing is left out, and nothing twice"
        assert sum(until[p] - begin[p] for p in begin) <= count + len(start)
        at |= until
    assert (at, 2 in pieces[0][0]) == (end, False)


def test_where_nothing_came_there_is_no_piece() -> None:
    assert list(ranges({0: 5}, {0: 5}, 10)) == list(ranges({}, {}, 10)) == []


def test_offsets_are_said_by_topic() -> None:
    assert as_text({"ew.s.b": {1: 3, 0: 17}, "ew.s.a": {0: 1}}) == (
        "ew.s.a[0]=1, ew.s.b[0]=17 [1]=3"
    )

"""Frames that later ones have passed: which are open, and what is lost when they are forgotten."""

from __future__ import annotations

from edgewake.cloud.sequencer.order.holes import HOLES_MAX, Hole, Holes


def hole(first: int, last: int, *, opened_s: int = 0, counted: bool = False) -> Hole:
    """Ten readings a frame."""
    return Hole(first, last, first * 10, (last + 1) * 10, opened_s, counted)


def opened(*each: Hole) -> Holes:
    found = Holes("d", "s", 1)
    for one in each:
        found.open(one)
    return found


def test_a_frame_that_comes_late_splits_its_hole_and_counts_stay_exact() -> None:
    found = opened(hole(5, 9))
    assert found.fill(7, seq=70, readings=10) == (True, [])
    assert list(found) == [hole(5, 6), hole(8, 9)]
    assert [found.fill(number, seq=number * 10, readings=10)[0] for number in (4, 7, 10)] == [
        False
    ] * 3
    for number in (5, 6, 8, 9):
        assert found.fill(number, seq=number * 10, readings=10) == (True, [])
    assert list(found) == []


def test_what_a_frame_says_of_its_readings_stays_within_its_hole() -> None:
    found = opened(hole(5, 9))
    found.fill(7, seq=10_000, readings=10_000)
    assert [(one.seq, one.end_seq) for one in found] == [(50, 100), (100, 100)]


def test_what_a_device_counted_itself_is_news_once_and_not_lost_again() -> None:
    found = opened(hole(1, 2), hole(5, 6, opened_s=7))
    assert [found.count(2, 4), found.count(1, 2), found.count(9, 9)] == [True, False, False]
    assert found.close_before(7) == [], "the device said so"
    assert list(found) == found.close_lowest() == [hole(5, 6, opened_s=7)]


def test_of_more_holes_than_are_remembered_the_lowest_are_lost() -> None:
    found = opened(*(hole(10 * number, 10 * number + 2) for number in range(HOLES_MAX)))
    assert found.open(hole(9_000, 9_001)) == [hole(0, 2)]
    assert found.fill(11, seq=110, readings=10) == (True, [hole(10, 10)])
    assert len(found) == HOLES_MAX

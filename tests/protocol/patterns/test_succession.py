"""Conditions that come true one after the other."""

from __future__ import annotations

from edgewake.protocol.patterns import succession


def matches(*readings: tuple[int, bool, bool], within_ms: float = 10) -> list[int]:
    """Where the matches of two conditions began."""
    began, found = succession.nothing(2), list[int]()
    for t, *met in readings:
        began, match = succession.step(began, t, met, within_ms)
        found += [] if match is None else [match]
    return found


def test_a_match_begins_with_the_latest_reading_that_could_complete_it() -> None:
    assert matches((0, True, False), (4, True, False), (9, False, True)) == [4]


def test_the_last_moment_counts_and_no_later_one() -> None:
    assert matches((0, True, False), (10, False, True)) == [0]
    assert matches((0, True, False), (11, False, True)) == []


def test_each_condition_needs_a_reading_of_its_own() -> None:
    assert matches((0, True, True)) == []
    assert matches((0, True, True), (1, True, True)) == [0]


def test_after_a_match_the_rule_starts_again() -> None:
    assert matches((0, True, False), (1, False, True), (2, False, True)) == [0]


def test_a_beginning_in_the_future_is_given_up() -> None:
    assert matches((5, True, False), (1, False, True)) == []


def test_only_true_is_met() -> None:
    assert succession.step([None], 0, [1, False], 10) == ([None], None)

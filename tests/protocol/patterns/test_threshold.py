"""A threshold with hysteresis."""

from __future__ import annotations

from edgewake.protocol.patterns.threshold import IDLE, Held, step


def active(*readings: tuple[int, bool], for_ms: float = 0, for_count: int = 1) -> list[bool]:
    """Is it active after each reading?"""
    held, found = IDLE, list[bool]()
    for t, is_met in readings:
        held, _ = step(held, t, is_met=is_met, for_ms=for_ms, for_count=for_count)
        found.append(held.active)
    return found


def test_it_waits_until_the_condition_has_held_long_and_often_enough() -> None:
    assert active((0, True), (9, True), (10, True), for_ms=10) == [False, False, True]
    assert active((0, True), (0, True), for_count=2) == [False, True]


def test_a_condition_that_breaks_begins_the_wait_again() -> None:
    assert active((0, True), (9, False), (10, True), for_ms=10) == [False, False, False]


def test_it_stays_active_until_the_clearing_condition_is_met() -> None:
    assert active((0, True), (1, False), (2, True)) == [True, True, False]


def test_a_time_that_goes_backwards_begins_the_wait_again_and_is_told() -> None:
    held = Held(active=False, since=100, count=3)
    assert step(held, 40, is_met=True, for_ms=50) == (Held(False, 40, 1), True)

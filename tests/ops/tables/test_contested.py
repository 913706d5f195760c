"""Things that two gateways send for at once."""

from __future__ import annotations

import pytest

from edgewake.cloud.ops.tables.contested import FRESH_MS, THINGS_MAX, TURNS, WITHIN_MS, Contested
from edgewake.protocol.ops.device import DeviceSeen

T0 = 1_790_000_000_000


def heard(found: Contested, via: str, at: int, *, thing: str = "meter", age: int = 0) -> None:
    seen = DeviceSeen(device=thing, last_seen=at, newest=at - age, via=via)
    found.note(seen)


@pytest.mark.parametrize(
    ("gateways", "every_ms", "age", "expected"),
    [
        ("abab", 5_000, 0, {"meter": ["a", "b"]}),
        ("aabbaabb", 5_000, 0, {"meter": ["a", "b"]}),
        ("aba", 5_000, 0, {}),  # it went and came back
        ("abab", WITHIN_MS, 0, {}),  # it goes and comes
        ("abab", 5_000, FRESH_MS + 1, {}),  # backlogs
    ],
)
def test_fresh_readings_that_alternate_are_told(
    gateways: str, every_ms: int, age: int, expected: dict[str, list[str]]
) -> None:
    found = Contested()
    for number, via in enumerate(gateways):
        heard(found, via, T0 + number * every_ms, age=age)
    assert found.now(T0 + (len(gateways) - 1) * every_ms) == expected


def test_it_is_told_for_a_minute_and_no_longer_than_the_thing_is_known() -> None:
    found = Contested()
    for number in range(TURNS):
        heard(found, "ab"[number % 2], T0 + number)
    assert [bool(found.now(T0 + after)) for after in (WITHIN_MS, WITHIN_MS + 1)] == [True, False]
    found.forget("meter")
    assert found.now(T0 + 5) == {}


def test_the_things_that_are_watched_are_bounded() -> None:
    found = Contested()
    for number in range(TURNS):
        heard(found, "ab"[number % 2], T0 + number)
    for number in range(THINGS_MAX):
        heard(found, "a", T0 + 10, thing=f"t{number}")
    assert found.now(T0 + 20) == {}

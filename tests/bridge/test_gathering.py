"""A lone record goes at once; under load records wait for each other, and no longer than GATHER_S."""

from __future__ import annotations

from edgewake.cloud.bridge.gathering import GATHER_RATE, GATHER_S, Gathering

TURN_S = 0.001
"""Seconds between two looks."""


def waits(per_turn: int, turns: int, *, gathering: Gathering | None = None, start_s: float = 100.0) -> list[float]:
    """Seconds that each record waits when so many come in each turn."""
    gathering = gathering or Gathering()
    waiting: list[float] = []
    found = []
    for i in range(turns):
        now_s = start_s + i * TURN_S
        for _ in range(per_turn):
            gathering.note()
            if gathering.is_on:
                waiting.append(now_s)
            else:
                found.append(0.0)
        if gathering.is_due(now_s):
            found += [now_s - since_s for since_s in waiting]
            waiting.clear()
    return found


def test_few_records_never_wait() -> None:
    assert not any(waits(GATHER_RATE // 2 * 1 // 1000, 1000))


def test_many_records_wait_for_each_other_but_never_longer_than_the_bound() -> None:
    found = waits(20, 1000)
    assert sum(wait > 0 for wait in found) > len(found) * 0.9
    assert max(found) <= GATHER_S + TURN_S


def test_the_first_record_after_a_load_goes_at_the_next_look_and_the_ones_after_it_at_once() -> None:
    gathering = Gathering()
    waits(20, 100, gathering=gathering)
    assert gathering.is_on
    gathering.note()
    assert gathering.is_due(200.0)
    assert not gathering.is_on

"""A lone record goes at once; under load records wait for each other, and no longer than
GATHER_S.
"""

from __future__ import annotations

import pytest

from edgewake.cloud.bridge.kafka_writer import GATHER_S
from edgewake.cloud.bridge.load import MANY_PER_S, Load

TURN_S = 0.001
"""Seconds between two looks."""


def waits(
    per_s: float, turns: int, *, load: Load | None = None, start_s: float = 100.0
) -> list[float]:
    """Seconds that each record waits when so many come, evenly, and what waits goes when a span is
    over.
    """
    load = load or Load(GATHER_S)
    waiting: list[float] = []
    found = []
    for i in range(turns):
        now_s = start_s + i * TURN_S
        for _ in range(int(per_s * (i + 1) * TURN_S) - int(per_s * i * TURN_S)):
            load.note()
            if load.is_high:
                waiting.append(now_s)
            else:
                found.append(0.0)
        if load.look(now_s) or not load.is_high:
            found += [now_s - since_s for since_s in waiting]
            waiting.clear()
    return found


@pytest.mark.parametrize("per_s", [1, 10, 100, MANY_PER_S * 0.8])
def test_few_records_never_wait(per_s: float) -> None:
    found = waits(per_s, 2000)
    assert len(found) == per_s * 2
    assert not any(found)


@pytest.mark.parametrize("per_s", [MANY_PER_S * 1.5, 1_000, 20_000])
def test_many_records_wait_for_each_other_but_never_longer_than_the_bound(per_s: float) -> None:
    found = waits(per_s, 1000)
    assert sum(wait > 0 for wait in found) > len(found) * 0.9
    assert max(found) <= GATHER_S + TURN_S


def test_the_first_record_after_a_load_goes_at_the_next_look_and_the_ones_after_it_at_once() -> (
    None
):
    load = Load(GATHER_S)
    waits(20_000, 100, load=load)
    assert load.is_high
    load.note()
    assert load.look(200.0)
    assert not load.is_high


def test_many_that_come_in_one_call_are_as_many() -> None:
    load = Load(0.05)
    assert load.look(100.0)
    load.note(20)
    assert not load.look(100.04)
    assert not load.is_high, "the span is not over"
    assert load.look(100.06)
    assert load.is_high

"""How long a commit waits."""

from __future__ import annotations

import pytest

from edgewake.edge.log.keeping.lanes import Lane
from edgewake.edge.log.writing.batching import LONE_S, Batching

LINGER_S = {Lane.URGENT: 0.002, Lane.NORMAL: 0.2, Lane.BULK: 1.0}


def at_rate(readings_per_s: float) -> Batching:
    batching = Batching(LINGER_S)
    for n in range(100):
        batching.committed(max(1, int(readings_per_s / 10)), n * max(0.1, 1 / readings_per_s))
    return batching


def test_a_reading_that_is_alone_does_not_wait() -> None:
    for batching in (Batching(LINGER_S), at_rate(1)):
        assert batching.wait_s({Lane.NORMAL: 100.0}, 100.0) == pytest.approx(LONE_S)


def test_readings_that_come_quickly_wait_for_each_other() -> None:
    assert at_rate(100).wait_s({Lane.NORMAL: 100.0}, 100.05) == pytest.approx(0.15)


def test_the_most_urgent_lane_decides() -> None:
    assert at_rate(100).wait_s({Lane.BULK: 99.5, Lane.URGENT: 100.0}, 100.0) == pytest.approx(0.002)
    assert at_rate(100).wait_s({Lane.BULK: 99.5, Lane.NORMAL: 100.0}, 100.0) == pytest.approx(0.2)


def test_a_lane_that_has_waited_long_enough_is_due() -> None:
    assert at_rate(100).wait_s({Lane.NORMAL: 99.0}, 100.0) < 0


def test_a_burst_is_forgotten_within_seconds() -> None:
    batching = at_rate(10_000)
    for n in range(5):
        batching.committed(1, 20.0 + n)
    assert batching.wait_s({Lane.NORMAL: 30.0}, 30.0) == pytest.approx(LONE_S)


def test_nothing_that_waits_needs_no_wait() -> None:
    assert at_rate(100).wait_s({}, 5.0) == 0

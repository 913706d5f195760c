"""How long to wait."""

from __future__ import annotations

import random

from edgewake.protocol.backoff import SETTLED_S, Backoff


def test_waits_double_up_to_the_bound_and_at_least_half_of_each_is_waited() -> None:
    backoff = Backoff(random.Random(1), first_s=0.2, max_s=30)
    for bound in (0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30):
        assert bound / 2 <= backoff.next_s() <= bound


def test_waits_begin_again_after_a_success() -> None:
    backoff = Backoff(random.Random(1), first_s=1, max_s=5)
    for bound_s in (1, 2, 4, 5, 5):
        assert bound_s / 4 <= backoff.next_s() <= bound_s
    backoff.reset()
    assert backoff.next_s() <= 1


def test_a_thousand_devices_spread_over_half_the_wait() -> None:
    waits = sorted(
        Backoff(random.Random(seed), first_s=10, max_s=10).next_s() for seed in range(1000)
    )
    assert waits[0] < 5.1
    assert waits[-1] > 9.9


def test_no_two_clients_wait_alike() -> None:
    assert len({Backoff(random.Random(seed)).next_s() for seed in range(100)}) == 100


def test_only_a_connection_that_lasted_is_forgiven() -> None:
    backoff = Backoff(random.Random(1), first_s=0.2, max_s=30)
    for _ in range(10):
        backoff.next_s()
        backoff.lasted(SETTLED_S - 1)
    assert backoff.next_s() >= 15
    backoff.lasted(SETTLED_S)
    assert backoff.next_s() <= 0.2

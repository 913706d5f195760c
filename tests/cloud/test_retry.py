"""The wait before the next attempt."""

from __future__ import annotations

import random

from edgewake.cloud.retry import Backoff


def test_waits_double_up_to_a_bound_and_begin_again_after_a_success() -> None:
    backoff = Backoff(random.Random(1), first_s=1, max_s=5)
    for bound_s in (1, 2, 4, 5, 5):
        assert bound_s / 4 <= backoff.next_s() <= bound_s
    backoff.reset()
    assert backoff.next_s() <= 1


def test_no_two_clients_wait_alike() -> None:
    assert len({Backoff(random.Random(seed)).next_s() for seed in range(100)}) == 100

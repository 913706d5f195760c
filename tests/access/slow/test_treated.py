"""Slow readers that are given the latest of each thing alone: how many may be."""

from __future__ import annotations

from edgewake.cloud.access.slow.treated import SLOTS, Slots


def test_conflations_have_a_bound_for_each_client_and_for_all() -> None:
    slots = Slots(share=0.25)
    assert [slots.take("a") for _ in range(SLOTS // 4 + 1)] == [True] * (SLOTS // 4) + [False]
    assert slots.take("b"), "another address has its own"
    slots.give_back("a")
    assert slots.take("a")

"""Conditions that come true one after the other within a time, step by step. Pure.

The rule of agents (`pattern` in their chains) and of queries (`pattern_window`). Each condition
needs a reading of its own; readings between them do not matter. After a match the rule starts
again, so no reading is in two matches. For each number of conditions met so far only the latest
beginning is kept: whatever could be completed in time from an earlier one, can be from it.
Beginnings that are in the future, because the time went backwards, are given up.
"""

from __future__ import annotations

from collections.abc import Sequence

Began = Sequence[int | None]
"""For 1, 2, … conditions met: event time, ms, of the latest such beginning, or None."""


def nothing(conditions: int) -> list[int | None]:
    """The state in which none of the `conditions` was met."""
    return [None] * (conditions - 1)


def step(
    began: Began, t: int, met: Sequence[object], within_ms: float
) -> tuple[list[int | None], int | None]:
    """After one more reading; and where the match began that it completes.

    `met`: each condition's value; only True is met.
    """
    kept = [one if one is not None and 0 <= t - one <= within_ms else None for one in began]
    if met[-1] is True and kept[-1] is not None:
        return nothing(len(met)), kept[-1]
    for place in range(len(kept) - 1, 0, -1):  # backwards, so that one reading meets one condition
        earlier = kept[place - 1]
        if met[place] is True and earlier is not None:
            kept[place] = max(earlier, kept[place] or 0)
    if met[0] is True:
        kept[0] = t
    return kept, None

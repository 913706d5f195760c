"""Chooses how Spark groups the readings of a lane with sketches: by hash or by sorting.

A hash suits large groups, sorting suits small ones. A hash keeps an entry for each group, and for
each column of a new one Spark 4.2 reads its settings again (SpecificInternalRow over TypeOps and
SQLConf): in four steps of a batch together some 20 µs a group, a third of all that a batch of
50,000 groups took. Sorted readings need one entry, one group after the other, but sorting costs
some 0.1 µs a reading. The state is the same with both, so any batch may change it. Lanes without
sketches group otherwise, and this has no effect there.
"""

from __future__ import annotations

from typing import Final

HASH: Final = "spark.sql.execution.useObjectHashAggregateExec"
READINGS_PER_GROUP: Final = 100
"""Sorting is faster below it; measured: by 20 % at 50, by 25 % at 4, and slower by 8 % at
thousands."""
GROUPS_MIN: Final = 1000
"""With fewer groups a batch takes as long either way, and a changed plan must be compiled again."""


def is_sorted(groups: int, readings: int) -> bool:
    """Should a batch with these numbers of groups and readings be sorted?"""
    return groups >= GROUPS_MIN and readings < READINGS_PER_GROUP * groups


def settings(groups: int, readings: int) -> dict[str, str]:
    """Spark's, as they suit it."""
    return {HASH: "false" if is_sorted(groups, readings) else "true"}

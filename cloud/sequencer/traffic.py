"""Which partitions of `ew.up` are read apart from the others because nothing comes in them. Pure.

A record ends the wait of the fetch that names its partition, and the next fetch names all of its consumer's partitions again, which Kafka
looks through one by one. A small fleet sends some twenty records a second in a third of the partitions: two thirds of that work were for
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SORT_S: Final = 10.0
"""Seconds from one look at the traffic to the next. So long a partition in which records come again is read by way of the quiet ones."""
QUIET_S: Final = 30.0
"""Seconds without a record after which a partition is quiet."""
WORTH_PER_S: Final = 10.0
"""Records a second from which quiet partitions are read apart: the others then end their fetch so often that it matters, and wake their
reader so often that it can look at the quiet ones, too."""
QUIET_SHARE: Final = 0.5
"""Least share of the partitions that has to be quiet; with fewer there is little to save, and under load all are read as one."""


def quiet(last_s: Mapping[int, float], records_per_s: float, now_s: float) -> frozenset[int]:
    """The partitions to be read apart. `last_s`: partition → when its last record came, or when it was added."""
    if records_per_s < WORTH_PER_S:
        return frozenset()
    found = frozenset(partition for partition, at_s in last_s.items() if now_s - at_s >= QUIET_S)
    return found if len(found) >= QUIET_SHARE * len(last_s) else frozenset()

"""Decides what of a micro-batch is new, by its offsets and never by its number. Pure.

Spark counts batches in its checkpoint. A power cut, a restored copy or a second driver makes it
plan a batch of the same number again with other offsets, so the number proves nothing. The lane's
record on `ew.lanes` has the offsets up to which results were emitted; a batch is compared with
that.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeAlias

Offsets: TypeAlias = Mapping[str, Mapping[int, int]]
"""Topic → partition → offset after the last record. A missing partition is at its beginning."""


class Novelty(StrEnum):
    """How much of a batch is new."""

    NONE = "none"
    """It ends at or before what was emitted: it only updates Spark's state."""
    ALL = "all"
    """It begins at or before what was emitted and ends after it: its rows are emitted."""
    MIXED = "mixed"
    """One partition is ahead and another still behind, as happens while a lost state is built
    again. Its rows are emitted, since later batches do not repeat them, but no window becomes
    final."""


def novelty(emitted: Offsets, reached: Offsets) -> Novelty:
    """Compare a batch's end with what was emitted."""
    if not is_ahead(reached, emitted):
        return Novelty.NONE
    return Novelty.MIXED if is_ahead(emitted, reached) else Novelty.ALL


def is_ahead(one: Offsets, other: Offsets) -> bool:
    """Is any partition of `one` further than in `other`?"""
    return any(
        offset > other.get(topic, {}).get(partition, 0)
        for topic, partitions in one.items()
        for partition, offset in partitions.items()
    )


def between(before: Offsets, to: Offsets) -> int:
    """The number of offsets between two positions."""
    return sum(
        max(0, offset - before.get(topic, {}).get(partition, 0))
        for topic, partitions in to.items()
        for partition, offset in partitions.items()
    )


def furthest(one: Offsets, other: Offsets) -> dict[str, dict[int, int]]:
    """The further of two positions, per partition."""
    found = {topic: dict(partitions) for topic, partitions in one.items()}
    for topic, partitions in other.items():
        here = found.setdefault(topic, {})
        for partition, offset in partitions.items():
            here[partition] = max(offset, here.get(partition, 0))
    return found

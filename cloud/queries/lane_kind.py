"""Which lanes a stream may have."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

APART: Final = "~"
"""Comes before the query (label) in the place of a lane that one query has for itself."""


SKETCH_INPUTS: Final = ("measure", "extreme", "item", "quantity", "top_item")
"""What a tag may have for moments, extremes and the three sketches: double, struct<at: double,
number: double, text: string>, bigint, double, string."""


ITEMS: Final = "items"
"""What a tag has in lanes of kind DISTINCT for all items of a frame at once: a sketch of them
(binary)."""


class LaneKind(StrEnum):
    """Queries without sketches must not pay for sketches: each lane is a Spark query of its own."""

    PLAIN = "plain"
    SKETCH = "sketch"
    DISTINCT = "distinct"
    """For queries with groups that only count different values: sketches for every group would be
    kept in vain."""
    PLAIN_SHED = "plain-shed"
    SKETCH_SHED = "sketch-shed"
    """Both kinds again for queries that may shed readings when they lag: queries that may not never
    wait for them, nor pay for weights."""
    ROWS = "rows"
    SEQUENCE = "sequence"
    JOIN = "join"
    PAIR = "pair"
    TABLE = "table"

    @property
    def inputs(self) -> tuple[str, ...]:
        """What its tags have beside numbers."""
        return _INPUTS.get(self, ())

    @property
    def sheds(self) -> bool:
        """May its queries leave readings out?"""
        return self in (LaneKind.PLAIN_SHED, LaneKind.SKETCH_SHED)


_INPUTS: Final[Mapping[LaneKind, tuple[str, ...]]] = {
    LaneKind.SKETCH: SKETCH_INPUTS,
    LaneKind.SKETCH_SHED: SKETCH_INPUTS,
    LaneKind.DISTINCT: ("item", ITEMS),
}

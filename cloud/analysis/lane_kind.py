"""Which lanes a stream may have."""

from __future__ import annotations

from enum import StrEnum


class LaneKind(StrEnum):
    """Queries without sketches must not pay for sketches: each lane is a Spark query of its own."""

    PLAIN = "plain"
    SKETCH = "sketch"
    PLAIN_SHED = "plain-shed"
    SKETCH_SHED = "sketch-shed"
    """The same two of queries that may leave readings out when they lag: those that may not never wait for them, nor pay for weights."""
    ROWS = "rows"
    SEQUENCE = "sequence"
    JOIN = "join"
    PAIR = "pair"
    TABLE = "table"

    @property
    def has_sketches(self) -> bool:
        """Do its queries need sketches?"""
        return self in (LaneKind.SKETCH, LaneKind.SKETCH_SHED)

    @property
    def sheds(self) -> bool:
        """May its queries leave readings out?"""
        return self in (LaneKind.PLAIN_SHED, LaneKind.SKETCH_SHED)

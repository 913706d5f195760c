"""Which lanes a stream may have."""

from __future__ import annotations

from enum import StrEnum


class LaneKind(StrEnum):
    """Queries without sketches must not pay for sketches: each lane is a Spark query of its own."""

    PLAIN = "plain"
    SKETCH = "sketch"
    ROWS = "rows"
    SEQUENCE = "sequence"
    JOIN = "join"
    PAIR = "pair"

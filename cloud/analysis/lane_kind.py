"""Which lanes a stream may have."""

from __future__ import annotations

from enum import StrEnum

from edgewake.cloud.analysis.checkpoint import SUMMARY_LANE


class LaneKind(StrEnum):
    """Queries without sketches must not pay for sketches, and summaries must delay neither: each lane is a Spark query of its own."""

    PLAIN = "plain"
    SKETCH = "sketch"
    ROWS = "rows"
    SEQUENCE = "sequence"
    JOIN = "join"
    SUMMARY = SUMMARY_LANE

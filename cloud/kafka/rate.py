"""The rate of records in a second. No I/O."""

from __future__ import annotations


class Rate:
    """Counts records for a span of time, and believes that the next one will be like it."""

    def __init__(self, span_s: float) -> None:
        self.per_s = 0.0
        self._span_s = span_s
        self._came = 0
        self._since_s = float("-inf")

    def note(self, records: int = 1) -> None:
        """Count `records` that came."""
        self._came += records

    def look(self, now_s: float) -> bool:
        """Is a span over? Then what came in it is the rate."""
        passed_s = now_s - self._since_s
        if passed_s < self._span_s:
            return False
        self.per_s = self._came / passed_s
        self._came = 0
        self._since_s = now_s
        return True
